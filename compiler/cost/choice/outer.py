"""The sizes of blocks whose rows meet all their columns, as those of products do, with lanes along what they save: each
element that a block copies is met by as many as the tile has along the axes that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product

from treadle.compiler.cost.choice.candidate import LANE_WARPS, Candidate, covering
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.machines.machine import WARP

COLUMNS = (32, 64, 128, 256)
"""Of a block, along the axis of the lanes."""
ROWS = (4, 8, 16, 32, 64, 128)
"""That each of them meets."""
STEPS = (4, 8, 16, 32)
"""Of the stream: so many elements of each row are copied at a time."""
FEWEST, MOST = 8, 128
"""Sums of a thread: with fewer, it reads as many elements as it makes; more have no room."""


def of_outer(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], vector: int) -> Iterator[Candidate]:
    """Nothing where no rows meet columns along axes that groups cut."""
    free = [axis for axis in sketch.group if axis in sketch.outer]
    if sketch.stream is None:
        return
    steps = _pieces(STEPS, sketch.stream, sizes, fixed)
    for lane, row in permutations(free, 2):
        if not any(axes[-1:] == (lane,) for axes, _ in sketch.arrays):
            continue
        tiles = product(_pieces(COLUMNS, lane, sizes, fixed), _pieces(ROWS, row, sizes, fixed), steps, LANE_WARPS)
        for columns, rows, step, warps in tiles:
            if FEWEST <= columns * rows // (WARP * warps) <= MOST:
                cut = {lane: columns, row: rows, sketch.stream: step}
                along = {row: rows, lane: columns // vector}
                yield from (Candidate(cut, {axis: warps}, vector) for axis, most in along.items() if warps <= most)


def _pieces(allowed: tuple[int, ...], axis: str, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[int, ...]:
    """None much larger than the axis."""
    if axis in fixed:
        return (fixed[axis],)
    return tuple(size for size in allowed if size <= max(allowed[0], covering(sizes[axis])))
