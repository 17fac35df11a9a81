"""The sizes that a kernel may have: every candidate here can be lowered, if it fits.

Pieces of products are multiples of what the hardware takes at once (rows of a warp, columns and depth of a product),
and nothing else: which of them is best, the model says. Pieces without products are powers of two, so that rows fall
into whole vectors and lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm, prod
from typing import TypeAlias

import numpy as np

from treadle.compiler.amounts import Amount, is_many
from treadle.compiler.cost.choice.candidate import LANE_WARPS, Candidate, covering
from treadle.compiler.cost.choice.outer import of_outer
from treadle.compiler.cost.choice.positions import of_positions
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines.machine import WARP

MOST_WARPS = 16
"""Of a block with products: with more, a thread has fewer registers than a product of 16 x 16 is worth."""
ROW = 16
"""Rows of a tensor-core product."""
SHARING = 4
"""Warps along the rows that a group may have though fewer rows would do: they share the copies, and four are a
warpgroup. What they compute of rows that are not there costs nobody time where copies are waited for."""
ROW_TILES = (1, 2)
"""Row tiles of one warp, which share what they read of the right operand."""
MORE_ROW_TILES = (1, 2, 4)
"""Where warps lie along the columns, too, so that a warp with more rows has fewer columns."""
LEAST_COLUMNS = 16
"""Columns of one warp: `ldmatrix` reads as many of a right operand at once."""
MOST_COLUMNS = 256
MOST_SCORES = 256
"""Of a piece of a stream along which products have results: those have columns."""
MOST_DEPTH = 128
"""Of one that products only sum over: twice as much saves nothing but turns."""
ROW_WARPS = (1, 2, 4, 8, 16, 32)
"""That share a row, which such a block holds whole or is fed."""
CLUSTERS = (2, 4, 8)
"""Blocks of a cluster that share a row."""
BLOCK_WARPS = 32
"""Of any block."""
LANE_STREAMS = (32, 64, 128, 256, 512, 1024)
THREAD_STREAMS = (1, 2, 4, 8, 16, 32)
LINE = 128
"""Bytes of device memory and L2 that move together, and of a row that tensor copies swizzle as one."""
VECTOR = 16
"""Bytes that one lane moves at once."""


Arrays: TypeAlias = tuple[Mapping[str, Amount], Mapping[str, Amount], Amount]
"""Tiles and warps by axis, and vectors, as `Candidates` has them."""


@dataclass(frozen=True)
class Candidates:
    """All of them: arrays with one number of each, by axis; one number for axes that are held whole."""

    tiles: Mapping[str, Amount]
    warps: Mapping[str, Amount]
    vector: Amount
    rereads: Amount

    def __len__(self) -> int:
        return len(self.vector)

    def with_rereads(self) -> Candidates:
        """Each of them twice: keeping left operands, and reading them again."""
        again = np.repeat([False, True], len(self))

        def twice(sizes: Mapping[str, Amount]) -> Mapping[str, Amount]:
            return {axis: np.tile(size, 2) if is_many(size) else size for axis, size in sizes.items()}

        return Candidates(twice(self.tiles), twice(self.warps), np.tile(self.vector, 2), again)

    def at(self, places: Amount) -> Candidates:
        """Those at some places."""

        def of(sizes: Mapping[str, Amount]) -> Mapping[str, Amount]:
            return {axis: size[places] if is_many(size) else size for axis, size in sizes.items()}

        return Candidates(of(self.tiles), of(self.warps), self.vector[places], self.rereads[places])

    def __getitem__(self, i: int) -> Candidate:
        warps = {axis: int(many[i]) for axis, many in self.warps.items()}
        first = next(iter(warps), None)
        return Candidate(
            {axis: int(size[i] if is_many(size) else size) for axis, size in self.tiles.items()},
            {axis: count for axis, count in warps.items() if count > 1 or axis == first},
            int(self.vector[i]),
            bool(self.rereads[i]),
        )


def candidates(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], clusters: int = 1) -> Candidates:
    """All candidates with the `fixed` sizes (TreadleError where a fixed size cannot be, or not beside the others), on a
    machine with clusters of at most so many blocks."""
    _check_fixed(sketch, fixed)
    if sketch.recurs and sketch.stream is not None:
        fixed = {**fixed, sketch.stream: 1}
    found = _candidates(sketch, sizes, fixed, clusters)
    if not len(found):
        raise TreadleError(_no_candidates(sketch, sizes, fixed, clusters))
    return found


def _no_candidates(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], clusters: int) -> str:
    """Which of the fixed sizes no block has beside the others, and those that some block has."""
    for axis in fixed:
        others = {other: size for other, size in fixed.items() if other != axis}
        found = _candidates(sketch, sizes, others, clusters)
        if len(found) and axis in found.tiles:
            pieces = ", ".join(str(int(size)) for size in np.unique(found.tiles[axis]))
            beside = f" beside {', '.join(f'{other} = {size}' for other, size in others.items())}" if others else ""
            return f"axis '{axis}' cannot have pieces of {fixed[axis]} in @{sketch.name}{beside}: it can have {pieces}"
    asked = ", ".join(f"{axis} = {size}" for axis, size in fixed.items())
    return f"@{sketch.name} cannot have {asked} together: leave the choice of some to the cost model"


def _candidates(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], clusters: int) -> Candidates:
    if sketch.has_products:
        tiles, warps, vector = _of_products(sketch, sizes, fixed)
    elif sketch.recurs:
        tiles, warps, vector = _as_arrays(list(of_positions(sketch, sizes, fixed, VECTOR)))
    else:
        tiles, warps, vector = _as_arrays(list(_of_lanes(sketch, sizes, fixed, clusters)))
    # Axes in the order of the schedule, whatever the order in which they were settled.
    # As floats, because products of large axes are more than 64 bits hold.
    cut = {axis: 1.0 * tiles.get(axis, np.ones_like(vector)) for axis in _cut(sketch)}
    whole = {axis: tiles.get(axis, sketch.sizes[axis]) for axis in sketch.whole}
    found = Candidates({**cut, **whole}, warps, vector, np.zeros(len(vector), bool))
    return found.with_rereads() if sketch.keeps_left else found


def _as_arrays(found: Sequence[Candidate]) -> Arrays:
    """Each candidate once, the axes that it does not name with 1."""
    each = list({(*one.tiles.items(), *one.warps.items()): one for one in reversed(found)}.values())[::-1]
    axes = dict.fromkeys(axis for one in each for axis in one.tiles)
    along = dict.fromkeys(axis for one in each for axis in one.warps)
    return (
        {axis: np.array([one.tiles.get(axis, 1) for one in each]) for axis in axes},
        {axis: np.array([one.warps.get(axis, 1) for one in each]) for axis in along},
        np.array([one.vector for one in each]),
    )


def _cut(sketch: Sketch) -> tuple[str, ...]:
    return sketch.group if sketch.stream is None else (*sketch.group, sketch.stream)


def _check_fixed(sketch: Sketch, fixed: Mapping[str, int]) -> None:
    for axis, size in fixed.items():
        if reason := _refusal(sketch, axis, size):
            raise TreadleError(f"axis '{axis}' cannot have pieces of {size} in @{sketch.name}: {reason}")


def _refusal(sketch: Sketch, axis: str, size: int) -> str | None:
    """Why a size given from outside cannot be."""
    if sketch.recurs and axis == sketch.stream:
        return None if size == 1 else "a recurrence takes one position after another"
    if not sketch.has_products:
        return None if size == covering(size) else "without products, pieces are powers of two"
    if axis == sketch.stream and sketch.steps_singly:
        return None if size == 1 else "a product over several axes takes one index of it at a time"
    if axis == sketch.stream:
        step = sketch.alignment
        return None if size % step == 0 else f"products take {step} values at once, use a multiple of {step}"
    if axis == sketch.roles.row:
        if size % ROW == 0 and _splits(size // ROW, _row_tiles(sketch)):
            return None
        *few, most = (str(ROW * tiles) for tiles in _row_tiles(sketch))
        allowed = sorted({ROW * n * tiles for n in range(1, MOST_WARPS + 1) for tiles in _row_tiles(sketch)})
        near = sorted(sorted(allowed, key=lambda each: (abs(each - size), each))[:2])
        law = f"rows of products lie {', '.join(few)} or {most} to a warp, in at most {MOST_WARPS} warps"
        return f"{law}; near are {near[0]} and {near[1]}"
    if axis == sketch.roles.column:
        least = _least_columns(sketch)
        return None if size % least == 0 else f"columns of products: use a multiple of {least}"
    if size == 1:
        return None
    if axis in sketch.batch:
        return "both operands of a product have it, so every index is a product of its own: use 1"
    return "the rows and columns of the products lie along other axes: use 1"


def _row_tiles(sketch: Sketch) -> tuple[int, ...]:
    return MORE_ROW_TILES if sketch.roles.splits_columns else ROW_TILES


def _splits(row_tiles: int, of_warp: tuple[int, ...]) -> list[int]:
    """Numbers of warps along a row axis that is that many products high."""
    return [n for n in range(1, MOST_WARPS + 1) for tiles in of_warp if n * tiles == row_tiles]


# -- products ---------------------------------------------------------------------------------------


def _of_products(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Arrays:
    row, column, stream = sketch.roles.row, sketch.roles.column, sketch.stream
    longest = MOST_SCORES if any(stream in each.result for each in sketch.products) else MOST_DEPTH
    steps = np.array(_multiples(sketch, sketch.alignment, longest, stream, sizes, fixed))
    if sketch.steps_singly:
        steps = np.ones(1, int)
    least = _least_columns(sketch)
    columns = np.array(_multiples(sketch, least, max(MOST_COLUMNS, least), column, sizes, fixed))
    across = _across(sketch, sizes)
    splits = np.arange(1, (MOST_WARPS if sketch.roles.splits_columns or across is not None else 1) + 1)
    rows, along = np.array(_rows(sketch, sizes, fixed)).T
    i, j, k, step = (each.ravel() for each in np.indices((len(rows), len(columns), len(splits), len(steps))))
    shared = columns[j] if across is None else np.full(len(j), sizes[across])
    granule = least if across is None else lcm(LEAST_COLUMNS, _line(sketch, across), sketch.granules.get(across, 1))
    fits = (along[i] * splits[k] <= MOST_WARPS) & ((splits[k] == 1) | (shared % (granule * splits[k]) == 0))
    i, j, k, step = i[fits], j[fits], k[fits], step[fits]
    cut = {row: rows[i], column: columns[j], stream: steps[step]}
    beside = column if across is None else across
    warps = {} if row is None else {row: along[i]} if beside is None else {row: along[i], beside: splits[k]}
    return {axis: many for axis, many in cut.items() if axis is not None}, warps, np.ones_like(i)


def _least_columns(sketch: Sketch) -> int:
    """Columns of one warp: as many as it reads at once, and both blocks of each pair that is swapped."""
    return lcm(LEAST_COLUMNS, sketch.granules.get(sketch.roles.column or "", 1))


def _across(sketch: Sketch, sizes: Mapping[str, int]) -> str | None:
    """The axis across whose columns warps lie though a group holds it whole: of a product with more columns than a warp
    has room for. What lacks the axis all those warps do again."""
    wide = {axis for each in sketch.products for axis in each.result if axis in sketch.whole}
    wide = {axis for axis in wide if sizes[axis] > MOST_COLUMNS}
    return wide.pop() if len(wide) == 1 and sketch.roles.column is None else None


def _rows(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> list[tuple[int, int]]:
    """Rows of a block, and the warps along them."""
    row, of_warp = sketch.roles.row, _row_tiles(sketch)
    if row is None:
        return [(1, 1)]
    if row in fixed:
        return [(fixed[row], warps) for warps in _splits(fixed[row] // ROW, of_warp)]
    most = max(ROW * SHARING, covering(sizes[row]))
    return [(ROW * n * tiles, n) for n in range(1, MOST_WARPS + 1) for tiles in of_warp if ROW * n * tiles <= most]


def _multiples(
    sketch: Sketch, granule: int, most: int, axis: str | None, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> tuple[int, ...]:
    """Sizes of the pieces of an axis: multiples of the granule, of whole lines or a whole part of one, and none much
    larger than the axis. Of half a line along a stream that has scores: registers decide how many, and tensor copies
    swizzle rows of half a line as well."""
    if axis is None:
        return (1,)
    if axis in fixed:
        return (fixed[axis],)
    line = _line(sketch, axis)
    if axis == sketch.stream and any(axis in each.result for each in sketch.products):
        line = max(1, line // 2)
    most = min(most, max(granule, covering(sizes[axis])))
    every = range(granule, most + 1, granule)
    found = tuple(size for size in every if size % line == 0 or line % size == 0)
    return found or tuple(every)  # no whole line has whole granules


def _line(sketch: Sketch, axis: str) -> int:
    """Elements along an axis that move together, at the most: those of a line, if an array has neighbours along it."""
    return lcm(*(max(1, LINE // width) for axes, width in sketch.arrays if axes and axes[-1] == axis))


# -- no products --------------------------------------------------------------------------------------


def _of_lanes(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int], clusters: int) -> Iterator[Candidate]:
    """Lanes lie along the contiguous axis of the largest array, so that they move whole lines; or of another one, where
    rows meet columns."""
    axes = max(sketch.arrays, key=lambda array: prod(sizes[axis] for axis in array[0]))[0]
    lane = axes[-1] if axes else None
    vector = VECTOR // min(width for _, width in sketch.arrays)
    others = [axis for axis in reversed(axes) if axis in sketch.group and axis != lane]
    rest = [axis for axis in sketch.group if axis not in axes]
    row = next(iter([*others, *rest]), None)
    # Group axes that nobody tiles still take the size that was asked for.
    base = {axis: size for axis, size in fixed.items() if axis in _cut(sketch)}
    both = _two_neighbours(sketch, axes)
    found: Iterable[Candidate] = () if both is None else tuple(_across_rows(sketch, *both, sizes, fixed))
    if not found and lane in sketch.group:
        found = _along_lanes(sketch, lane, row, vector, sizes, fixed)
    elif not found:
        found = _rows_of_lanes(sketch, lane, row, vector, sizes, fixed)
    shared = _shared_axis(sketch, lane)
    for candidate in found:
        unit = WARP * vector if shared == lane else 1
        for parts in _parts(sketch, sizes, unit, clusters):
            alone = Candidate({**candidate.tiles, **base, **parts}, candidate.warps, candidate.vector)
            yield alone
            if shared is not None:
                yield from _sharing(alone, shared, unit, shared == sketch.stream and shared not in fixed, sizes)
    for candidate in of_outer(sketch, sizes, fixed, vector):
        yield Candidate({**base, **candidate.tiles}, candidate.warps, candidate.vector)


def _parts(sketch: Sketch, sizes: Mapping[str, int], unit: int, clusters: int) -> Iterator[dict[str, int]]:
    """What one block may have of the axis that a cluster can share: all, or a part of several units, each of which
    begins where what a warp moves at once does."""
    axis = sketch.shared_by_blocks
    if axis is None or clusters == 1:
        yield {}
        return
    size = sizes[axis]
    yield {axis: size}
    for blocks in (count for count in CLUSTERS if count <= clusters):
        part = -(-size // (blocks * unit)) * unit
        if part > unit and -(-size // part) == blocks:
            yield {axis: part}


def _shared_axis(sketch: Sketch, lane: str | None) -> str | None:
    """The axis that warps may share beside lanes: a streamed one along which lanes lie, and nothing is scanned; without
    a stream, the longest that a group holds whole and reduces."""
    if sketch.stream is not None:
        return sketch.stream if sketch.stream == lane and lane not in sketch.scanned else None
    return sketch.longest_held


def _sharing(alone: Candidate, axis: str, unit: int, grows: bool, sizes: Mapping[str, int]) -> Iterator[Candidate]:
    """The same with several warps that share a row: what a group holds of it, or pieces that grow with them. Each has
    a `unit` of it at least, and none lies beyond its end altogether."""
    for count in ROW_WARPS[1:]:
        piece = alone.tiles.get(axis, sizes[axis]) * (count if grows else 1)
        if unit * count <= covering(min(piece, sizes[axis])) and count * prod(alone.warps.values()) <= BLOCK_WARPS:
            tiles = {**alone.tiles, axis: piece} if axis in alone.tiles else alone.tiles
            yield Candidate(tiles, {**alone.warps, axis: count}, alone.vector)


def _along_lanes(
    sketch: Sketch,
    lane: str,
    row: str | None,
    vector: int,
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
) -> Iterator[Candidate]:
    """The contiguous axis is cut into groups: warps lie along it, or along rows where it is short."""
    most = fixed.get(lane, covering(sizes[lane]))
    streams = _thread_streams(sketch, sizes, fixed)
    for warps, step in product(LANE_WARPS, streams):
        stream = {sketch.stream: step} if sketch.stream else {}
        values = vector
        while values:
            tile = WARP * values * warps
            if tile <= most and fixed.get(lane, tile) == tile:
                yield Candidate({lane: tile, **stream}, {lane: warps}, values)
            values //= 2
        yield from _short_lanes(lane, row, most, warps, vector, stream, sizes, fixed)


def _short_lanes(
    lane: str,
    row: str | None,
    tile: int,
    warps: int,
    vector: int,
    stream: Mapping[str, int],
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
) -> Iterator[Candidate]:
    """One warp reaches over the whole contiguous axis: it takes as many rows as its lanes can hold."""
    if tile > WARP * vector:
        return
    values = min(vector, tile)
    if row is None:
        yield Candidate({lane: tile, **stream}, {lane: 1}, values)
        return
    rows = fixed.get(row, min(warps * (WARP * vector // tile), covering(sizes[row])))
    along = min(warps, rows)
    yield Candidate({lane: tile, row: rows, **stream}, {row: along}, values)


def _across_rows(
    sketch: Sketch, lane: str, other: str, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> Iterator[Candidate]:
    """Arrays have their neighbours along two axes, as those of a transposing copy: a block takes whole lines of both.
    Lanes lie along the lines of what is saved, warps along the others."""
    along, across = (_lines(sketch, axis, sizes, fixed) for axis in (lane, other))
    for warps, piece, rows in product(LANE_WARPS, along, across):
        if warps <= rows:
            yield Candidate({lane: piece, other: rows}, {other: warps}, min(piece, VECTOR // _width(sketch, lane)))


def _two_neighbours(sketch: Sketch, axes: tuple[str, ...]) -> tuple[str, str] | None:
    """The axis along which what is saved has its neighbours, and another one along which an array that has both has
    its own; None where there are not two such axes, or groups are not cut along both."""
    saved = next((each.axes[-1] for each in sketch.crossings if each.saves and each.axes[-1:]), None)
    lasts = {array[-1] for array, _ in sketch.arrays if array and saved in array and array[-1] in axes} - {saved}
    if saved not in sketch.group or sketch.stream is not None or len(lasts) != 1 or not lasts <= {*sketch.group}:
        return None
    return saved, lasts.pop()


def _lines(sketch: Sketch, axis: str, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[int, ...]:
    """Pieces of an axis along which an array has its neighbours: a line or two, or all of it."""
    line, most = LINE // _width(sketch, axis), covering(sizes[axis])
    whole = dict.fromkeys(min(most, piece) for piece in (line, 2 * line))
    return tuple(piece for piece in whole if fixed.get(axis, piece) == piece)


def _width(sketch: Sketch, axis: str) -> int:
    """Bytes of a value of the narrowest array that has its neighbours along an axis."""
    return min(width for array, width in sketch.arrays if array and array[-1] == axis)


def _rows_of_lanes(
    sketch: Sketch,
    lane: str | None,
    row: str | None,
    vector: int,
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
) -> Iterator[Candidate]:
    """The contiguous axis is streamed or whole: a warp has a row, or a few."""
    if sketch.stream is not None and sketch.stream == lane:
        steps = _lane_streams(sketch.stream, sizes, fixed)
    else:
        steps = _thread_streams(sketch, sizes, fixed)
    for warps, rows, step in product(LANE_WARPS, (1, 2, 4), steps):
        stream = {sketch.stream: step} if sketch.stream else {}
        values = vector if step % (WARP * vector) == 0 else 1
        if row is None:
            yield Candidate(stream, {}, values)
            continue
        tile = fixed.get(row, warps * rows)
        if tile > max(covering(sizes[row]), fixed.get(row, 1)) or tile < warps:
            continue
        yield Candidate({row: tile, **stream}, {row: warps}, values)


def _lane_streams(axis: str, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[int, ...]:
    if axis in fixed:
        return (fixed[axis],)
    most = max(LANE_STREAMS[0], covering(sizes[axis]))
    return tuple(step for step in LANE_STREAMS if step <= most)


def _thread_streams(sketch: Sketch, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[int, ...]:
    """Pieces of a streamed axis that each thread goes through by itself."""
    if sketch.stream is None:
        return (1,)
    if sketch.stream in fixed:
        return (fixed[sketch.stream],)
    most = covering(sizes[sketch.stream])
    return tuple(step for step in THREAD_STREAMS if step <= most)
