"""Clusters of blocks (PTX ISA, sections "barrier.cluster" and "mapa")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.machine.meanings import MOVED, Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.windows import RANK_SHIFT, window_of
from treadle.runtime.ptx.text.instruction import Instruction

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine


class ClusterBarrier:
    """Of each thread of the batch: the phases that it has arrived at and waited for, and whether it waits."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.arrived = np.zeros(machine.size, np.int64)
        self.waited = np.zeros(machine.size, np.int64)
        self.waiting = np.zeros(machine.size, bool)
        machine.leaving.append(self.complete)

    def complete(self) -> None:
        """Threads that wait go on if nobody of their cluster that has not ended is a phase behind."""
        machine = self.machine
        clusters = machine.slot // machine.cluster
        least = np.full(machine.slots // machine.cluster, np.iinfo(np.int64).max)
        here = ~machine.has_ended
        np.minimum.at(least, clusters[here], self.arrived[here])
        free = np.flatnonzero(self.waiting & (least[clusters] > self.waited))
        self.waiting[free] = False
        self.waited[free] += 1
        machine.release(free)


def _barrier(machine: Machine) -> ClusterBarrier:
    kept = machine.kept.get("clusters")
    if kept is None:
        kept = machine.kept["clusters"] = ClusterBarrier(machine)
    assert isinstance(kept, ClusterBarrier)
    return kept


@meaning("barrier", "cluster", "arrive")
def arrive(instruction: Instruction, program: Program) -> Step:
    """barrier.cluster.arrive{.release/.relaxed}{.aligned}: the thread has come; it waits before it comes again."""
    modifiers = instruction.modifiers
    modifiers.require("cluster", "arrive")
    modifiers.choice("release", "relaxed", default="")
    aligned = modifiers.flag("aligned")
    modifiers.end()

    def step(threads: Threads) -> int | None:
        barrier = _barrier(threads.machine)
        threads.check(
            barrier.arrived[threads.lanes] == barrier.waited[threads.lanes],
            "a thread arrives at the barrier of its cluster twice without a wait",
        )
        barrier.arrived[threads.lanes] += 1
        threads.go(None, instruction.index + 1)
        barrier.complete()
        return MOVED

    return program.converged(step, instruction) if aligned else step


@meaning("barrier", "cluster", "wait")
def wait(instruction: Instruction, program: Program) -> Step:
    """barrier.cluster.wait{.acquire}{.aligned}: until all threads of the cluster that have not ended have arrived."""
    modifiers = instruction.modifiers
    modifiers.require("cluster", "wait")
    modifiers.flag("acquire")
    aligned = modifiers.flag("aligned")
    modifiers.end()

    def step(threads: Threads) -> int | None:
        barrier = _barrier(threads.machine)
        threads.check(
            barrier.arrived[threads.lanes] == barrier.waited[threads.lanes] + 1,
            "a thread waits at the barrier of its cluster at which it has not arrived",
        )
        barrier.waiting[threads.lanes] = True
        threads.machine.suspend(threads.lanes, instruction.index)
        barrier.complete()
        return MOVED

    return program.converged(step, instruction) if aligned else step


@meaning("mapa")
def map_address(instruction: Instruction, program: Program) -> Step:
    """mapa.shared::cluster.u32 d, a, b: the address of what is at `a` of this block's window, in that of the block with
    rank b."""
    modifiers = instruction.modifiers
    modifiers.require("shared::cluster", "u32")
    modifiers.end()
    instruction.expect(3)
    write = program.writer(instruction.operands[0], "u32", instruction)
    address, rank = (program.reader(each, "u32", instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        machine, given = threads.machine, threads.full(address(threads)).astype(np.int64)
        which = threads.full(rank(threads)).astype(np.int64)
        threads.check(which < machine.cluster, "the cluster has no block of that rank")
        own = machine.window[threads.select]
        threads.check(given >> RANK_SHIFT == own >> RANK_SHIFT, "no shared address of the thread's block")
        write(threads, (given - own + window_of(which)).astype(np.uint32))

    return step
