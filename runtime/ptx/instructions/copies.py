"""Asynchronous copies of threads (PTX ISA, section "cp.async").

Until the thread that copies waits for it, what is copied to is undefined: it is 0xFF here, a NaN in all formats. At the
wait the source is read and the destination written, which is the latest that the ISA allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Lanes, Threads
from treadle.runtime.ptx.text.instruction import Immediate, Instruction
from treadle.runtime.ptx.types import Array


@dataclass
class Copy:
    """One copy for each of some threads, under way."""

    lanes: Lanes
    source: Array
    """Where it lies in global memory (`GlobalMemory.locate`)."""
    to: Array
    """Where it lies in shared memory (`SharedMemory.locate`)."""
    taken: Array
    """Bytes that are read; zeros follow."""
    nbytes: int
    group: Array
    """The group of each, by its number among those of its thread."""


@dataclass
class Copies:
    """What the threads of a batch have under way."""

    committed: Array
    """By threads: groups committed so far."""
    copies: list[Copy] = field(default_factory=list[Copy])


def copies_of(threads: Threads) -> Copies:
    machine = threads.machine
    kept = machine.kept.get("copies")
    if kept is None:
        kept = machine.kept["copies"] = Copies(np.zeros(machine.size, np.int64))
    assert isinstance(kept, Copies)
    return kept


@meaning("cp", "async")
def copy(instruction: Instruction, program: Program) -> Step:
    """cp.async.ca/.cg.shared.global [dst], [src], cp-size{, src-size}: so many bytes, of which src-size are read and
    the rest are zeros."""
    modifiers = instruction.modifiers
    modifiers.require("async")
    everywhere = modifiers.choice("ca", "cg") == "ca"
    modifiers.choice("shared", "shared::cta")
    modifiers.require("global")
    modifiers.choice("L2::64B", "L2::128B", "L2::256B", default="")
    modifiers.end()
    instruction.expect(3, 4)
    to, source, size, *rest = instruction.operands
    if not isinstance(size, Immediate) or size.text not in (("4", "8", "16") if everywhere else ("16",)):
        instruction.unknown("a copy takes 4, 8 or 16 bytes, with .cg 16")
    nbytes = int(size.text)
    where, place = program.address(to, instruction), program.address(source, instruction)
    taken = program.reader(rest[0] if rest else size, "u32", instruction)

    def step(threads: Threads) -> None:
        machine, count = threads.machine, threads.full(taken(threads)).astype(np.int64)
        threads.check(count <= nbytes, "a copy reads more bytes than it writes")
        shared = machine.shared.locate(threads, where(threads), nbytes, nbytes)
        source = _sources(threads, threads.full(place(threads)), count, nbytes)
        machine.shared.bytes[shared[:, None] + np.arange(nbytes)] = 0xFF
        copies = copies_of(threads)
        group = copies.committed[threads.lanes]
        copies.copies.append(Copy(threads.lanes, source, shared, count, nbytes, group))

    return step


def _sources(threads: Threads, addresses: Array, taken: Array, nbytes: int) -> Array:
    """Where the bytes lie that are read; anywhere, of a copy that reads none."""
    found = np.zeros(threads.count, np.int64)
    reads = taken > 0
    if reads.any():
        some = threads.subset(reads)
        found[reads] = threads.machine.memory.locate(some, addresses[reads], taken[reads], nbytes, writes=False)
    return found


@meaning("cp", "async", "commit_group")
def commit(instruction: Instruction, program: Program) -> Step:
    """cp.async.commit_group: what the thread has begun since the last one is a group."""
    instruction.expect(0)

    def step(threads: Threads) -> None:
        copies_of(threads).committed[threads.lanes] += 1

    return step


@meaning("cp", "async", "wait_group")
def wait(instruction: Instruction, program: Program) -> Step:
    """cp.async.wait_group n: all groups of the thread but the n last are complete."""
    instruction.expect(1)
    number = instruction.operands[0]
    if not isinstance(number, Immediate):
        instruction.unknown("a wait takes a number")
    pending = int(number.text)

    def step(threads: Threads) -> None:
        finish(threads, copies_of(threads).committed - pending)

    return step


@meaning("cp", "async", "wait_all")
def wait_for_all(instruction: Instruction, program: Program) -> Step:
    """cp.async.wait_all: everything that the thread has begun is complete, committed or not."""
    instruction.expect(0)

    def step(threads: Threads) -> None:
        finish(threads, copies_of(threads).committed + 1)

    return step


def finish(threads: Threads, before: Array) -> None:
    """Copies of these threads in groups before a number, by threads of the batch, are done now."""
    machine, copies = threads.machine, copies_of(threads)
    waits = np.zeros(machine.size, bool)
    waits[threads.select] = True
    left: list[Copy] = []
    for each in copies.copies:
        done = waits[each.lanes] & (each.group < before[each.lanes])
        if done.any():
            _do(threads, each, done)
        if not done.all():
            left.append(_part(each, ~done))
    copies.copies = left


def _part(copy: Copy, which: Array) -> Copy:
    if which.all():
        return copy
    return Copy(
        copy.lanes[which], copy.source[which], copy.to[which], copy.taken[which], copy.nbytes, copy.group[which]
    )


def _do(threads: Threads, copy: Copy, which: Array) -> None:
    machine, part = threads.machine, _part(copy, which)
    places = np.arange(copy.nbytes)
    reads = places < part.taken[:, None]
    source = np.where(reads, part.source[:, None] + places, 0)
    values = np.where(reads, machine.memory.bytes[source], 0) if reads.any() else np.uint8(0)
    machine.shared.bytes[part.to[:, None] + places] = values
