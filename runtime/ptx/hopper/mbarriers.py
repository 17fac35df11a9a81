"""Barriers in shared memory: mbarrier (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.hopper.mbarrier_objects import BYTES
from treadle.runtime.ptx.hopper.mbarrier_states import Mbarriers
from treadle.runtime.ptx.instructions.copies import copies_of, finish
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.topics import blamed, of_lane, topic
from treadle.runtime.ptx.text.instruction import SINK, Immediate, Instruction, Modifiers
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program


@meaning("mbarrier", "init")
def init(instruction: Instruction, program: Program) -> Step:
    """9.7.13.15.9."""
    modifiers = Modifiers(instruction, taken=2)
    _space(modifiers, "shared::cta", "shared")
    modifiers.require("b64")
    modifiers.end()
    instruction.expect(2)
    address = program.address(instruction.operands[0], instruction)
    count = program.reader(instruction.operands[1], "u32", instruction)

    def step(threads: Threads) -> None:
        barriers = topic(program.machine, Mbarriers)
        places = program.machine.shared.locate(threads, address(threads), BYTES, BYTES)
        for lane, place, number in zip(threads.lanes, places, threads.full(count(threads)), strict=True):
            with of_lane(lane):
                barriers.init(int(place), int(number))

    return step


@meaning("mbarrier", "arrive")
def arrive(instruction: Instruction, program: Program) -> Step:
    """9.7.13.15.13, also .expect_tx, which counts bytes first. Only without a result."""
    modifiers = Modifiers(instruction, taken=2)
    expects = modifiers.flag("expect_tx")
    if modifiers.choice("release", "relaxed", default=""):
        modifiers.choice("cta", "cluster")
    space = _space(modifiers, "shared::cta", "shared::cluster", "shared")
    modifiers.require("b64")
    modifiers.end()
    instruction.expect(*((3,) if expects else (2, 3)))
    if instruction.operands[0] != SINK:
        instruction.unknown("the state that an arrival gives is not known here")
    address = program.address(instruction.operands[1], instruction)
    given = instruction.operands[2:]
    count = program.reader(given[0] if given else Immediate("1"), "u32", instruction)

    def step(threads: Threads) -> None:
        machine, barriers = program.machine, topic(program.machine, Mbarriers)
        numbers = threads.full(count(threads)).astype(np.int64)
        places = machine.shared.locate(threads, address(threads), BYTES, BYTES, space == "shared::cluster")
        for place in np.unique(places):
            here = places == place
            with of_lane(threads.lanes[here][0]):
                if expects:
                    barriers.expect(int(place), int(numbers[here].sum()))
                barriers.arrive(int(place), int(here.sum() if expects else numbers[here].sum()))

    return step


@meaning("mbarrier", "try_wait", "parity")
def try_wait(instruction: Instruction, program: Program) -> Step:
    """9.7.13.15.16: whether the phase of a parity has completed; a thread sleeps until it has."""
    modifiers = Modifiers(instruction, taken=3)
    if modifiers.choice("acquire", "relaxed", default=""):
        modifiers.choice("cta", "cluster")
    _space(modifiers, "shared::cta", "shared")
    modifiers.require("b64")
    modifiers.end()
    instruction.expect(3)
    done = program.writer(instruction.operands[0], "pred", instruction)
    address = program.address(instruction.operands[1], instruction)
    parity = program.reader(instruction.operands[2], "u32", instruction)

    def step(threads: Threads) -> int | None:
        places = program.machine.shared.locate(threads, address(threads), BYTES, BYTES)
        parities = threads.full(parity(threads))
        threads.check(parities <= 1, "the parity of a phase is 0 or 1")
        ready = _completed(topic(program.machine, Mbarriers), threads, places, parities)
        done(threads, ready)
        return None if ready.all() else threads.sleep_here(~ready, instruction.index)

    return step


def _completed(barriers: Mbarriers, threads: Threads, places: Array, parities: Array) -> Array:
    ready = np.zeros(threads.count, bool)
    for place in np.unique(places):
        here = places == place
        with of_lane(threads.lanes[here][0]):
            phase = barriers.at(int(place)).phase % 2
        ready[here] = parities[here] != phase
        if not ready[here].all():
            barriers.awaited.add(int(place))
    return ready


def _space(modifiers: Modifiers, *names: str) -> str:
    """The memory of the barrier; generic addresses are not known here."""
    return modifiers.choice(*names)


@meaning("cp", "async", "mbarrier", "arrive", "noinc")
def arrive_after_copies(instruction: Instruction, program: Program) -> Step:
    """9.7.13.15.17: one arrival of each thread when all copies that it has begun are done; with .noinc it is one of
    those that the barrier was initialised for. They are done with it, as late as may be."""
    modifiers = Modifiers(instruction, taken=5)
    _space(modifiers, "shared::cta", "shared")
    modifiers.require("b64")
    modifiers.end()
    instruction.expect(1)
    address = program.address(instruction.operands[0], instruction)

    def step(threads: Threads) -> None:
        machine = program.machine
        places = machine.shared.locate(threads, address(threads), BYTES, BYTES)
        before = copies_of(threads).committed + 1

        def arrive() -> None:
            finish(threads, before)
            for lane, place in zip(threads.lanes, places, strict=True):
                with blamed(machine, instruction, lane):
                    topic(machine, Mbarriers).arrive(int(place), 1)

        topic(machine, Mbarriers).later(places.tolist(), arrive)

    return step
