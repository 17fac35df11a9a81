"""Tensor copies between global and shared memory: cp.async.bulk.tensor (PTX ISA 9.7.9.27.1.2), prefetch.tensormap.

A load waits among what is done later; only then does it read global memory, write shared memory and count its bytes. A
store reads shared memory when its thread waits for it (`bulk_groups`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.hopper.bulk_groups import BulkGroups
from treadle.runtime.ptx.hopper.global_rows import read_rows, write_rows
from treadle.runtime.ptx.hopper.mbarrier_objects import BYTES as BARRIER_BYTES
from treadle.runtime.ptx.hopper.mbarrier_states import Mbarriers
from treadle.runtime.ptx.hopper.tensor_boxes import UNIT, load, store, units
from treadle.runtime.ptx.hopper.tensor_map_images import ALIGNMENT, BYTES, MapImage, decode
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.topics import blamed, topic
from treadle.runtime.ptx.machine.windows import GENERIC, SYSTEM_BYTES
from treadle.runtime.ptx.text.instruction import Address, Instruction, Modifiers, Operand
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine
    from treadle.runtime.ptx.machine.program import Program

Boxes = Callable[[Threads], list[tuple[MapImage, list[int]]]]
"""Of each thread: the map and the coordinates that it gives."""


@meaning("cp", "async", "bulk", "tensor")
def tensor_copy(instruction: Instruction, program: Program) -> Step:
    modifiers = Modifiers(instruction, taken=4)
    rank = int(modifiers.choice("1d", "2d", "3d", "4d", "5d")[0])
    if modifiers.choice("shared::cluster", "global") == "global":
        return _store(instruction, program, modifiers, rank)
    return _load(instruction, program, modifiers, rank)


def _load(instruction: Instruction, program: Program, modifiers: Modifiers, rank: int) -> Step:
    modifiers.require("global")
    modifiers.flag("tile")
    modifiers.require("mbarrier::complete_tx::bytes")
    is_multicast = modifiers.flag("multicast::cluster")
    modifiers.end()
    instruction.expect(4 if is_multicast else 3)
    machine = program.machine
    target, tensor, barrier, *rest = instruction.operands
    to, on = program.address(target, instruction), program.address(barrier, instruction)
    boxes = _boxes(tensor, rank, instruction, program)
    mask = program.reader(rest[0], "u16", instruction) if is_multicast else None

    def step(threads: Threads) -> None:
        given = boxes(threads)
        places = machine.shared.locate(threads, to(threads), 1, 128, cluster=True)
        signals = machine.shared.locate(threads, on(threads), BARRIER_BYTES, BARRIER_BYTES, cluster=True)
        stride = machine.shared.stride
        threads.check(places // stride == signals // stride, "a tensor copy whose barrier is in another block")
        masks = threads.full(mask(threads)) if mask is not None else None
        for i, (image, at) in enumerate(given):
            lane = int(threads.lanes[i])
            slots = _blocks(machine, lane, int(places[i]) // stride, None if masks is None else int(masks[i]))
            within = int(places[i]) % stride, int(signals[i]) % stride
            arrival = _arrival(machine, instruction, image, at, lane, slots, *within)
            topic(machine, Mbarriers).later([slot * stride + within[1] for slot in slots], arrival)

    return step


def _blocks(machine: Machine, lane: int, slot: int, mask: int | None) -> list[int]:
    """The blocks of the batch that a load writes to."""
    if mask is None:
        return [slot]
    if not 0 < mask < 1 << machine.cluster:
        raise PtxFault(f"a multicast to blocks {mask:#x} of a cluster of {machine.cluster}", lane)
    first = slot - slot % machine.cluster
    return [first + rank for rank in range(machine.cluster) if mask >> rank & 1]


def _arrival(
    machine: Machine,
    instruction: Instruction,
    image: MapImage,
    at: list[int],
    lane: int,
    slots: list[int],
    place: int,
    signal: int,
) -> Callable[[], None]:
    """What happens when a load is done: the box is there, in each block at the same place, and its bytes count."""

    def arrive() -> None:
        with blamed(machine, instruction, lane):
            data = load(image, at, lambda rows, nbytes: read_rows(machine.memory, rows, nbytes))
            for slot in slots:
                shared, base = window(machine, slot), slot * machine.shared.stride
                shared.reshape(-1, UNIT)[_units(machine, image, place)] = data.reshape(-1, UNIT)
                topic(machine, Mbarriers).complete(base + signal, image.box_bytes)

    return arrive


def _store(instruction: Instruction, program: Program, modifiers: Modifiers, rank: int) -> Step:
    modifiers.require("shared::cta")
    modifiers.flag("tile")
    modifiers.require("bulk_group")
    modifiers.end()
    instruction.expect(2)
    machine = program.machine
    tensor, source = instruction.operands
    of = program.address(source, instruction)
    boxes = _boxes(tensor, rank, instruction, program)

    def step(threads: Threads) -> None:
        places, groups = machine.shared.locate(threads, of(threads), 1, 128), topic(machine, BulkGroups)
        for lane, place, (image, at) in zip(threads.lanes, places, boxes(threads), strict=True):
            slot, offset = divmod(int(place), machine.shared.stride)
            groups.add(int(lane), _departure(machine, instruction, image, at, int(lane), slot, offset))

    return step


def _departure(
    machine: Machine, instruction: Instruction, image: MapImage, at: list[int], lane: int, slot: int, place: int
) -> Callable[[], None]:
    """What happens when a store is waited for."""

    def depart() -> None:
        with blamed(machine, instruction, lane):
            data = window(machine, slot).reshape(-1, UNIT)[_units(machine, image, place)]
            rows = data.reshape(-1, image.row_bytes)
            store(image, at, rows, lambda places, bytes: write_rows(machine.memory, places, bytes))

    return depart


def _units(machine: Machine, image: MapImage, place: int) -> NDArray[np.int64]:
    found = units(image, place)
    if place + image.box_bytes > SYSTEM_BYTES + machine.shared.nbytes:
        raise PtxFault(f"a box of {image.box_bytes} bytes that ends past its block's shared memory")
    return found


def window(machine: Machine, slot: int) -> NDArray[np.uint8]:
    """The shared memory of a block of the batch, from the beginning of its window on."""
    return machine.blocks[slot].shared


def _boxes(operand: Operand, rank: int, instruction: Instruction, program: Program) -> Boxes:
    if not isinstance(operand, Address) or operand.coordinates is None or len(operand.coordinates.elements) != rank:
        instruction.unknown(f"expected a tensor map and {rank} coordinates")
    address = program.address(Address(operand.base, operand.offset), instruction)
    coordinates = [program.reader(each, "s32", instruction) for each in operand.coordinates.elements]

    def boxes(threads: Threads) -> list[tuple[MapImage, list[int]]]:
        at = [threads.full(each(threads)).tolist() for each in coordinates]
        maps = map_images(program.machine, threads, address(threads))
        return [(image, [axis[i] for axis in at]) for i, image in enumerate(maps)]

    return boxes


@meaning("prefetch", "tensormap")
def prefetch_tensormap(instruction: Instruction, program: Program) -> Step:
    """9.7.9.16: nothing but a hint; that a tensor map is there is checked."""
    Modifiers(instruction, taken=2).end()
    instruction.expect(1)
    address = program.address(instruction.operands[0], instruction)

    def step(threads: Threads) -> None:
        map_images(program.machine, threads, address(threads))

    return step


def map_images(machine: Machine, threads: Threads, addresses: Array) -> list[MapImage]:
    """The tensor maps at generic addresses, which are known among the parameters (PtxFault)."""
    offsets = threads.full(addresses).astype(np.int64) - GENERIC["param"]
    inside = (offsets >= 0) & (offsets + BYTES <= machine.parameters.bytes.size)
    threads.check(inside, "a tensor map that is no parameter of the kernel")
    threads.check(offsets % ALIGNMENT == 0, f"a tensor map at no multiple of {ALIGNMENT} bytes")
    found = {
        offset: decode(machine.parameters.bytes[offset : offset + BYTES].tobytes()) for offset in set(offsets.tolist())
    }
    return [found[offset] for offset in offsets.tolist()]
