"""Instructions, read from the listing of `cuobjdump -sass` or `nvdisasm`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_FUNCTION = re.compile(r"^\s*Function : (\S+)|^\.text\.(\S+):")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"^(\.L_x?_?\w+):")
_PARTS = re.compile(r"^(?:@(!?U?P(?:T|\d+))\s+)?([A-Z][A-Z0-9_]*(?:\.[\w.]+)?)\s*(.*)$")
_ADDRESS = re.compile(r"^0x([0-9a-f]+)$")
_LABEL_USE = re.compile(r"`\((\.L\w+)\)")


@dataclass(frozen=True)
class Instruction:
    """`@!P0 BRA 0x200` is at `address`, runs where `predicate` is true, and has an opcode with modifiers."""

    address: int
    predicate: str
    """`P0`, `!P0`; empty for an instruction that always runs."""
    opcode: str
    """With its modifiers: `LDG.E.128.CONSTANT`."""
    operands: tuple[str, ...]
    target: int | None = None
    """Where a branch goes to, if that is written in it."""

    @property
    def name(self) -> str:
        """The opcode without modifiers: `LDG`."""
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def always(self) -> bool:
        """Whether no predicate, its own or one given as an operand, can keep a branch from being taken."""
        tests = [operand for operand in self.operands if re.fullmatch(r"!?U?P\d+", operand)]
        return not self.predicate and not (self.name == "BRA" and tests)

    def __str__(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class Function:
    """One kernel's code."""

    name: str
    instructions: tuple[Instruction, ...]

    def count(self, *names: str) -> int:
        """Instructions with one of these opcodes, modifiers aside."""
        return sum(1 for each in self.instructions if each.name in names)


def parse_listing(text: str) -> tuple[Function, ...]:
    """Every function of a listing; padding after its last instruction is left out."""
    functions: list[Function] = []
    name, lines = "", list[str]()
    for line in text.splitlines():
        if found := _FUNCTION.match(line):
            functions += _function(name, lines)
            name, lines = found[1] or found[2], []
        lines.append(line)
    return (*functions, *_function(name, lines))


def _function(name: str, lines: Sequence[str]) -> list[Function]:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    pending: list[str] = []
    for line in lines:
        if found := _LABEL.match(line):
            pending.append(found[1])
        elif (found := _INSTRUCTION.match(line)) and (parsed := parse_instruction(int(found[1], 16), found[2])):
            labels |= dict.fromkeys(pending, parsed.address)
            pending.clear()
            instructions.append(parsed)
    resolved = [_resolved(each, labels) for each in instructions]
    return [Function(name, _without_padding(resolved))] if name and resolved else []


def parse_instruction(address: int, text: str) -> Instruction | None:
    """One instruction; None for what is none."""
    found = _PARTS.match(text)
    if found is None:
        return None
    operands = tuple(part.strip() for part in found[3].split(",")) if found[3].strip() else ()
    parsed = Instruction(address, found[1] or "", found[2], operands)
    return replace(parsed, target=_written_target(operands)) if _branches(parsed) else parsed


def _branches(instruction: Instruction) -> bool:
    """A call comes back, but ptxas also writes a conditional far branch as one."""
    return instruction.name in ("BRA", "JMP") or (instruction.name == "CALL" and instruction.predicate != "")


def _written_target(operands: Sequence[str]) -> int | None:
    """The address that a branch ends with."""
    if not operands:
        return None
    found = _ADDRESS.match(operands[-1])
    return int(found[1], 16) if found else None


def _resolved(instruction: Instruction, labels: dict[str, int]) -> Instruction:
    """nvdisasm writes targets as labels."""
    if not _branches(instruction) or not instruction.operands:
        return instruction
    found = _LABEL_USE.search(instruction.operands[-1])
    return replace(instruction, target=labels.get(found[1])) if found else instruction


def _without_padding(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """A function ends with a branch to itself, then NOPs up to a full line."""
    end = len(instructions)
    while end and instructions[end - 1].name == "NOP":
        end -= 1
    if end and instructions[end - 1].target == instructions[end - 1].address:
        end -= 1
    return tuple(instructions[:end])
