"""Bank conflicts: how many wavefronts an access to shared memory takes.

Shared memory has 32 banks of 4 bytes; a wavefront serves every lane whose word no other word of the same bank keeps
out. An access of 4 bytes or less a lane takes all 32 lanes together, one of 8 bytes two phases of 16 lanes, one of 16
bytes four phases of 8 (as `ldmatrix` takes each of its matrices), so that each phase asks for 128 bytes at most and
can be served by one wavefront. Lanes that read the same word share it.

Two answers, which the tests hold against each other and against a model of the banks:

- `by_rank`, a proof, where lanes and tile are powers of two. Within a phase the address is a matrix L over GF(2) of the
  lane's bits (plus what other digits add, which only turns the banks). It reaches 2^rank(L) words in 2^rank(BL) banks,
  B taking the bank's bits, and each bank serves one word after another: 2^(rank L - rank BL) wavefronts.
- `by_enumeration`, for any layout: every phase of every instruction, phases that differ by a multiple of 8 rows and 8
  chunks counted once (both leave the bank as it is, unless a swizzle looks at more of them)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.compiler.layouts.accesses import Access
from treadle.compiler.layouts.bits import BitMatrix, is_binary, matrix
from treadle.compiler.layouts.digits import LayoutError
from treadle.compiler.layouts.maps import Map
from treadle.compiler.layouts.tiles import BANK_BYTES, BANKS, CHUNK_BYTES, PERIOD_BYTES, Tile
from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.layout import LANES, Mode


@dataclass(frozen=True)
class Wavefronts:
    """Of one access, over all its instructions: phases that have an active lane, and the wavefronts that serve them."""

    phases: int
    wavefronts: int

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond one for each phase."""
        return self.wavefronts - self.phases


def phase_lanes(access_bytes: int) -> int:
    """Lanes that are served together, for so many bytes a lane."""
    return LANES // max(access_bytes // BANK_BYTES, 1)


def wavefronts(access: Access, tile: Tile) -> Wavefronts:
    """Wavefronts of an access to a tile whose beginning is aligned to what one lane moves."""
    proved = by_rank(access, tile)
    return proved if proved is not None else by_enumeration(access, tile)


def is_conflict_free(access: Access, tile: Tile) -> bool:
    return wavefronts(access, tile).conflicts == 0


# -- by rank --------------------------------------------------------------------------------------


def by_rank(access: Access, tile: Tile) -> Wavefronts | None:
    """The wavefronts by linear algebra; None where a size is no power of two."""
    split = _by_lanes(access)
    if split is None or not tile.is_binary or not is_binary(split):
        return None
    if any(split.extent(axis) > extent for axis, extent in tile.extents.items()):
        return None
    lanes = phase_lanes(access.width * tile.element_bytes)
    address = lane_matrix(split, tile, lanes)
    words = address.masked(~(_unit(access, tile) - 1))
    banks = words.masked(PERIOD_BYTES - 1)
    others = 1
    for name in ("register", "warp"):
        others *= split.size(name)
    phases = others * -(-split.size("lane") // lanes)
    return Wavefronts(phases, phases << (words.rank() - banks.rank()))


def lane_matrix(places: Map, tile: Tile, lanes: int) -> BitMatrix:
    """From the bits of the lane within a phase to the bits of the byte address in the tile (LayoutError if one of the
    two is not linear over bits)."""
    coordinates = matrix(places, ("lane",), tile.place())
    within = BitMatrix(coordinates.columns[: (lanes - 1).bit_length()])
    return within.then(tile.matrix())


def _unit(access: Access, tile: Tile) -> int:
    """Bytes that are served as one: a word, or what a lane moves if that is more."""
    return max(access.width * tile.element_bytes, BANK_BYTES)


def _by_lanes(access: Access) -> Map | None:
    """The access with instructions, lanes and warps apart; None if items are not dealt in powers of two."""
    if not access.is_dealt:
        if access.once and access.places.has_copies:
            return None
        return access.places
    fast: list[Mode] = []
    slow: list[Mode] = []
    lanes = LANES
    for mode in reversed(access.places.modes("item")):
        near = min(mode.size, lanes)
        if lanes % near or mode.size % near:
            return None
        lanes //= near
        fast.insert(0, Mode(mode.axis, near, mode.stride))
        slow.insert(0, Mode(mode.axis, mode.size // near, mode.stride * near))
    return Map.of(register=slow, lane=fast)


# -- by enumeration -------------------------------------------------------------------------------

Phase = tuple[tuple[int, int], ...]
"""Row and column of the first element that each active lane moves."""


def by_enumeration(access: Access, tile: Tile) -> Wavefronts:
    """The wavefronts of every phase of every instruction (LayoutError if a lane's elements are not neighbours in the
    tile)."""
    return count_phases(phases_of(access, tile), access.width, tile)


def phases_of(access: Access, tile: Tile) -> tuple[tuple[Phase, int], ...]:
    """The phases of an access, those that differ by a multiple of 8 rows and 8 chunks as one, with how often each
    occurs; they depend on the extents of a tile, not on its pitch or swizzle. An element outside of the tile is not
    accessed (a fragment may reach past it)."""
    chunk = tile.chunk
    if access.width > 1 and tile.row_axis != access.axis:
        raise LayoutError(f"vectors along '{access.axis}' are not neighbours in rows along '{tile.row_axis}'")
    size = phase_lanes(access.width * tile.element_bytes)
    row_period = max(8, 1 << tile.rows.swizzle_bits + tile.rows.swizzle_shift)
    column_period = max(8, 1 << tile.rows.swizzle_bits) * chunk
    found: dict[Phase, int] = {}
    for request in _rows_and_columns(access, tile):
        for active in _by_phase(access.lanes, request, size):
            row = min(place[0] for place in active) // row_period * row_period
            column = min(place[1] for place in active) // column_period * column_period
            phase = tuple(sorted({(r - row, c - column) for r, c in active}))
            found[phase] = found.get(phase, 0) + 1
    return tuple(found.items())


def _by_phase(
    lanes: Sequence[int], request: Sequence[tuple[int, int] | None], size: int
) -> Iterator[list[tuple[int, int]]]:
    """What the active lanes of each phase access, `size` lanes a phase."""
    phases: dict[int, list[tuple[int, int]]] = {}
    for lane, place in zip(lanes, request, strict=False):
        if place is not None:
            phases.setdefault(lane // size, []).append(place)
    yield from phases.values()


def _rows_and_columns(access: Access, tile: Tile) -> Iterator[list[tuple[int, int] | None]]:
    """For each instruction and lane, row and column of its first element; None outside of the tile."""
    extents = tile.extents
    rows = dict(zip(tile.axes, tile.rows.row_strides, strict=True))
    columns = {} if tile.row_axis is None else {tile.row_axis: 1}
    reaching = [axis for axis in access.places.axes if access.places.extent(axis) > extents.get(axis, 1)]
    outside = [
        [[position >= extents.get(axis, 1) for position in request] for request in access.requests({axis: 1})]
        for axis in reaching
    ]
    for i, (row, column) in enumerate(zip(access.requests(rows), access.requests(columns), strict=True)):
        places: list[tuple[int, int] | None] = list(zip(row, column, strict=True))
        for each in outside:
            places = [None if out else place for out, place in zip(each[i], places, strict=True)]
        yield places


def count_phases(phases: tuple[tuple[Phase, int], ...], width: int, tile: Tile) -> Wavefronts:
    """Wavefronts of these phases in a tile."""
    total = sum(count for _, count in phases)
    return Wavefronts(total, sum(count * _passes(phase, width, tile) for phase, count in phases))


def _passes(phase: Phase, width: int, tile: Tile) -> int:
    """The most words that one bank must serve."""
    bytes, chunk, pitch = tile.element_bytes, tile.chunk, tile.rows.pitch.data
    bits, shift = (1 << tile.rows.swizzle_bits) - 1, tile.rows.swizzle_shift
    words: set[int] = set()
    for row, column in phase:
        offset = row * pitch + (column // chunk ^ row >> shift & bits) * chunk + column % chunk
        first = offset * bytes // BANK_BYTES
        words.update(range(first, (offset + width) * bytes + BANK_BYTES - 1 >> 2))
    load = [0] * BANKS
    for word in words:
        load[word % BANKS] += 1
    return max(load)


def boxed_wavefronts(access: Access, boxes: BoxesAttr, axes: Sequence[str], element_bytes: int) -> int:
    """The wavefronts of an access to a tile in boxes, by enumeration."""
    size, total = phase_lanes(access.width * element_bytes), 0
    for request in access.coordinates(axes):
        places = [boxes.offset(place, element_bytes) for place in request]
        for first in range(0, len(places), size):
            words = {
                (at + byte) // BANK_BYTES
                for at in places[first : first + size]
                for byte in _bytes(access, element_bytes)
            }
            total += max(Counter(word % BANKS for word in words).values())
    return total


def _bytes(access: Access, element_bytes: int) -> range:
    return range(0, access.width * element_bytes, min(element_bytes, BANK_BYTES))


def chunk_banks(tile: Tile, row: int, chunk: int) -> int:
    """Which of the eight groups of four banks a chunk of a row lies in, for pictures."""
    pitch = tile.rows.pitch.data // tile.chunk
    mask = (1 << tile.rows.swizzle_bits) - 1
    return (row * pitch + (chunk ^ row >> tile.rows.swizzle_shift & mask)) % (PERIOD_BYTES // CHUNK_BYTES)
