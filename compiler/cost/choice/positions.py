"""The sizes that a recurrence may have: a step takes one position, and has the whole of what it reduces, so that only
few elements are left along other axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from treadle.compiler.cost.choice.candidate import LANE_WARPS, Candidate, covering
from treadle.compiler.cost.reading.sketch import Sketch

PIECES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Of each of two axes that groups cut; of all others they take one index."""


def of_positions(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], most: int) -> Iterator[Candidate]:
    """Any two axes of the groups in pieces, with warps along one of these; a lane moves `most` bytes at once."""
    vector = most // min((width for _, width in sketch.arrays), default=4)
    stream = {} if sketch.stream is None else {sketch.stream: 1}
    given = {axis: size for axis, size in fixed.items() if axis in sketch.group}
    free = [axis for axis in sketch.group if axis not in given]
    pairs = list(combinations(free, 2)) or [tuple(free)]
    found: set[tuple[tuple[str, int], ...]] = set()
    for pair in pairs:
        for cut in _pieces(pair, sizes):
            tiles = dict.fromkeys(sketch.group, 1) | given | cut
            if (key := tuple(tiles.items())) in found:
                continue
            found.add(key)
            lane = next((axis for axis in reversed(sketch.group) if tiles[axis] > 1), None)
            values = min(vector, 1 if lane is None else tiles[lane])
            for axis, size in tiles.items():
                for warps in LANE_WARPS:
                    if warps <= size:
                        yield Candidate({**tiles, **stream}, {axis: warps}, values)
            if not tiles:
                yield Candidate(stream, {}, values)


def _pieces(axes: tuple[str, ...], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if not axes:
        yield {}
        return
    axis, *others = axes
    for size in (size for size in PIECES if size <= covering(sizes[axis])):
        for rest in _pieces(tuple(others), sizes):
            yield {axis: size, **rest}
