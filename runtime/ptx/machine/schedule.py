"""Runs a launch: batch after batch of blocks, and in each the threads that can go on.

Those that stand at the smallest program counter go on, up to where others stand, so that what diverged meets again.
Asynchronous operations (`Machine.later`) are done as late as they may be: when no thread can go on. A seed draws those
moments, and which warps go first."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.assembly import assemble
from treadle.runtime.ptx.machine.blocks import Block
from treadle.runtime.ptx.machine.deadlock import deadlock, where
from treadle.runtime.ptx.machine.machine import AWAITING, EXITED, GOING, Machine
from treadle.runtime.ptx.machine.meanings import MOVED
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.special import SPECIAL
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.types import Triple

FAR = np.iinfo(np.int64).max

EARLY = 0.2
"""How likely a seed does something asynchronous between two turns of threads."""

CHANGES = 0.1
"""How likely it chooses other warps to go first."""


def run(machine: Machine) -> None:
    """All blocks of the grid (PtxFault, PtxUnknown)."""
    program = assemble(machine)
    count = prod(machine.grid)
    for first in range(0, count, machine.slots):
        _begin(machine, program, first, min(machine.slots, count - first))
        _run_batch(machine, program)
        for each in machine.ended:
            each()
        while machine.later:
            machine.later.popleft()()


def _begin(machine: Machine, program: Program, first: int, blocks: int) -> None:
    """Block `first` of the grid and those behind it, so many, from their first instruction on."""
    here = machine.slot < blocks
    machine.pc.fill(0)
    machine.state[:] = np.where(here, GOING, EXITED)
    machine.living.fill(0)
    np.bitwise_or.at(machine.living, machine.warp[here], machine.lane_bit[here])
    machine.block_index[:] = first + np.minimum(machine.slot, blocks - 1)
    machine.shared.clear()
    program.poison()
    for name, held in machine.special.items():
        held[:] = SPECIAL[name](machine)
    machine.blocks = [_block(machine, first, slot) for slot in range(blocks)]
    machine.kept.clear()
    machine.ended.clear()
    machine.leaving.clear()


def _block(machine: Machine, first: int, slot: int) -> Block:
    threads, stride = machine.thread_count, machine.shared.stride
    return Block(
        index=_index(machine.grid, first + slot),
        slot=slot,
        rank=slot % machine.cluster,
        lanes=np.arange(slot * threads, (slot + 1) * threads),
        window=int(machine.window[slot * threads]),
        shared=machine.shared.bytes[slot * stride : (slot + 1) * stride],
    )


def _index(grid: Triple, number: int) -> Triple:
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)


def _run_batch(machine: Machine, program: Program) -> None:
    while (machine.state != EXITED).any():
        if machine.random is not None:
            _draw(machine)
        if (machine.state == GOING).any():
            _run_some(machine, program)
        elif machine.later:
            _do_later(machine)
        else:
            raise deadlock(machine)


def _do_later(machine: Machine) -> None:
    """What was begun first of what is asynchronous."""
    machine.later.popleft()()
    machine.stir()


def _draw(machine: Machine) -> None:
    """What a seed decides."""
    assert machine.random is not None
    if machine.later and machine.random.random() < EARLY:
        _do_later(machine)
    going = machine.state == GOING
    if machine.random.random() < CHANGES or not (machine.preferred & going).any():
        machine.preferred = (machine.random.random(machine.warps) < 0.5)[machine.warp]


def _run_some(machine: Machine, program: Program) -> None:
    """The threads that stand at the smallest program counter, up to where others stand."""
    going = machine.state == GOING
    if (going & machine.preferred).any():
        going &= machine.preferred
    index = int(machine.pc[going].min())
    awake = machine.state <= AWAITING
    here = awake & (machine.pc == index) & (going | (machine.state == AWAITING))
    others = machine.pc[awake & ~here]
    ahead = others[others > index]
    lanes = np.flatnonzero(here)
    machine.state[lanes] = GOING
    stop = int(ahead.min()) if ahead.size else FAR
    _go(program, Threads(machine, lanes), index, stop, alone=not others.size)


def _go(program: Program, threads: Threads, index: int, stop: int, alone: bool) -> None:
    """Threads execute instructions until they part, wait, or come to where others stand, or others are woken."""
    machine, steps = threads.machine, program.steps
    machine.stirred = False
    try:
        while index < stop:
            outcome = steps[index](threads)
            if outcome is None:
                index += 1
                if machine.stirred:
                    break
            elif outcome == MOVED:
                return
            else:
                index = outcome
                if not alone or machine.stirred:
                    break
    except PtxFault as fault:
        raise fault.at(where(machine, index, fault.lane)) from None
    machine.pc[threads.select] = index
