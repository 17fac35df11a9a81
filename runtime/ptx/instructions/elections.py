"""One thread of several: elect.sync (PTX ISA 9.7.13.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.instructions.shuffles import with_members
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.text.instruction import Instruction, Pair

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program


@meaning("elect", "sync")
def elect(instruction: Instruction, program: Program) -> Step:
    """elect.sync d|p, mask: p is true in one thread of the mask, whose lane is d: always the same one of a mask, here
    its lowest."""
    if len(instruction.parts) > 2:
        instruction.unknown("unknown modifier")
    instruction.expect(2)
    to, mask = instruction.operands
    if not isinstance(to, Pair):
        instruction.unknown("expected d|p")
    leader, elected = program.writer(to.first, "b32", instruction), program.writer(to.second, "pred", instruction)
    members = program.reader(mask, "b32", instruction)

    def step(threads: Threads) -> None:
        wanted = threads.full(members(threads)).astype(np.int64)
        lowest = np.log2(wanted & -wanted).astype(np.uint32)
        leader(threads, lowest)
        elected(threads, threads.machine.thread_index[threads.select] % WARP == lowest)

    return with_members(program, instruction, members, step)
