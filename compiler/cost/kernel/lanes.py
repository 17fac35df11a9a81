"""How the arrays of a kernel without products lie in the lanes: as `lowering.layouts.blocked` spreads them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from treadle.compiler.amounts import Amount, ceil_div, ceil_power, choice, floor_power, is_any, least
from treadle.compiler.machines.machine import WARP


@dataclass(frozen=True)
class Lanes:
    """The elements that a lane has along each axis, of all arrays alike."""

    axes: tuple[str, ...]
    """In the order in which lanes are given to them, the last first, but for the main one."""
    buffers: tuple[tuple[tuple[str, ...], bool], ...]
    """The axes of each array in device memory, and whether it is a result."""
    vector: int
    singly: frozenset[str]
    """The axes of which a lane has no neighbours."""
    tiles: Mapping[str, Amount]
    warps: Mapping[str, Amount]

    def elements(self, axes: tuple[str, ...]) -> Amount:
        return prod(self._along[axis] for axis in axes)

    def are_neighbours(self, axes: tuple[str, ...]) -> Amount:
        """Whether a lane has several neighbours of each row of an array."""
        if not axes:
            return True
        last = axes[-1]
        if last in self.singly:
            return False
        return (self._main == self.axes.index(last)) & (floor_power(self.tiles[last]) > 1) & (self.vector > 1)

    def exchanges(self, over: Iterable[str]) -> Amount:
        """How often lanes exchange what they have reduced along some axes, until each has all of it."""
        found: Amount = 0
        for axis in over:
            sharing = ceil_div(self.tiles[axis], self._along[axis] * self.warps.get(axis, 1))
            found = found + sum((sharing > 1 << i) * 1 for i in range(WARP.bit_length() - 1))
        return found

    @cached_property
    def _main(self) -> Amount:
        """Which axis threads are neighbours along: the last with several elements of the largest array."""
        largest: Amount = -1
        main: Amount = len(self.axes) - 1
        for axes, is_result in self.buffers:
            rank = 2 * prod(self.tiles[axis] for axis in axes) + is_result
            last: Amount = -1
            for axis in axes:
                last = choice(self.tiles[axis] != 1, self.axes.index(axis), last) if axis in self.axes else last
            larger = (rank > largest) & (last >= 0)
            largest, main = choice(larger, rank, largest), choice(larger, last, main)
        return main

    @cached_property
    def _along(self) -> dict[str, Amount]:
        found: dict[str, Amount] = dict.fromkeys(self.axes, 1)
        for index, axis in enumerate(self.axes):
            is_main = self._main == index
            if is_any(is_main):
                for other, count in self._where_main_is(axis):
                    found[other] = choice(is_main, count, found[other])
        return found

    def _where_main_is(self, main: str) -> Iterator[tuple[str, Amount]]:
        lanes: Amount = WARP
        for axis in (main, *(axis for axis in reversed(self.axes) if axis != main)):
            has_neighbours = axis == main and axis not in self.singly
            vector = least(self.vector, floor_power(self.tiles[axis])) if has_neighbours else 1
            # With one axis, warps do not change how many lanes lie along it.
            warps = self.warps.get(axis, 1)
            share = vector * choice(self._has_one_axis, 1, warps)
            along = least(lanes, ceil_power(ceil_div(self.tiles[axis], share)))
            lanes = lanes // along
            yield axis, vector * ceil_div(self.tiles[axis], vector * along * warps)

    @cached_property
    def _has_one_axis(self) -> Amount:
        return sum(self.tiles[axis] != 1 for axis in self.axes) <= 1
