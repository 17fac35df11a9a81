"""Messages that say where threads are."""

from __future__ import annotations

import numpy as np

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.machine import AWAITING, EXITED, Machine

_SHOWN = 8


def where(machine: Machine, index: int, lane: int | None) -> str:
    """The kernel, the thread, and the instruction with its lines."""
    who = ""
    if lane is not None:
        block = machine.blocks[int(machine.slot[lane])]
        who = f", block {block.index} thread {int(machine.thread_index[lane])}"
    return f"{machine.entry.name}{who}, {_instruction(machine, index)}"


def deadlock(machine: Machine) -> PtxFault:
    """That no thread can go on, and where they stand."""
    stuck = np.flatnonzero(machine.state != EXITED)
    lines: list[str] = []
    spots = np.unique(machine.waits_at[stuck])
    for index in spots[:_SHOWN]:
        here = stuck[machine.waits_at[stuck] == index]
        for_whom = " for others of their warps" if (machine.state[here] == AWAITING).all() else ""
        lines.append(f"  {len(here)} wait{for_whom}, {where(machine, int(index), int(here[0]))}")
    if len(spots) > _SHOWN:
        lines.append(f"  and at {len(spots) - _SHOWN} more instructions")
    exited = int((machine.state == EXITED).sum())
    ended = f", {exited} have ended" if exited else ""
    return PtxFault(f"deadlock: of {len(stuck)} threads none can go on{ended}\n" + "\n".join(lines)).at(
        machine.entry.name
    )


def _instruction(machine: Machine, index: int) -> str:
    instructions = machine.entry.body.instructions
    if index >= len(instructions):
        return "the end of the entry"
    found = instructions[index]
    place = f" ({found.place} of the CUDA C)" if found.place is not None else ""
    return f"PTX line {found.line}{place}: {found.text}"
