"""The sizes that a recurrence may have: a step takes one position, and has the whole of what it reduces, so that only
few elements are left along other axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod

from treadle.compiler.cost.choice.candidate import LANE_WARPS, Candidate, covering
from treadle.compiler.cost.reading.sketch import Sketch

PIECES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Of each of two axes that groups cut; of all others they take one index."""

HELD_WARPS = (2, 4, 8, 16)
"""Along an axis that groups hold whole: a matrix that meets a state at every position stays in the registers of all of
them."""

MOST_WARPS = 16
"""Of a block."""


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
            for warps in _warps(tiles, {axis: sizes[axis] for axis in sketch.whole}):
                yield Candidate({**tiles, **stream}, warps, values)


def _warps(tiles: Mapping[str, int], whole: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Along an axis of the groups; along one or two that groups hold whole, and one of the groups beside."""
    for axis, size in tiles.items():
        yield from ({axis: warps} for warps in LANE_WARPS if warps <= size)
    if not tiles:
        yield {}
    beside = [{}, *({axis: warps} for axis, size in tiles.items() for warps in LANE_WARPS[1:] if warps <= size)]
    for held in _along_whole(whole):
        for more in beside:
            if prod((*held.values(), *more.values())) <= MOST_WARPS:
                yield {**more, **held}


def _along_whole(whole: Mapping[str, int]) -> Iterator[dict[str, int]]:
    single = [{axis: warps} for axis, size in whole.items() for warps in HELD_WARPS if warps <= size]
    yield from single
    for one, other in combinations(single, 2):
        if one.keys() != other.keys():
            yield {**one, **other}


def _pieces(axes: tuple[str, ...], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if not axes:
        yield {}
        return
    axis, *others = axes
    for size in (size for size in PIECES if size <= covering(sizes[axis])):
        for rest in _pieces(tuple(others), sizes):
            yield {axis: size, **rest}
