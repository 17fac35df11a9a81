"""Barriers of a block (PTX ISA, section "bar{.cta}, barrier{.cta}")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.runtime.ptx.instruction import Immediate, Instruction
from treadle.runtime.ptx.meanings import MOVED, Step, meaning
from treadle.runtime.ptx.program import Program
from treadle.runtime.ptx.threads import WARP, Threads
from treadle.runtime.ptx.types import Array

BARRIERS = 16


@dataclass
class Barriers:
    """Of each block of the batch, 16 barriers: the threads that have come, and how many are expected."""

    arrived: Array
    expected: Array
    waiting: Array
    """By threads, the barrier that each waits at; -1."""


def _barriers(threads: Threads) -> Barriers:
    machine = threads.machine
    kept = machine.kept.get("barriers")
    if kept is None:
        counts = np.zeros((machine.slots, BARRIERS), np.int64)
        kept = machine.kept["barriers"] = Barriers(counts, counts.copy(), np.full(machine.size, -1))
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
    given = instruction.operands[1:] or (Immediate(str(program.machine.size // program.machine.slots)),)
    count = program.reader(given[0], "u32", instruction)

    def step(threads: Threads) -> int | None:
        at = threads.full(number(threads)).astype(np.int64)
        wanted = threads.full(count(threads)).astype(np.int64)
        _check(threads, at, wanted)
        barriers = _barriers(threads)
        slots = threads.machine.slot[threads.select]
        _arrive(threads, barriers, slots, at, wanted)
        if not arrives:
            barriers.waiting[threads.lanes] = at
            threads.machine.suspend(threads.lanes, instruction.index)
        else:
            threads.go(None, instruction.index + 1)
        _complete(threads, barriers)
        return MOVED

    return program.converged(step, instruction)


def _check(threads: Threads, at: Array, wanted: Array) -> None:
    most = threads.machine.size // threads.machine.slots
    threads.check(at < BARRIERS, f"a block has {BARRIERS} barriers")
    threads.check((wanted > 0) & (wanted % WARP == 0) | (wanted == most), "a barrier expects whole warps")
    threads.check(wanted <= most, "a barrier expects more threads than the block has")


def _arrive(threads: Threads, barriers: Barriers, slots: Array, at: Array, wanted: Array) -> None:
    """Counts the threads in; all that come to a barrier expect the same number."""
    known = barriers.expected[slots, at]
    threads.check((known == 0) | (known == wanted), "threads at one barrier expect different numbers of threads")
    barriers.expected[slots, at] = wanted
    threads.check(barriers.expected[slots, at] == wanted, "threads at one barrier expect different numbers of threads")
    np.add.at(barriers.arrived, (slots, at), 1)
    beyond = barriers.arrived[slots, at] > wanted
    threads.check(~beyond, "more threads come to a barrier than it expects")


def _complete(threads: Threads, barriers: Barriers) -> None:
    """Barriers to which all have come let go those that wait, and begin anew."""
    done = (barriers.expected > 0) & (barriers.arrived == barriers.expected)
    if not done.any():
        return
    machine = threads.machine
    free = np.flatnonzero((barriers.waiting >= 0) & done[machine.slot, np.maximum(barriers.waiting, 0)])
    barriers.waiting[free] = -1
    barriers.arrived[done] = barriers.expected[done] = 0
    machine.release(free)
