"""Registers that warps give one another: setmaxnreg (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.instructions.register_pools import RegisterPool, cap
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.machine.topics import of_lane, topic
from treadle.runtime.ptx.text.instruction import Immediate, Instruction, Modifiers

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine
    from treadle.runtime.ptx.machine.program import Program


class Pools:
    """One for each block of a batch."""

    def __init__(self, machine: Machine) -> None:
        threads = prod(machine.block)
        each = cap(threads, *machine.entry.directives.get("minnctapersm", (1,)))
        self.of = [RegisterPool(-(-threads // WARP), each) for _ in machine.blocks]


@meaning("setmaxnreg")
def setmaxnreg(instruction: Instruction, program: Program) -> Step:
    """A warp that takes more than there are sleeps until others have given."""
    modifiers = Modifiers(instruction)
    gives = modifiers.choice("dec", "inc") == "dec"
    modifiers.require("sync", "aligned", "u32")
    modifiers.end()
    instruction.expect(1)
    if not {"maxntid", "reqntid"} & set(program.machine.entry.directives):
        instruction.unknown("ptxas ignores it in a kernel without launch bounds")
    if not isinstance(instruction.operands[0], Immediate):
        instruction.unknown("expected a number of registers")
    count, machine = int(instruction.operands[0].text), program.machine

    def step(threads: Threads) -> int | None:
        pools = topic(machine, Pools)
        waits = np.zeros(threads.count // WARP, bool)
        for i, lane in enumerate(threads.lanes[::WARP]):
            pool, warp = pools.of[machine.slot[lane]], int(machine.thread_index[lane]) // WARP
            with of_lane(lane):
                if gives:
                    pool.give(warp, count)
                else:
                    waits[i] = not pool.take(warp, count)
        if gives:
            machine.stir()
        return threads.sleep_here(np.repeat(waits, WARP), instruction.index) if waits.any() else None

    return program.converged(step, instruction)
