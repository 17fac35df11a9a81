"""How much of a tile one warp and one lane have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from treadle.compiler.amounts import Amount, ceil_div, choice, most
from treadle.compiler.machines.machine import WARP

FRAGMENT_ROWS = 8
"""Lanes of a fragment that have different rows; the others of the warp lie along its columns."""


@dataclass(frozen=True)
class Spread:
    """The pieces of a kernel's axes, and the warps along them."""

    tiles: Mapping[str, Amount]
    warps: Mapping[str, Amount]
    row: str | None
    """The axis of the rows of products, None where there are none."""
    has_products: bool
    rereads: Amount = False
    """Whether left operands that all steps share are read again in each."""
    subloops: Mapping[str, int] = field(default_factory=dict[str, int])
    """The pieces in which contractions walk an axis, where the schedule asks for smaller ones than a group holds."""

    def turns_of(self, over: Iterable[str]) -> Amount:
        """Turns of the loop in which a contraction over these axes walks its operands; 1 if there is none."""
        return prod(ceil_div(self.tiles[axis], self.subloops[axis]) for axis in over if axis in self.subloops)

    def of_warp(self, axis: str) -> Amount:
        """The part of an axis that one warp has."""
        return ceil_div(self.tiles[axis], self.warps.get(axis, 1))

    def of_lane(self, axes: tuple[str, ...]) -> Amount:
        """Elements that one lane has of an array with these axes."""
        if not self.has_products:
            return prod(self.tiles[axis] for axis in axes) / (WARP * prod(self.warps.values()))
        elements = prod(self.of_warp(axis) for axis in axes)
        return most(1.0, elements / self._lanes(axes))

    def _lanes(self, axes: tuple[str, ...]) -> Amount:
        """Lanes that share the elements of such an array."""
        rows = FRAGMENT_ROWS if self.row in axes else 1
        columns = prod(self.tiles[axis] for axis in axes if axis != self.row)
        return rows * choice(columns > 1, WARP // FRAGMENT_ROWS, 1)
