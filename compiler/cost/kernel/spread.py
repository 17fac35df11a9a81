"""How much of a tile one warp and one lane have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from treadle.compiler.amounts import Amount, ceil_div, ceil_power, choice, floor_power, is_any, least, most
from treadle.compiler.cost.kernel.lanes import Lanes
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
    vector: int = 1
    """How many elements of a row a lane takes of what lies in rows over the lanes."""
    results: tuple[tuple[str, ...], ...] = ()
    """The axes of the results of products: what lies in none of them lies in rows."""
    across: str | None = None
    """The axis along which warps lie across those of the rows (`roles.axis_across`)."""
    lanes: Lanes | None = None
    """How many elements a lane has, where they are too few to be shared out evenly."""

    def turns_of(self, over: Iterable[str]) -> Amount:
        """Turns of the loop in which a contraction over these axes walks its operands; 1 if there is none."""
        return prod(ceil_div(self.tiles[axis], self.subloops[axis]) for axis in over if axis in self.subloops)

    def of_warp(self, axis: str) -> Amount:
        """The part of an axis that one warp has."""
        return ceil_div(self.tiles[axis], self.warps.get(axis, 1))

    def sharing(self, over: Iterable[str]) -> Amount:
        """How many warps share what is reduced along some axes, where there are no products."""
        return 1 if self.has_products else prod(self.warps.get(axis, 1) for axis in over)

    def repeats(self, axes: Container[str]) -> Amount:
        """How many warps have the same part of an array, or do the same."""
        return 1 if self.across is None or self.across in axes else self.warps.get(self.across, 1)

    def of_lane(self, axes: tuple[str, ...]) -> Amount:
        """Elements that one lane has of an array with these axes."""
        if self.lanes is not None:
            return self.lanes.elements(tuple(axis for axis in axes if axis in self.lanes.axes))
        if not self.has_products:
            return prod(self.tiles[axis] for axis in axes) / (WARP * prod(self.warps.values()))
        if self.results and not any(set(axes) <= set(result) for result in self.results):
            return self.in_rows(axes, axes)
        elements = prod(self.of_warp(axis) for axis in axes)
        return most(1.0, elements / self._lanes(axes))

    def in_rows(self, axes: tuple[str, ...], kept: tuple[str, ...], reduced: tuple[str, ...] = ()) -> Amount:
        """Elements along the `kept` ones of these axes that a lane has of an array which lies in rows: the last axis
        over neighbouring lanes, the lanes that are left over the others, as `lowering.layouts.blocked` spreads it."""
        axes = tuple(axis for axis in axes if is_any(self.tiles[axis] != 1))
        warps = self._warps_in_rows(axes, reduced)
        lanes: Amount = WARP
        count: Amount = 1
        for axis in reversed(axes):
            vector = least(self.vector, floor_power(self.tiles[axis])) if axis in axes[-1:] else 1
            along = least(lanes, ceil_power(ceil_div(self.tiles[axis], vector * (warps[axis] if len(axes) > 1 else 1))))
            lanes = lanes // along
            if axis in kept:
                count = count * vector * ceil_div(self.tiles[axis], vector * along * warps[axis])
        return count

    def _warps_in_rows(self, axes: tuple[str, ...], reduced: tuple[str, ...]) -> dict[str, Amount]:
        """The warps along each axis: as the schedule says; those along other axes share the first that nothing
        reduces."""
        stated: dict[str, Amount] = {axis: self.warps.get(axis, 1) for axis in axes}
        others = prod(self.warps.values()) // prod(stated.values())
        first = [axis for axis in axes if axis not in reduced][:1]
        return {axis: count * others if axis in first else count for axis, count in stated.items()}

    def _lanes(self, axes: tuple[str, ...]) -> Amount:
        """Lanes that share the elements of such an array."""
        rows = FRAGMENT_ROWS if self.row in axes else 1
        columns = prod(self.tiles[axis] for axis in axes if axis != self.row)
        return rows * choice(columns > 1, WARP // FRAGMENT_ROWS, 1)
