"""Windows along axes that are reduced together: `x` near `r` and `y` near `c`, or both near one row.

What a stream is fed is a range of one axis. Of windows along two it would be fed whole lines of the inner one, of which
most is masked. In tiles of rows along both, each with all that its windows reach, nothing else is fed: so it is with
neighbours in an image or a video (neighbourhood attention), and with pairs of keys that are both near a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.dialects import func

from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Linear
from treadle.passes.axes.lengths import too_many
from treadle.passes.expressions.conditions import parts_of
from treadle.passes.products.reduced import Reduced, reduced_in

ROWS = (128, 64)
"""Rows of a tile: those that two warpgroups multiply at once, or one. Of fewer, fewer are masked."""


@dataclass(frozen=True)
class Reach:
    """Which positions along an axis count for one along a row: from so many before it to so many after; of an axis
    without a row all do."""

    key: str
    keys: int
    """Positions along the axis."""
    row: str | None = None
    before: int = 0
    after: int = 0

    def near(self, tile: Mapping[str, int]) -> int:
        """How many positions count for some row of a tile."""
        return self.keys if self.row is None else tile[self.row] + self.before + self.after


@dataclass(frozen=True)
class Windows:
    """What is reduced along several axes, of which two at least are in windows, and how many rows of each kind a tile
    has."""

    reduced: Reduced
    reaches: tuple[Reach, ...]
    lengths: Mapping[str, int]
    """Of the axes of rows."""
    tile: Mapping[str, int]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that are reduced."""
        return self.reduced.axes

    @property
    def rows(self) -> tuple[str, ...]:
        """The axes of which tiles are made."""
        return tuple(self.tile)

    @property
    def tile_rows(self) -> int:
        """How many rows a tile has."""
        return prod(self.tile.values())

    @property
    def near(self) -> list[int]:
        """How many positions along each axis count for some row of a tile."""
        return [each.near(self.tile) for each in self.reaches]


def windows_in(function: func.FuncOp, rows: int = ROWS[0]) -> list[Windows]:
    """Those of a function whose rows and axes all have static sizes, in tiles of so many rows."""
    return [found for each in reduced_in(function) if (found := _windows(each, rows)) is not None]


def _windows(each: Reduced, rows: int) -> Windows | None:
    wheres = [op for op in each.steps if isinstance(op, WhereOp)]
    sizes = {axis: size for op in wheres for axis, size in sizes_of(op.result.type).items()}
    parts = [part.form for op in wheres for part in parts_of(op.holds) if isinstance(part, AtLeastZero)]
    others = dict.fromkeys(axis for axis, size in sizes.items() if axis not in each.axes and size > 0)
    reaches = tuple(_reach(parts, others, axis, size) for axis, size in zip(each.axes, each.sizes, strict=True))
    lengths = {reach.row: sizes[reach.row] for reach in reaches if reach.row is not None}
    if sum(reach.row is not None for reach in reaches) < 2 or min(each.sizes) <= 0:
        return None
    found = Windows(each, reaches, lengths, _tile(reaches, lengths, rows))
    return found if too_many(found.near) is None else None


def _reach(parts: Sequence[Linear], rows: Iterable[str], key: str, keys: int) -> Reach:
    for row in rows:
        before = [part.constant for part in parts if part.terms == {key: 1, row: -1}]
        after = [part.constant for part in parts if part.terms == {key: -1, row: 1}]
        if before and after and min(before) + min(after) >= 0:
            return Reach(key, keys, row, min(before), min(after))
    return Reach(key, keys)


def _tile(reaches: Sequence[Reach], lengths: Mapping[str, int], rows: int) -> dict[str, int]:
    """How many rows of each kind a tile has: with which the fewest pairs of a row and what it may reach are made."""
    sides = [1 << power for power in range(rows.bit_length())]
    tiles = [dict(zip(lengths, sizes, strict=True)) for sizes in product(sides, repeat=len(lengths))]

    def made(tile: Mapping[str, int]) -> int:
        whole = prod(-(-lengths[row] // size) * size for row, size in tile.items())
        return whole * prod(each.near(tile) for each in reaches)

    return min((tile for tile in tiles if prod(tile.values()) == rows), key=made)


__all__ = ["ROWS", "Reach", "Windows", "windows_in"]
