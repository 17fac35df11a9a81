"""Copies of tiles whose rows begin anywhere: dealt to the threads by whole sectors, so that none is asked for twice.

Slots of `width` neighbours follow each other, 32 to a warp's request, and a request begins where a sector does. A line
(a row of the tile, or a column if columns are what lies together) that begins inside a sector leaves the slots before
it empty. Where lines are so close that a sector holds parts of two, slots run on through the gap between them.

Two of all orders that do so spare wavefronts of shared memory:

- Several lines apart that are whole times 128 bytes long are *turned*: the slots before one hold the end of it, which
  is in its last sector, and a phase has lanes of one line alone, every bank once.
- Columns are dealt four at a time, a sector of each after another. Rows of a tile begin with 16 bytes, so that a sector
  of a column is in the banks of one word of eight rows; what else a request asks for is in another word of them.

All elements of a sector then belong to one request: the sectors that are asked for are the distinct ones, and no way to
deal the elements to lanes and requests has fewer. The primitive `sector_order` computes the same on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.compiler.layouts.tiles import PERIOD_BYTES
from treadle.dialects.cuda.layout import LANES

TOGETHER = 4
"""Columns that are dealt together."""
SWAPPED = (0, 2, 1, 3)
"""Their order where a word has two: a request asks for two of them, which are to be in different words."""

Place = tuple[int, int]
"""Row and column of the first element of a slot."""


@dataclass(frozen=True)
class SectorOrder:
    """The slots of a tile of two axes. Strides are in elements; `start` is the address of its first element, in
    elements, of which only the place in its sector counts."""

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    start: int
    width: int
    element_bytes: int

    @property
    def is_turned(self) -> bool:
        """Whether the lines are columns: those lie together in memory, or nearer to each other than rows do."""
        return self.column_stride != 1 and (self.row_stride == 1 or abs(self.row_stride) < abs(self.column_stride))

    def slots(self) -> list[Place | None]:
        """What each slot moves, the slots of one warp's request after another; None for one that is nobody's."""
        lines, length = (self.columns, self.rows) if self.is_turned else (self.rows, self.columns)
        stride = self.column_stride if self.is_turned else self.row_stride
        found = self._in_lines(lines, length, stride)
        return [place and (place[1], place[0]) for place in found] if self.is_turned else found

    def _in_lines(self, lines: int, length: int, stride: int) -> list[Place | None]:
        """Line and place in the line."""
        sector = SECTOR_BYTES // self.element_bytes
        if lines <= 0 or length <= 0:
            return []
        if 1 not in (self.row_stride, self.column_stride):  # nothing lies together
            return [divmod(at, length) for at in range(lines * length)]
        first, apart = self.start % sector, abs(stride)
        if length <= apart < length + sector and (first or stride % sector):
            last = lines - 1 if stride < 0 else 0  # the line that comes first in memory
            first = (self.start + last * stride) % sector
            end = first + (lines - 1) * apart + length
            every = [divmod(at - first, apart) for at in range(0, end, self.width)]
            every = [(abs(last - line) if 0 <= line < lines else line, at) for line, at in every]
        else:
            turns = lines > 1 and length % (PERIOD_BYTES // self.element_bytes) == 0
            before = (
                sector - self.width if first or stride % sector else 0
            )  # at most, if not every line begins a sector
            span = length if turns else -(-(length + before) // sector) * sector
            every = [(line, at - (first + line * stride) % sector) for line, at in self._dealt(lines, span, sector)]
            every = [(line, at % span) for line, at in every] if turns else every
        return [(line, at) if 0 <= line < lines and 0 <= at < length else None for line, at in every]

    def _dealt(self, lines: int, span: int, sector: int) -> Iterator[Place]:
        """Slots of lines that lie apart: line by line, or of columns by sectors of four of them."""
        if not self.is_turned:
            yield from product(range(lines), range(0, span, self.width))
            return
        for block, first in product(range(0, lines, TOGETHER), range(0, span, sector)):
            for i, at in product(range(TOGETHER), range(sector)):
                yield block + (SWAPPED[i] if self.element_bytes == 2 else i), first + at


def sector_requests(
    counts: Mapping[str, int], strides: Mapping[str, int], start: int, width: int, element_bytes: int
) -> Iterator[tuple[int, ...]]:
    """For each request, where its lanes' vectors begin, in elements from the tile's first: of a tile with so many
    elements along each axis, the slowest first, of which the last two are rows and columns. `start` is the address of
    the tile's first element, in elements."""
    *outer, row, column = ("", "", *counts)[-max(len(counts), 2) :]
    down, along = strides.get(row, 0), strides.get(column, 1)
    for at in product(*(range(counts[axis]) for axis in outer)):
        offset = sum(place * strides[axis] for axis, place in zip(outer, at, strict=True))
        order = SectorOrder(
            counts.get(row, 1), counts.get(column, 1), down, along, start + offset, width, element_bytes
        )
        slots = order.slots()
        for first in range(0, len(slots), LANES):
            request = [place for place in slots[first : first + LANES] if place is not None]
            if request:
                yield tuple(offset + row * down + column * along for row, column in request)
