"""How much of a stream its groups are fed on average, for many sizes of pieces at once.

To count it exactly, each group has to be asked (`fed`). The part that is fed changes slowly with the sizes of the
pieces, so here some of the groups are asked, for some sizes, and between those it is interpolated."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.sketch import Sketch

ASKED = 3
"""For so many sizes of each axis."""


def part_fed(sketch: Sketch, tiles: Mapping[str, Amount], sizes: Mapping[str, int]) -> Amount:
    """Between 0 and 1, for each candidate."""
    if sketch.conditional is None or sketch.stream is None:
        return 1.0
    axes = [axis for axis in (*sketch.group, sketch.stream) if len(np.unique(tiles[axis])) > 1]
    grid = [_some(np.unique(tiles[axis])) for axis in axes]
    first = {axis: int(np.ravel(many)[0]) for axis, many in tiles.items()}
    asked = [sketch.part_fed({**first, **dict(zip(axes, point, strict=True))}, sizes) for point in product(*grid)]
    table = np.array(asked).reshape([len(each) for each in grid])
    return _interpolated(grid, table, [tiles[axis] for axis in axes])


def _some(values: Amount) -> Amount:
    """The ends and what lies between, in equal ratios."""
    places = np.geomspace(values[0], values[-1], ASKED)
    return np.unique(values[np.searchsorted(values, places - 0.5).clip(0, len(values) - 1)])


def _interpolated(grid: list[Amount], table: Amount, at: list[Amount]) -> Amount:
    """Linear along each axis."""
    if not grid:
        return float(table)
    knots, rest = grid[0], [_interpolated(grid[1:], each, at[1:]) for each in table]
    if len(knots) == 1:
        return rest[0]
    high = np.searchsorted(knots, at[0]).clip(1, len(knots) - 1)
    weight = (at[0] - knots[high - 1]) / (knots[high] - knots[high - 1])
    values = np.array([np.broadcast_to(each, np.shape(at[0])) for each in rest])
    places = np.arange(values.shape[1])
    return (1 - weight) * values[high - 1, places] + weight * values[high, places]
