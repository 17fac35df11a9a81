"""How much of a stream its groups are fed on average, for many sizes of pieces at once.

To count it exactly, each group has to be asked (`fed`). The part that is fed changes slowly with the sizes of the
pieces, so here some of the groups are asked, for some sizes, and between those it is interpolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import cast

import numpy as np

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.reading.sketch import Sketch

SIZES = 3
"""Asked for along each axis, where between them is interpolated."""
GROUPS, MANY_GROUPS = 8, 64
"""Asked along each axis: about, and well enough to rank by."""


def part_fed(sketch: Sketch, tiles: Mapping[str, Amount], sizes: Mapping[str, int]) -> Amount:
    """Between 0 and 1, for each candidate."""
    if sketch.conditional is None or sketch.stream is None:
        return 1.0
    axes = [axis for axis in (*sketch.group, sketch.stream) if len(np.unique(tiles[axis])) > 1]
    grid = [_some(np.unique(tiles[axis])) for axis in axes]
    first = {axis: int(np.ravel(many)[0]) for axis, many in tiles.items()}
    asked = [
        sketch.part_fed({**first, **dict(zip(axes, map(int, point), strict=True))}, sizes, GROUPS)[0]
        for point in product(*grid)
    ]
    table = np.array(asked).reshape([len(each) for each in grid])
    return _interpolated(grid, table, [tiles[axis] for axis in axes])


def parts_fed(
    sketch: Sketch, tiles: Mapping[str, Amount], sizes: Mapping[str, int], wanted: Sequence[int]
) -> tuple[Amount, Amount]:
    """Of the candidates at these places, without interpolation, on average and of the group that is fed most: each
    combination of sizes is asked for once."""
    one = {axis: int(np.ravel(many)[0]) for axis, many in tiles.items()}
    axes = sketch.limiting(one)
    columns = [np.broadcast_to(tiles[axis], tiles[axes[-1]].shape)[wanted].astype(int).tolist() for axis in axes]
    points = list(zip(*columns, strict=True))
    known = {
        point: sketch.part_fed({**one, **dict(zip(axes, point, strict=True))}, sizes, MANY_GROUPS)
        for point in dict.fromkeys(points)
    }
    mean, most = zip(*(known[point] for point in points), strict=True)
    return np.array(mean), np.array(most)


def _some(values: Amount) -> Amount:
    """The ends and what lies between, in equal ratios."""
    first, last = float(values[0]), float(values[-1])
    wanted = [first * (last / first) ** (i / (SIZES - 1)) for i in range(SIZES)]
    return np.unique([int(min(values, key=lambda value: abs(value - each))) for each in wanted])


def _interpolated(grid: Sequence[Amount], table: Amount, at: Sequence[Amount]) -> Amount:
    """Linear along each axis."""
    if not grid:
        return float(table)
    knots, rest = grid[0], [_interpolated(grid[1:], each, at[1:]) for each in table]
    total: Amount = 0.0
    for i in range(len(knots)):
        # The hat function of the knot: 1 there, 0 from its neighbours on.
        total = total + cast(Amount, np.interp(at[0], knots, np.eye(len(knots))[i])) * rest[i]
    return total
