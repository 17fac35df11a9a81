"""Tensor copies of rows that lie where data say, as the algebra sees them: each box of a run is a request of its own,
and runs lie apart, so that none asks for a sector of another."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.compiler.layouts.operations import assumed_strides
from treadle.compiler.layouts.sectors import LINE_BYTES, SECTOR_BYTES, Traffic
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import format_bytes
from treadle.dialects.diagram.array import axes_of, sizes_of


def gather_traffic(op: cuda.TensorGatherOp, strides: Mapping[str, int] | None = None, base: int = 0) -> Traffic:
    """The sectors and lines of one execution, all of whose rows are within the array. `strides` of the array in
    elements: unless given, those of a dense one. `base` is the byte address of a run's first element."""
    steps = strides if strides is not None else assumed_strides(op.buffer_type)
    down, bytes, span = steps[axes_of(op.buffer_type)[op.along]], format_bytes(op.buffer_type), op.boxes.span.data
    columns = list(sizes_of(op.tile.type).values())[-1]  # what boxes reach over beyond is no part of the array
    widths = [min(span, columns - first) * bytes for first in range(0, columns, span)]
    boxes = [_sectors(base + box * span * bytes, down * bytes, op.rows, width) for box, width in enumerate(widths)]
    every = set[int]().union(*boxes)
    sectors, lines = sum(map(len, boxes)), sum(len(_lines(box)) for box in boxes)
    moved = op.rows * sum(widths)
    found = (op.boxes.count, moved, sectors, len(every), lines, len(_lines(every)))
    return Traffic(*(op.runs * number for number in found))


def _sectors(start: int, step: int, rows: int, length: int) -> set[int]:
    """Those of the rows of a box, in bytes."""
    firsts = [start + row * step for row in range(rows)]
    ranges = (range(first // SECTOR_BYTES, (first + length - 1) // SECTOR_BYTES + 1) for first in firsts)
    return {sector for each in ranges for sector in each}


def _lines(sectors: set[int]) -> set[int]:
    return {sector * SECTOR_BYTES // LINE_BYTES for sector in sectors}
