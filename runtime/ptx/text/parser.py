"""Parses the body of an entry: scopes, registers, labels, lines and instructions (PTX ISA sections 4, 6 and 11)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from treadle.runtime.ptx.errors import PtxUnknown
from treadle.runtime.ptx.machine.special import is_special
from treadle.runtime.ptx.text.body import Body, Variable
from treadle.runtime.ptx.text.instruction import Guard, Instruction, Operand, Place, Register, Symbol
from treadle.runtime.ptx.text.module_parser import variable
from treadle.runtime.ptx.text.operands import parse_operands, split
from treadle.runtime.ptx.text.places import Places
from treadle.runtime.ptx.types import TYPES

_NAME = r"[A-Za-z_$%][\w$]*"
_PASSED_OVER = re.compile(r"\s+|//[^\n]*|/\*.*?\*/|\.pragma[^;]*;", re.DOTALL)
_LOC = re.compile(r"\.loc\s([^\n]*)")
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_STATEMENT = re.compile(r"[^;]*;")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_REGISTERS = re.compile(rf"({_NAME})(?:<(\d+)>)?$")
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)


@dataclass
class _Scope:
    number: int
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Registers and labels declared here, by the names that they have in the whole entry."""


@dataclass(frozen=True)
class _Statement:
    """An instruction that is not parsed yet: labels that come later have to be known first."""

    text: str
    line: int
    place: Place | None
    scopes: tuple[_Scope, ...]


def parse_body(text: str, first_line: int, outside: set[str]) -> Body:
    """The body between its braces. `outside` are the names of parameters and of the file's variables (PtxUnknown)."""
    return _Parser(text, first_line, outside).body()


class _Parser:
    def __init__(self, text: str, first_line: int, outside: set[str]) -> None:
        self.text = text
        self.line = first_line
        self.outside = outside
        self.places = Places()
        self.scopes: tuple[_Scope, ...] = (_Scope(0),)
        self.count = 1
        self.registers: dict[str, str] = {}
        self.labels: dict[str, int] = {}
        self.variables: list[Variable] = []
        self.statements: list[_Statement] = []

    def body(self) -> Body:
        position = 0
        while position < len(self.text):
            end = self._item(position)
            self.line += self.text.count("\n", position, end)
            position = end
        if len(self.scopes) != 1:
            raise PtxUnknown(f"PTX line {self.line}: a scope that never closes")
        instructions = tuple(self._instruction(i, each) for i, each in enumerate(self.statements))
        return Body(instructions, self.registers, self.labels, tuple(self.variables))

    def _item(self, position: int) -> int:
        """Takes what stands here, and gives where the next begins."""
        text = self.text
        if (found := _PASSED_OVER.match(text, position)) is not None:
            return found.end()
        if (found := _LOC.match(text, position)) is not None:
            self.places.see(found[1])
            return found.end()
        if text[position] == "{":
            self.scopes = (*self.scopes, _Scope(self.count))
            self.count += 1
            return position + 1
        if text[position] == "}":
            self.scopes = self.scopes[:-1]
            return position + 1
        if (found := _LABEL.match(text, position)) is not None:
            self.labels[self._declare(found[1])] = len(self.statements)
            return found.end()
        if (found := _STATEMENT.match(text, position)) is None:
            raise PtxUnknown(f"PTX line {self.line}: no end of a statement: {text[position : position + 60]}")
        self._statement(_COMMENT.sub("", found.group()[:-1]).strip())
        return found.end()

    def _declare(self, name: str) -> str:
        scope = self.scopes[-1]
        if name in scope.names:
            raise PtxUnknown(f"PTX line {self.line}: '{name}' is declared twice")
        scope.names[name] = f"{name}#{scope.number}" if scope.number else name
        return scope.names[name]

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._declare_registers(text)
        elif text.startswith("."):
            made = variable(text, self.line)
            self.variables.append(made)
            self.outside = self.outside | {made.name}
        else:
            self.statements.append(_Statement(text, self.line, self.places.place, self.scopes))

    def _declare_registers(self, text: str) -> None:
        kind, names = text.removeprefix(".reg").strip().removeprefix(".").split(maxsplit=1)
        if kind not in TYPES:
            raise PtxUnknown(f"PTX line {self.line}: unknown type of registers: {text}")
        for name in split(names):
            found = _REGISTERS.match(name)
            if found is None:
                raise PtxUnknown(f"PTX line {self.line}: unknown registers: {text}")
            numbered = [f"{found[1]}{i}" for i in range(int(found[2]))] if found[2] else [found[1]]
            self.registers |= dict.fromkeys(map(self._declare, numbered), kind)

    def _instruction(self, index: int, statement: _Statement) -> Instruction:
        found = _INSTRUCTION.match(statement.text)
        shown = " ".join(statement.text.split())
        if found is None:
            raise PtxUnknown(f"PTX line {statement.line}: unknown statement: {shown}")
        negated, guard, opcode, rest = found.groups()
        try:
            operands = parse_operands(rest, lambda name: self._resolve(name, statement))
            by = self._resolve(guard, statement) if guard else None
        except ValueError as error:
            raise PtxUnknown(f"PTX line {statement.line}: {error}: {shown}") from error
        if by is not None and not isinstance(by, Register):
            raise PtxUnknown(f"PTX line {statement.line}: no predicate: {shown}")
        made = None if by is None else Guard(by, bool(negated))
        return Instruction(tuple(opcode.split(".")), operands, made, statement.line, statement.place, index, shown)

    def _resolve(self, name: str, statement: _Statement) -> Operand:
        if is_special(name) or name == "_":
            return Register(name)
        for scope in reversed(statement.scopes):
            if (known := scope.names.get(name)) is not None:
                return Register(known) if known in self.registers else Symbol(known)
        if name in self.outside:
            return Symbol(name)
        raise ValueError(f"'{name}' is not declared")
