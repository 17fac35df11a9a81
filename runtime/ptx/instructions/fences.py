"""Fences (PTX ISA 9.7.13.4). This machine does what is asked in the order in which it is asked, so that they change
nothing: an order that is missing is the emulator's to find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.text.instruction import Instruction

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program
    from treadle.runtime.ptx.machine.threads import Threads

_KNOWN = {
    ("fence", "mbarrier_init", "release", "cluster"),
    ("fence", "proxy", "async"),
    ("fence", "proxy", "async", "shared::cta"),
    ("fence", "proxy", "async", "shared::cluster"),
    ("fence", "proxy", "async", "global"),
}


@meaning("fence")
def fence(instruction: Instruction, program: Program) -> Step:
    if instruction.parts not in _KNOWN:
        instruction.unknown("a fence that is not known")
    instruction.expect(0)

    def step(threads: Threads) -> None:
        pass

    return step
