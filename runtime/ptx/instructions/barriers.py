"""Barriers of a block (PTX ISA, section "bar{.cta}, barrier{.cta}")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.machine.meanings import MOVED, Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.text.instruction import Immediate, Instruction
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine

BARRIERS = 16


class Barriers:
    """The 16 barriers of each block of the batch, and the threads that have come, counted by whole warps."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        shape = machine.slots, BARRIERS
        self.arrived = np.zeros(shape, np.int64)
        self.expected = np.zeros(shape, np.int64)
        self.everyone = np.zeros(shape, bool)
        """Whether all threads of the block are expected, but for warps that have ended before they came."""
        self.came = np.zeros((machine.warps, BARRIERS), bool)
        """By warps of the batch."""
        self.waiting = np.full(machine.size, -1)
        """By threads, the barrier that each waits at."""
        machine.leaving.append(self.complete)

    def arrive(self, threads: Threads, at: Array, wanted: Array, everyone: bool) -> None:
        """Counts the warps of these threads in; all that come to a barrier expect the same number (PtxFault)."""
        machine = self.machine
        first = np.ones(threads.count, bool)
        first[1:] = threads.warp[1:] != threads.warp[:-1]
        leader = np.maximum.accumulate(np.where(first, np.arange(threads.count), 0))
        threads.check(at == at[leader], "threads of one warp come to different barriers")
        slots = machine.slot[threads.select]
        known = self.expected[slots, at]
        self.expected[slots, at] = np.where(known == 0, wanted, known)
        same = self.expected[slots, at] == wanted
        threads.check(same, "threads at one barrier expect different numbers of threads")
        self.everyone[slots, at] |= everyone
        np.add.at(self.arrived, (slots[first], at[first]), machine.warp_size[threads.warp[first]])
        self.came[threads.warp, at] = True
        threads.check(self.arrived[slots, at] <= wanted, "more threads come to a barrier than it expects")

    def complete(self) -> None:
        """Barriers to which all have come let go those that wait, and begin anew."""
        machine = self.machine
        absent = (machine.living == 0)[:, None] & ~self.came
        gone = (absent * machine.warp_size[:, None]).reshape(machine.slots, -1, BARRIERS).sum(1)
        done = (self.expected > 0) & (self.arrived + self.everyone * gone >= self.expected)
        if not done.any():
            return
        free = np.flatnonzero((self.waiting >= 0) & done[machine.slot, np.maximum(self.waiting, 0)])
        self.waiting[free] = -1
        self.arrived[done] = self.expected[done] = 0
        self.everyone[done] = False
        self.came[done.repeat(machine.warps // machine.slots, axis=0)] = False
        machine.release(free)


def barriers_of(machine: Machine) -> Barriers:
    kept = machine.kept.get("barriers")
    if kept is None:
        kept = machine.kept["barriers"] = Barriers(machine)
    assert isinstance(kept, Barriers)
    return kept


@meaning("bar", "sync")
@meaning("bar", "arrive")
@meaning("barrier", "sync")
@meaning("barrier", "arrive")
def barrier(instruction: Instruction, program: Program) -> Step:
    """bar.sync a{, b}, bar.arrive a, b and barrier{.cta}.sync/.arrive.aligned: b threads (all of the block) come to
    barrier a; those that sync wait until all have come."""
    modifiers = instruction.modifiers
    arrives = modifiers.choice("sync", "arrive") == "arrive"
    aligned = instruction.parts[0] == "bar" or modifiers.flag("aligned")
    modifiers.end()
    if not aligned:
        instruction.unknown("a barrier without .aligned is not known")
    instruction.expect(*((2,) if arrives else (1, 2)))
    number = program.reader(instruction.operands[0], "u32", instruction)
    given = instruction.operands[1:] or (Immediate(str(program.machine.thread_count)),)
    count = program.reader(given[0], "u32", instruction)

    everyone = len(instruction.operands) == 1

    def step(threads: Threads) -> int | None:
        at = threads.full(number(threads)).astype(np.int64)
        wanted = threads.full(count(threads)).astype(np.int64)
        _check(threads, at, wanted, everyone)
        barriers = barriers_of(threads.machine)
        barriers.arrive(threads, at, wanted, everyone)
        if arrives:
            threads.go(None, instruction.index + 1)
        else:
            barriers.waiting[threads.lanes] = at
            threads.machine.suspend(threads.lanes, instruction.index)
        barriers.complete()
        return MOVED

    return program.converged(step, instruction)


def _check(threads: Threads, at: Array, wanted: Array, everyone: bool) -> None:
    threads.check(at < BARRIERS, f"a block has {BARRIERS} barriers")
    if not everyone:
        threads.check((wanted > 0) & (wanted % WARP == 0), "a barrier expects whole warps")
    threads.check(wanted <= threads.machine.thread_count, "a barrier expects more threads than the block has")
