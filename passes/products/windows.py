"""Windows along two axes that are reduced together: `x` near `r` and `y` near `c`, or both near one row.

What a stream is fed is a range of one axis. Of windows along two it would be fed whole rows of the inner one, of which
most are masked. In tiles of rows along both, each with all that its windows reach, nothing else is fed: so it is with
neighbours in an image (neighbourhood attention), and with pairs of keys that are both near a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.dialects import func

from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Condition, Linear
from treadle.passes.expressions.conditions import parts_of
from treadle.passes.products.reduced import Reduced, reduced_in

ROWS = (128, 64)
"""Rows of a tile: those that two warpgroups multiply at once, or one. Of fewer, fewer are masked."""


@dataclass(frozen=True)
class Reach:
    """Which positions along an axis count for one along a row: from so many before it to so many after."""

    row: str
    key: str
    before: int
    after: int
    rows: int
    """Positions along the row."""
    keys: int
    """Positions along the axis."""

    @property
    def beside(self) -> int:
        """Positions that count for some row of a tile, and are none of its own."""
        return self.before + self.after


@dataclass(frozen=True)
class Windows:
    """What is reduced along two axes, each in windows, and how many rows of each kind a tile has."""

    reduced: Reduced
    reaches: tuple[Reach, Reach]
    tile: Mapping[str, int]

    @property
    def axes(self) -> tuple[str, str]:
        """The two axes."""
        return self.reduced.axes

    @property
    def rows(self) -> tuple[str, ...]:
        """The axes of which tiles are made, one or two."""
        return tuple(self.tile)

    @property
    def tile_rows(self) -> int:
        """How many rows a tile has."""
        return prod(self.tile.values())

    def lengths(self) -> tuple[int, int]:
        """How many positions along each axis a tile reaches."""
        first, second = (self.tile[each.row] + each.beside for each in self.reaches)
        return first, second


def windows_in(function: func.FuncOp, rows: int = ROWS[0]) -> list[Windows]:
    """Those of a function whose rows and axes all have static sizes, in tiles of so many rows."""
    return [found for each in reduced_in(function) if (found := _windows(each, rows)) is not None]


def _windows(each: Reduced, rows: int) -> Windows | None:
    wheres = [op for op in each.steps if isinstance(op, WhereOp)]
    sizes = {axis: size for op in wheres for axis, size in sizes_of(op.result.type).items()}
    parts = [part for op in wheres for part in _parts(op.holds)]
    others = dict.fromkeys(axis for op in wheres for axis in axes_of(op.result.type) if axis not in each.axes)
    first, second = (next(_reaches(parts, others, key, sizes), None) for key in each.axes)
    if first is None or second is None:
        return None
    return Windows(each, (first, second), _tile((first, second), rows))


def _parts(condition: Condition) -> Iterator[Linear]:
    """The comparisons that all must hold."""
    for part in parts_of(condition):
        if isinstance(part, AtLeastZero):
            yield part.form


def _reaches(
    parts: Sequence[Linear], rows: Mapping[str, None], key: str, sizes: Mapping[str, int]
) -> Iterator[Reach]:
    for row in rows:
        before = [part.constant for part in parts if part.terms == {key: 1, row: -1}]
        after = [part.constant for part in parts if part.terms == {key: -1, row: 1}]
        if before and after and min(before) + min(after) >= 0 and sizes[row] > 0 and sizes[key] > 0:
            yield Reach(row, key, min(before), min(after), sizes[row], sizes[key])


def _tile(reaches: tuple[Reach, Reach], rows: int) -> dict[str, int]:
    """How many rows of each kind a tile has: with which the fewest pairs of a row and what it may reach are made."""
    lengths = {each.row: each.rows for each in reaches}
    sides = [1 << power for power in range(rows.bit_length())]
    tiles = [dict(zip(lengths, sizes, strict=True)) for sizes in product(sides, repeat=len(lengths))]

    def made(tile: Mapping[str, int]) -> int:
        whole = prod(-(-lengths[row] // size) * size for row, size in tile.items())
        return whole * prod(tile[each.row] + each.beside for each in reaches)

    return min((tile for tile in tiles if prod(tile.values()) == rows), key=made)


__all__ = ["ROWS", "Reach", "Windows", "windows_in"]
