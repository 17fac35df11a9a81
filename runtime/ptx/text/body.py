"""What the body of an entry declares and does."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.runtime.ptx.text.instruction import Instruction


@dataclass(frozen=True)
class Variable:
    """An array in a memory; None bytes of an `extern` one, whose size the launch gives."""

    name: str
    space: str
    align: int
    nbytes: int | None
    data: bytes = b""
    """What it begins with, of `global`."""


@dataclass(frozen=True)
class Body:
    """The instructions of an entry and what it declares."""

    instructions: tuple[Instruction, ...]
    registers: dict[str, str]
    """Their types."""
    labels: dict[str, int]
    variables: tuple[Variable, ...]
