"""Choose how a tile lies in shared memory so that all accesses to it are without bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from treadle.compiler.layouts.accesses import Access
from treadle.compiler.layouts.conflicts import Phase, Wavefronts, by_rank, count_phases, phases_of
from treadle.compiler.layouts.tiles import Tile, natural_swizzle, row_chunks_of, tile_rows
from treadle.dialects.cuda.layout import RowsAttr

PERIOD_CHUNKS = 8
"""Padding by so many chunks changes no bank."""


@dataclass(frozen=True)
class Choice:
    """A tile's layout, and what each access to it then costs."""

    tile: Tile
    accesses: tuple[Wavefronts, ...]

    @property
    def rows(self) -> RowsAttr:
        return self.tile.rows

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the fewest, over all accesses, each made once."""
        return sum(each.conflicts for each in self.accesses)

    @property
    def bytes(self) -> int:
        return self.tile.bytes


@lru_cache(maxsize=256)
def choose_rows(axes: tuple[str, ...], extents: tuple[int, ...], element_bytes: int, *accesses: Access) -> Choice:
    """The layout of a tile with the fewest bank conflicts over these accesses, each made once; of those the one that
    takes the least memory; of those no swizzle before a swizzle.

    Tried are rows without padding and with 1 to 7 chunks of it, each plain and with every swizzle of at most 3 bits
    that looks at no more than 8 rows and stays in the row; at last swizzles that tell rows 8 or 16 apart from each
    other, which no padding does: a tile that is transposed has 8 elements of a column in each lane, of a byte 16. The
    first without conflicts is taken, so that the result is conflict-free if any of them is, and otherwise says what it
    costs."""
    costs = [_Cost(access) for access in accesses]
    best: Choice | None = None
    for rows in candidates(extents, element_bytes):
        tile = Tile(axes, rows, element_bytes)
        choice = Choice(tile, tuple(cost(tile) for cost in costs))
        if best is None or choice.conflicts < best.conflicts:
            best = choice
        if not best.conflicts:
            break
    assert best is not None
    return best


def candidates(extents: Sequence[int], element_bytes: int) -> Iterator[RowsAttr]:
    """Layouts to try, those of less memory first; without a swizzle first, then with the natural one."""
    chunks = row_chunks_of(extents, element_bytes)
    for pad in range(PERIOD_CHUNKS):
        yield tile_rows(extents, element_bytes, pad)
        natural = natural_swizzle(chunks + pad)
        if natural is not None:
            yield tile_rows(extents, element_bytes, pad, natural)
        for bits in (1, 2, 3):
            for shift in range(4 - bits):
                if (chunks + pad) % (1 << bits) == 0 and (bits, shift) != natural:
                    yield tile_rows(extents, element_bytes, pad, (bits, shift))
    for shift, bits in product((3, 4), (3, 2, 1)):
        if chunks % (1 << bits) == 0:
            yield tile_rows(extents, element_bytes, 0, (bits, shift))


class _Cost:
    """The wavefronts of one access in one tile after another of the same extents: by rank where that decides it, else
    by enumerating the phases, once."""

    def __init__(self, access: Access):
        self.access = access
        self.phases: dict[int, tuple[tuple[Phase, int], ...]] = {}
        """By how many bits of a row a swizzle looks at, 3 at least: rows that differ in one of them are not alike."""

    def __call__(self, tile: Tile) -> Wavefronts:
        proved = by_rank(self.access, tile)
        if proved is not None:
            return proved
        reach = max(tile.rows.swizzle_bits + tile.rows.swizzle_shift, 3)
        if reach not in self.phases:
            self.phases[reach] = phases_of(self.access, tile)
        return count_phases(self.phases[reach], self.access.width, tile)
