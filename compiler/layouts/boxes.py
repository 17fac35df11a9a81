"""Tensor copies, as the algebra sees them: boxes of an array, each a request of its own, and the sectors they touch.

A copy asks for each sector that holds an element of its box within the array, once. The boxes of one tile may ask for
the same one: a row of a box is at most 128 bytes, and where rows begin in the middle of a sector, so does the next box.
The fewest possible for a tile are its distinct sectors, as for any access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from treadle.compiler.layouts.operations import assumed_strides
from treadle.compiler.layouts.sectors import LINE_BYTES, SECTOR_BYTES, Traffic
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import cut
from treadle.dialects.cuda.tensor_maps import SHARE_ROWS, shared_axis
from treadle.dialects.cuda.tiles import format_bytes, padded_axes
from treadle.dialects.diagram.array import axes_of, sizes_of

TensorCopyOp = cuda.TensorLoadOp | cuda.TensorStoreOp

MAPPED_BYTES = 16
"""What addresses and strides of an array that has a tensor map divide by (PTX ISA 5.5.8)."""


@dataclass(frozen=True)
class Rows:
    """The positions along an axis that are copied: from `begin` on, and before `end`, counted from the tile's first."""

    begin: int
    end: int


def box_traffic(
    op: TensorCopyOp,
    strides: Mapping[str, int] | None = None,
    base: int = 0,
    inside: Mapping[str, Rows] | None = None,
    share: int = 0,
    wanted: Rows | None = None,
) -> Traffic:
    """The sectors and lines of one execution of a tensor copy: a request for each of its boxes, also for one that lies
    outside of the array.

    `strides` of the array in elements: unless given, those of a dense one. `base` is the byte address of the tile's
    first element; elements outside of `inside` along an axis, where the array ends, are not touched, nor is what only
    pads the tile. Of a tile that blocks of a cluster copy together, what the block with this number copies; of one that
    is copied from a position or before one, the rows `wanted`."""
    buffer = op.map_type.buffer
    steps = strides if strides is not None else assumed_strides(buffer)
    sizes = sizes_of(op.tile.type)
    within = {axis: Rows(0, sizes[axis]) for axis in padded_axes(op.tile.type)} | dict(inside or {})
    if isinstance(op, cuda.TensorLoadOp) and op.is_by_rows and wanted is not None:
        along = axes_of(buffer)[shared_axis(op.boxes)]
        array = within.get(along, wanted)
        within[along] = Rows(max(array.begin, wanted.begin), min(array.end, wanted.end))
    bytes = format_bytes(buffer)
    every, count, sectors, lines, moved = set[int](), 0, 0, 0, 0
    for box in _boxes(op, wanted, share):
        touched = set[int]()
        for start, length in _runs(op, box, within, steps):
            first = base + start * bytes
            touched.update(range(first // SECTOR_BYTES, (first + length * bytes - 1) // SECTOR_BYTES + 1))
            moved += length * bytes
        every |= touched
        count += 1
        sectors += len(touched)
        lines += len(_lines(touched))
    return Traffic(count, moved, sectors, len(every), lines, len(_lines(every)))


def mapped_strides(buffer: TensorCopyOp | cuda.TensorGatherOp, alignment: int) -> tuple[dict[str, int], int]:
    """Strides of a mapped array in elements and the byte address of a tile, as traffic is told of rows that are aligned
    to so many bytes, at least to what a tensor map takes."""
    type = buffer.map_type.buffer
    strides, bytes = assumed_strides(type), format_bytes(type)
    if alignment >= SECTOR_BYTES:
        return strides, 0
    longer = {axis: stride + MAPPED_BYTES // bytes if stride > 1 else stride for axis, stride in strides.items()}
    return longer, MAPPED_BYTES


Box = Mapping[str, Sequence[int]]
"""The positions in the tile, along each axis, of what one copy brings."""


def _boxes(op: TensorCopyOp, wanted: Rows | None, share: int) -> Iterator[Box]:
    """The boxes of a tile in their order: what one block loads of it, and what all warpgroups of a block store."""
    for each in (share,) if isinstance(op, cuda.TensorLoadOp) else range(op.shares):
        yield from _boxes_of_share(op, wanted, each)


def _boxes_of_share(op: TensorCopyOp, wanted: Rows | None, share: int) -> Iterator[Box]:
    boxes, sides, axes = op.boxes, op.map_type.shape, axes_of(op.map_type.buffer)
    starts = dict.fromkeys(axes, 0)
    if op.shares > 1:
        along = shared_axis(boxes)
        starts[axes[along]] = share * sides[along]
    row = axes[boxes.row_axis]
    for number, first in product(range(boxes.count), boxes.firsts):
        places = {axis: range(starts[axis], starts[axis] + side) for axis, side in zip(axes, sides, strict=True)}
        places[row] = range(number * boxes.span.data, (number + 1) * boxes.span.data)
        box: dict[str, Sequence[int]] = dict(places)
        if inner := cut(tuple(boxes.order)):
            box[inner[0].axis] = [
                first + sum(mode.stride * digit for mode, digit in zip(inner, digits, strict=True))
                for digits in product(*(range(mode.size) for mode in inner))
            ]
        yield from _by_rows(op, box, wanted)


def _by_rows(op: TensorCopyOp, box: Box, wanted: Rows | None) -> Iterator[Box]:
    """A box that reaches past a position comes by boxes of 8 rows, and around the position of one (the primitives
    `tensor_load_before` and `tensor_load_within`); else as it is."""
    axis = axes_of(op.map_type.buffer)[shared_axis(op.boxes)]
    rows = box[axis]
    is_whole = wanted is None or (wanted.begin <= 0 and len(rows) <= wanted.end)
    if not isinstance(op, cuda.TensorLoadOp) or not op.is_by_rows or wanted is None or is_whole:
        yield box
        return
    row = 0
    while row < len(rows):
        left, early = wanted.end - row, wanted.begin - row
        is_alone = row % SHARE_ROWS != 0 or 0 < left < SHARE_ROWS or 0 < early < SHARE_ROWS
        count = 1 if is_alone else SHARE_ROWS
        yield {**box, axis: rows[row : row + count]}
        row += count


def _runs(
    op: TensorCopyOp, box: Box, inside: Mapping[str, Rows], strides: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Where the rows of a box begin in the array, in elements from the tile's first, and how many elements each has."""
    *outer, last = axes_of(op.map_type.buffer)
    kept = {
        axis: [at for at in box[axis] if axis not in inside or inside[axis].begin <= at < inside[axis].end]
        for axis in (*outer, last)
    }
    if not kept[last]:
        return
    for place in product(*(kept[axis] for axis in outer)):
        start = sum(at * strides[axis] for axis, at in zip(outer, place, strict=True))
        yield start + kept[last][0], len(kept[last])


def _lines(sectors: set[int]) -> set[int]:
    return {sector * SECTOR_BYTES // LINE_BYTES for sector in sectors}
