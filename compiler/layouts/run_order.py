"""Copies of tiles whose rows lie where data say, and begin anywhere: dealt so that no sector is asked for twice.

Rows that follow each other in the array, whatever the data, are a *run*: the positions of a page, the rows of an
expert, one row of a table. Each run has as many slots of `width` neighbours, whole sectors of them; slots go 32 to a
request. Where a run begins in its first sector is known once its entries are. From there on it is a matrix:

- Each line (a row, or a column of a run, if columns are what lies together) has whole sectors of slots, and is turned
  by how far into a sector it begins: the first slots hold what is in its last, partly used sector.
- Lines that nearly touch, so that a sector holds parts of two, are one line, from the sector on in which the run
  begins.

So each sector of a run belongs to one request. Runs lie apart: whether they share a sector, data decide, and so do
runs that are the same. The primitive `run_order` computes the same on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.ir import Attribute

from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.multiples import is_multiple
from treadle.dialects.cuda.runs import following, moving
from treadle.dialects.cuda.tiles import extents_of
from treadle.dialects.diagram.array import axes_of

CHUNK = LANES
"""Runs that are dealt together: each lane of a warp finds the entries of one."""


@dataclass(frozen=True)
class Runs:
    """The runs of a tile, in its order: one after another along its row axis, and along each axis outside of that."""

    outer: Mapping[str, int]
    """The axes outside, and the elements of the tile along each."""
    row: str
    """The axis along which a run has several rows; empty if the tile has one row."""
    count: int
    """Runs along the row axis."""
    rows: int
    """Rows of a run."""
    column: str
    columns: int
    down: int | None
    """The axis of the array along which rows of a run follow each other; None if it has one."""
    along: int
    """The axis of the array along which columns do."""

    @property
    def total(self) -> int:
        return prod(self.outer.values()) * self.count


def runs_of(op: GlobalAccess, tile: Attribute) -> Runs | None:
    """The runs of a tile whose rows lie where data say; None if those of a row do not follow each other."""
    if op.place is None:
        return None
    forms, offsets = list(op.forms.values()), dict(zip(axes_of(op.piece_type), op.offsets, strict=True))
    wide = {axis: extent for axis, extent in zip(axes_of(tile), extents_of(tile), strict=True) if extent != 1}
    if not wide:
        return None

    def length(axis: str) -> int:
        return following(forms, axis, wide[axis], lambda number: is_multiple(offsets[axis], number))

    *outer, row, column = "", *wide
    along = moving(forms, column)
    if along is None or length(column) != wide[column]:
        return None
    rows = length(row) if row else 1
    down = moving(forms, row) if rows > 1 else None
    others: dict[str, int] = {axis: wide[axis] for axis in outer if axis}
    count = wide[row] // rows if row else 1
    return Runs(others, row, count, rows, column, wide[column], down, along)


@dataclass(frozen=True)
class RunOrder:
    """The requests for runs of so many rows and columns, of which the array has the first `inside` where they are all
    of the tile; of several, all rows. Strides are in elements."""

    rows: int
    columns: int
    inside: tuple[int, int]
    row_stride: int
    column_stride: int
    width: int
    element_bytes: int

    @property
    def is_turned(self) -> bool:
        """Whether the lines are columns."""
        return self.rows > 1 and self.row_stride == 1 != self.column_stride

    def requests(self, runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
        """For each request, where its lanes' vectors begin, in elements: of runs of which each begins somewhere, and
        has so many rows in the array; a chunk after another."""
        for begin in range(0, len(runs), CHUNK):
            chunk = runs[begin : begin + CHUNK]
            slots = range(0, len(chunk) * self._span, self.width)
            for first in range(0, len(slots), LANES):
                found = [divmod(slot, self._span) for slot in slots[first : first + LANES]]
                places = [self._find(slot, *chunk[run]) for run, slot in found]
                if request := tuple(place for place in places if place is not None):
                    yield request

    @property
    def _sector(self) -> int:
        return SECTOR_BYTES // self.element_bytes

    @property
    def _lines(self) -> tuple[int, int, int]:
        """Lines of a run, elements that one has, and the stride from line to line."""
        turned = self.columns, self.inside[0], self.column_stride
        return turned if self.is_turned else (self.rows, self.inside[1], self.row_stride)

    @property
    def _is_together(self) -> bool:
        return self.column_stride == 1 or self.is_turned

    @property
    def _is_near(self) -> bool:
        lines, has, stride = self._lines
        touch = 0 < has <= stride < has + self._sector
        return self._is_together and lines > 1 and touch and stride % self.width == 0

    @property
    def _pitch(self) -> int:
        """Slots from line to line, in elements."""
        length = self.rows if self.is_turned else self.columns
        return self._lines[2] if self._is_near else -(-length // self._sector) * self._sector

    @property
    def _span(self) -> int:
        """Slots of a run, in elements."""
        lines, has, _ = self._lines
        before = self._sector - self.width  # at most
        reach = (lines - 1) * self._pitch + has + before if self._is_near else lines * self._pitch
        return -(-reach // self._sector) * self._sector

    def _before(self, place: int) -> int:
        """How far into a sector a place is, in whole vectors: what the array has begins at one."""
        return place % self._sector // self.width * self.width

    def _find(self, slot: int, start: int, rows: int) -> int | None:
        """What a slot of a run holds; None if nothing that the array has."""
        (lines, has, stride), before = self._lines, self._before(start) if self._is_together else 0
        line, place = divmod(slot - (before if self._is_near else 0), self._pitch)
        if self._is_together and not self._is_near:
            place = (place - before - line * self._before(stride) % self._sector) % self._pitch
        row, column = (place, line) if self.is_turned else (line, place)
        if not 0 <= line < lines or row >= rows or column >= self.inside[1] or place >= has:
            return None
        return start + row * self.row_stride + column * self.column_stride


def in_order(runs: Runs, strides: Mapping[str, int], inside: Mapping[str, int]) -> list[tuple[int, int]]:
    """Where the runs of a tile begin, in elements from its first, as if they lay in order, and how many rows of each
    the array has, of which it has so many elements along each axis."""
    found: list[tuple[int, int]] = []
    for place in product(*(range(extent) for extent in runs.outer.values())):
        has_any = all(at < inside[axis] for axis, at in zip(runs.outer, place, strict=True))
        base = sum(at * strides[axis] for axis, at in zip(runs.outer, place, strict=True))
        for row in range(0, runs.count * runs.rows, runs.rows):
            left = inside[runs.row] - row if runs.row else 1
            found.append((base + row * strides.get(runs.row, 0), min(left, runs.rows) if has_any else 0))
    return found
