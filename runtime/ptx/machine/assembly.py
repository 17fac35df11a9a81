"""An entry becomes the steps that a machine executes."""

from __future__ import annotations

import numpy as np

from treadle.runtime.ptx.machine.machine import Machine
from treadle.runtime.ptx.machine.meanings import MOVED, Step, decode
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction


def assemble(machine: Machine) -> Program:
    """The machine's entry, decoded (PtxUnknown)."""
    body = machine.entry.body
    program = Program(machine, body.registers)
    program.steps = [*(_step(program, each) for each in body.instructions), _ran_out]
    return program


def _step(program: Program, instruction: Instruction) -> Step:
    """What an instruction does to the threads for which its guard holds; the others go on."""
    step = decode(instruction, program)
    if instruction.guard is None:
        return step
    held = program.view(instruction.guard.register, "pred", instruction)
    negated, index = instruction.guard.negated, instruction.index

    def guarded(threads: Threads) -> int | None:
        taken = held[threads.select]
        if negated:
            taken = ~taken
        if taken.all():
            return step(threads)
        if not taken.any():
            return None
        some = threads.subset(taken)
        outcome = step(some)
        if outcome is None:
            return None
        if outcome != MOVED:
            some.go(None, outcome)
        threads.go(~taken, index + 1)
        return MOVED

    return guarded


def _ran_out(threads: Threads) -> int | None:
    threads.fail(np.ones(threads.count, bool), "it runs past the last instruction")
