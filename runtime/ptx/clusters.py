"""Clusters of blocks (PTX ISA, sections "barrier.cluster" and "mapa")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.runtime.ptx.instruction import Instruction
from treadle.runtime.ptx.meanings import MOVED, Step, meaning
from treadle.runtime.ptx.program import Program
from treadle.runtime.ptx.threads import Threads
from treadle.runtime.ptx.types import Array
from treadle.runtime.ptx.windows import RANK_SHIFT, window_of


@dataclass
class ClusterBarrier:
    """Of all threads of the batch: the phases that they have arrived at and waited for, and who sleeps."""

    arrived: Array
    waited: Array
    sleeping: Array


def _barrier(threads: Threads) -> ClusterBarrier:
    machine = threads.machine
    kept = machine.kept.get("clusters")
    if kept is None:
        zeros = np.zeros(machine.size, np.int64)
        kept = machine.kept["clusters"] = ClusterBarrier(zeros, zeros.copy(), np.zeros(machine.size, bool))
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
        barrier = _barrier(threads)
        threads.check(
            barrier.arrived[threads.lanes] == barrier.waited[threads.lanes],
            "a thread arrives at the barrier of its cluster twice without a wait",
        )
        barrier.arrived[threads.lanes] += 1
        threads.go(None, instruction.index + 1)
        _complete(threads, barrier)
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
        barrier = _barrier(threads)
        threads.check(
            barrier.arrived[threads.lanes] == barrier.waited[threads.lanes] + 1,
            "a thread waits at the barrier of its cluster at which it has not arrived",
        )
        barrier.sleeping[threads.lanes] = True
        threads.machine.suspend(threads.lanes, instruction.index)
        _complete(threads, barrier)
        return MOVED

    return program.converged(step, instruction) if aligned else step


def _complete(threads: Threads, barrier: ClusterBarrier) -> None:
    """Threads that sleep go on if nobody of their cluster is a phase behind."""
    machine = threads.machine
    clusters = machine.slot // machine.cluster
    behind = np.full(int(clusters[-1]) + 1, np.iinfo(np.int64).max)
    here = ~machine.has_ended
    np.minimum.at(behind, clusters[here], barrier.arrived[here])
    free = np.flatnonzero(barrier.sleeping & (behind[clusters] > barrier.waited))
    barrier.sleeping[free] = False
    barrier.waited[free] += 1
    machine.release(free)


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
