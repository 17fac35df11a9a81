"""Exchanges within a warp (PTX ISA, sections "shfl.sync", "vote.sync" and "bar.warp.sync")."""

from __future__ import annotations

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program, Read
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.text.instruction import Instruction, Pair
from treadle.runtime.ptx.types import Array


def with_members(program: Program, instruction: Instruction, mask: Read, step: Step) -> Step:
    """Executed by the threads of which all have come that their mask names and that have not ended; each is in its own
    mask."""

    def together(threads: Threads) -> int | None:
        machine, wanted = threads.machine, threads.full(mask(threads)).astype(np.int64)
        threads.check(wanted & machine.lane_bit[threads.select] != 0, "a thread executes it that its mask leaves out")
        if threads.are_whole_warps:
            return step(threads)
        ready = wanted & machine.living[threads.warp] & ~threads.present == 0
        return step(threads) if ready.all() else program.split(threads, ready, step, instruction.index)

    return together


@meaning("bar", "warp", "sync")
def synchronise(instruction: Instruction, program: Program) -> Step:
    """bar.warp.sync mask"""
    instruction.expect(1)
    if len(instruction.parts) > 3:
        instruction.unknown("unknown modifier")
    mask = program.reader(instruction.operands[0], "b32", instruction)
    return with_members(program, instruction, mask, lambda threads: None)


@meaning("shfl", "sync")
def shuffle(instruction: Instruction, program: Program) -> Step:
    """shfl.sync.mode.b32 d{|p}, a, b, c, mask: d is a of the lane that the mode names, within a segment and below a
    bound that c says; p, whether it was within; if not, d is the thread's own a. A lane to read from must execute it,
    too, and be in the mask."""
    modifiers = instruction.modifiers
    modifiers.require("sync")
    mode = modifiers.choice("up", "down", "bfly", "idx")
    modifiers.require("b32")
    modifiers.end()
    instruction.expect(5)
    to, *rest = instruction.operands
    both = (to.first, to.second) if isinstance(to, Pair) else (to,)
    write = program.writer(both[0], "b32", instruction)
    say = program.writer(both[1], "pred", instruction) if len(both) == 2 else None
    a, b, c, mask = (program.reader(each, "b32", instruction) for each in rest)

    def step(threads: Threads) -> None:
        own = threads.machine.thread_index[threads.select] % WARP
        source, within = _source(mode, own, b(threads).astype(np.int64), c(threads).astype(np.int64))
        values = np.zeros(threads.machine.size, np.uint32)
        values[threads.select] = a(threads)
        here = np.zeros(threads.machine.size, bool)
        here[threads.select] = True
        lanes = threads.lanes - own + np.where(within, source, own)
        inside = (
            threads.machine.slot[np.minimum(lanes, threads.machine.size - 1)] == threads.machine.slot[threads.select]
        )
        threads.check(inside & here[np.where(inside, lanes, 0)], "a lane is read from that does not execute it")
        write(threads, values[lanes])
        if say is not None:
            say(threads, threads.full(within))

    return with_members(program, instruction, mask, step)


@meaning("vote", "sync")
def vote(instruction: Instruction, program: Program) -> Step:
    """vote.sync.any.pred d, a, mask: whether a holds for any thread of the mask."""
    modifiers = instruction.modifiers
    for modifier in ("sync", "any", "pred"):
        modifiers.require(modifier)
    modifiers.end()
    instruction.expect(3)
    to, asked, members = instruction.operands
    write, read = program.writer(to, "pred", instruction), program.reader(asked, "pred", instruction)

    def step(threads: Threads) -> None:
        found = np.zeros(threads.machine.warps, bool)
        np.logical_or.at(found, threads.warp, threads.full(read(threads)))
        write(threads, found[threads.warp])

    return with_members(program, instruction, program.reader(members, "b32", instruction), step)


def _source(mode: str, lane: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane to read from and whether it is within bounds, as the ISA computes them."""
    clamp, segment, by = c & 31, (c >> 8) & 31, b & 31
    most = (lane & segment) | (clamp & ~segment)
    least = lane & segment
    match mode:
        case "up":
            source = lane - by
            return source, source >= most
        case "down":
            source = lane + by
        case "bfly":
            source = lane ^ by
        case _:
            source = least | (by & ~segment)
    return source, source <= most
