"""PTX as it is parsed: instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from treadle.runtime.ptx.errors import PtxUnknown


@dataclass(frozen=True)
class Register:
    """A register, or a special one (`%tid.x`). One that is declared in a scope of its own has the scope behind `#`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number as written: 16, -1, 0f3F800000, 0d3FF0000000000000, 1.5."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """A label, a variable or a parameter."""

    name: str


@dataclass(frozen=True)
class Vector:
    """`{a, b}`"""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; of a tensor copy `[base, {coordinates}]`; of a parameter with brackets, `[a], [b]` are two."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: Vector | None = None


@dataclass(frozen=True)
class Negated:
    """`!p`"""

    register: Register


@dataclass(frozen=True)
class Pair:
    """`p|q`: two destinations."""

    first: Operand
    second: Operand


Operand = Register | Immediate | Symbol | Vector | Address | Negated | Pair

SINK = Register("_")
"""A destination that takes what nobody wants."""


@dataclass(frozen=True)
class Guard:
    """`@p` or `@!p`"""

    register: Register
    negated: bool


@dataclass(frozen=True)
class Place:
    """Lines of the CUDA C that an instruction is of, innermost first."""

    lines: tuple[int, ...]

    def __str__(self) -> str:
        return ", in ".join(f"line {line}" for line in self.lines)


@dataclass(frozen=True)
class Instruction:
    """One instruction of an entry."""

    parts: tuple[str, ...]
    """`add.rn.f32` is ("add", "rn", "f32")."""
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    """Of the PTX."""
    place: Place | None
    index: int
    """Its number in the entry, which is what program counters count."""
    text: str

    @property
    def modifiers(self) -> Modifiers:
        return Modifiers(self)

    def unknown(self, why: str) -> NoReturn:
        raise PtxUnknown(f"PTX line {self.line}: {why}: {self.text}")

    def expect(self, *counts: int) -> None:
        """That it has as many operands as one of these."""
        if len(self.operands) not in counts:
            self.unknown(f"{len(self.operands)} operands, expected {' or '.join(map(str, counts))}")


class Modifiers:
    """What follows the opcode, taken part by part in the order of the ISA; `end` refuses what is left."""

    def __init__(self, instruction: Instruction, taken: int = 1) -> None:
        self.instruction = instruction
        self.rest = list(instruction.parts[taken:])

    def flag(self, name: str) -> bool:
        """Whether this part comes next, which is taken then."""
        if self.rest[:1] != [name]:
            return False
        del self.rest[0]
        return True

    def choice(self, *names: str, default: str | None = None) -> str:
        """The next part, which is one of these (PtxUnknown), or the default where it is another."""
        if self.rest and self.rest[0] in names:
            return self.rest.pop(0)
        if default is None:
            expected = ", ".join(f".{name}" for name in names)
            self.instruction.unknown(f"expected one of {expected} in place of '.{'.'.join(self.rest)}'")
        return default

    def require(self, *names: str) -> None:
        """These parts, in this order."""
        for name in names:
            self.choice(name)

    def end(self) -> None:
        if self.rest:
            self.instruction.unknown(f"unknown modifier '.{self.rest[0]}'")
