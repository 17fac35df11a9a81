"""Copies by lanes to tiles in boxes, of rows that begin anywhere: dealt so that no sector is asked for twice.

The lines of a tile (rows, or columns of a transposed array, if those are what lies together) that are as many apart as
a sector has elements begin equally far into a sector. So many lines are a *unit*. A thread finds a place in the first
unit, and keeps it: from unit to unit it only adds. In a unit, slots of `width` neighbours are dealt 32 to a request:

- Each line has slots of its own, whole sectors of them, and is turned by how far into a sector it begins: the first
  slots hold what is in its last, partly used sector. Then each sector of a line belongs to one request.
- Lines that nearly touch, so that a sector holds parts of two, are one long line through all units. It is not turned,
  but moved: a slot before the first line of a unit belongs to the last of the unit before.

The primitive `box_order` computes the same on the device. Lines that overlap, or follow each other backwards, may ask
for a sector again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Attribute

from treadle.compiler.layouts.run_order import runs_of
from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.runs import SWIZZLED_ROWS
from treadle.dialects.cuda.tiles import WORD, boxes_of, format_bytes, is_boxed
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.place import axes_of_forms, entries_in


@dataclass(frozen=True)
class BoxOrder:
    """The requests for a tile of so many rows and columns, of which the array has the first `inside`. Strides are in
    elements; `start` is the address of its first element, in elements, of which only the place in its sector counts."""

    rows: int
    columns: int
    inside: tuple[int, int]
    row_stride: int
    column_stride: int
    start: int
    width: int
    element_bytes: int

    @property
    def is_turned(self) -> bool:
        """Whether the lines are columns."""
        return self.row_stride == 1 != self.column_stride

    def requests(self) -> Iterator[tuple[int, ...]]:
        """For each request, where its lanes' vectors begin, in elements from the tile's first."""
        stride, apart = self.row_stride, self.column_stride
        if self.is_turned:
            stride, apart = apart, stride
        for places in self._places(stride, apart == 1):
            if places:
                yield tuple(line * stride + place * apart for line, place in places)

    def _places(self, stride: int, together: bool) -> Iterator[list[tuple[int, int]]]:
        """Lines, and places in them, of the lanes of each request."""
        (lines, length), (has_lines, has) = (self.rows, self.columns), self.inside
        if self.is_turned:
            lines, length, has_lines, has = length, lines, has, has_lines
        sector = SECTOR_BYTES // self.element_bytes
        unit, before = max(sector, SWIZZLED_ROWS), self.start % sector if together else 0
        is_near = together and 0 < has <= stride < has + sector
        pitch = stride if is_near else -(-length // sector) * sector
        for first in range(0, unit * pitch, LANES * self.width):
            every = range(first, min(first + LANES * self.width, unit * pitch), self.width)
            own = [divmod(slot - (before if is_near else 0), pitch) for slot in every]
            if together and not is_near:
                own = [(line, (place - (before + line * stride) % sector) % pitch) for line, place in own]
            for begin in range(0, lines + 1, unit):
                found = [(line + begin, place) for line, place in own if place < min(has, length)]
                yield [(line, place) for line, place in found if 0 <= line < min(lines, has_lines)]


def box_order(
    tile: Attribute, inside: Mapping[str, int], strides: Mapping[str, int], start: int, width: int
) -> BoxOrder:
    """The order for a tile of which the array has so many elements along each axis."""
    boxes, (row, column) = boxes_of(tile), row_and_column(tile)
    others = all(inside[axis] > 0 for axis in axes_of(tile) if axis not in (row, column))
    counts = max(inside[row], 0) if others else 0, max(inside[column], 0)
    columns, bytes = boxes.span.data * boxes.count, format_bytes(tile)
    return BoxOrder(boxes.rows, columns, counts, strides[row], strides[column], start, width, bytes)


def row_and_column(tile: Attribute) -> tuple[str, str]:
    """The axes of a tile in boxes: down its rows, and along them."""
    axes, boxes = axes_of(tile), boxes_of(tile)
    column = axes[boxes.row_axis]
    return next(axis for axis, size in sizes_of(tile).items() if size > 1 and axis != column), column


def is_ordered(op: GlobalAccess) -> bool:
    """Whether an access is a copy by lanes that is dealt so: to boxes, of rows that follow each other and are all
    in the array, of formats that lanes store where they are aligned to less than they copy."""
    return (
        isinstance(op, cuda.CopyOp)
        and is_boxed(op.tile.type)
        and not op.is_outward
        and format_bytes(op.tile.type) < WORD
        and (_is_one_run(op) if op.place is not None else not op.divisors and not op.padding)
    )


def _is_one_run(op: cuda.CopyOp) -> bool:
    """Whether data say where a tile lies, and nothing about its rows."""
    runs = runs_of(op, op.tile.type)
    entries = entries_in((*op.forms.values(), *(form for form, _ in op.padding)))
    asked = {axis for entry in entries for axis in entry.axes} | {*axes_of_forms(form for form, _ in op.padding)}
    return runs is not None and runs.total == 1 and not asked & {runs.row, runs.column}
