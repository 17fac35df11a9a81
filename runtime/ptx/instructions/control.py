"""Control flow (PTX ISA, section "Control Flow Instructions")."""

from __future__ import annotations

from treadle.runtime.ptx.machine.meanings import MOVED, Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction


@meaning("bra")
def branch(instruction: Instruction, program: Program) -> Step:
    """bra{.uni}: the threads for which the guard holds jump."""
    modifiers = instruction.modifiers
    modifiers.flag("uni")
    modifiers.end()
    instruction.expect(1)
    target = program.label(instruction.operands[0], instruction)
    return lambda threads: target


@meaning("ret")
@meaning("exit")
def end(instruction: Instruction, program: Program) -> Step:
    """exit, and ret of an entry: the threads end."""
    instruction.modifiers.end()
    instruction.expect(0)

    def step(threads: Threads) -> int | None:
        threads.machine.exit(threads.lanes)
        return MOVED

    return step


@meaning("trap")
def trap(instruction: Instruction, program: Program) -> Step:
    """trap: the kernel stops with an error."""
    instruction.modifiers.end()
    return lambda threads: threads.fail(threads.lanes >= 0, "trap")
