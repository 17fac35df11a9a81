"""The banks of shared memory that copies meet: how many wavefronts they take, and how many no order spares.

A copy asks for each sector of device memory once, and its request is written to (or read from) the tile in phases. An
order is told by what it puts together: which sectors in one request, and which of their parts in one phase. Whatever it
does, there are no fewer wavefronts than

- words that the copy has in the fullest bank, of which a wavefront serves one;
- phases that its lanes fill, of which each takes a wavefront;
- where a request is one phase (up to 4 bytes a lane), as many for each request as the worst of its sectors takes alone:
  a sector of a column lies in eight banks at most, wherever rows begin with 16 bytes. So much is at least the mean over
  the request's lanes, hence over all lanes.

The bound is computed, not always reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from treadle.compiler.layouts.conflicts import phase_lanes
from treadle.compiler.layouts.operations import dealt_axes, dealt_tile, is_dealt_by_sectors, width_at
from treadle.compiler.layouts.order import SectorOrder
from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.compiler.layouts.tiles import BANK_BYTES, BANKS, Tile
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.tiles import format_bytes, rows_of
from treadle.dialects.diagram.array import axes_of, sizes_of

Places = tuple[int, int]
"""The byte address of a vector in device memory, and in the tile."""


@dataclass(frozen=True)
class Banked:
    """Of one copy: the wavefronts that its order takes, its phases, and the wavefronts that no order spares."""

    wavefronts: int
    phases: int
    fewest: int

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond one for each phase."""
        return self.wavefronts - self.phases

    @property
    def is_fewest(self) -> bool:
        """Whether no bank is met twice that another order may spare."""
        return not self.conflicts or self.wavefronts == self.fewest


def banks_of(op: GlobalAccess, aligned: int, strides: Mapping[str, int], base: int) -> Banked | None:
    """What a copy that is dealt by sectors meets in the variant for rows aligned to so many bytes; None for others."""
    if not is_dealt_by_sectors(op, aligned):
        return None
    tile_type, bytes = dealt_tile(op), format_bytes(op.buffer_type)
    tile, width = Tile(axes_of(tile_type), rows_of(tile_type), bytes), width_at(op, aligned)
    sizes = sizes_of(op.piece_type)
    *outer, row, column = ("", "", *dealt_axes(tile_type))[-max(len(dealt_axes(tile_type)), 2) :]
    requests: list[Sequence[Places | None]] = []
    for at in product(*(range(sizes[axis]) for axis in outer)):
        there = dict(zip(outer, at, strict=True))
        start = base // bytes + sum(strides[axis] * place for axis, place in there.items())
        counts = sizes.get(row, 1), sizes.get(column, 1)
        order = SectorOrder(*counts, strides.get(row, 0), strides.get(column, 1), start, width, bytes)
        requests += requests_of(order, tile, row, column, there)
    return meet(requests, width * bytes)


def requests_of(
    order: SectorOrder, tile: Tile, row: str, column: str, there: Mapping[str, int] | None = None
) -> Iterator[Sequence[Places | None]]:
    """What each lane of each request moves, in an order of slots; None for one that takes no part."""

    def places(at: tuple[int, int]) -> Places:
        far = order.start + at[0] * order.row_stride + at[1] * order.column_stride
        return far * order.element_bytes, tile.address({**(there or {}), row: at[0], column: at[1]})

    slots = order.slots()
    for first in range(0, len(slots), LANES):
        yield [None if at is None else places(at) for at in slots[first : first + LANES]]


def meet(requests: Iterable[Sequence[Places | None]], bytes: int) -> Banked:
    """The wavefronts of requests whose lanes move so many bytes each."""
    lanes, taken, phases = phase_lanes(bytes), 0, 0
    sectors: dict[int, list[int]] = {}
    for request in requests:
        for first in range(0, len(request), lanes):
            active = [place for place in request[first : first + lanes] if place is not None]
            phases += bool(active)
            taken += _fullest({word for _, near in active for word in _words(near, bytes)})
            for far, near in active:
                sectors.setdefault(far // SECTOR_BYTES, []).append(near)
    return Banked(taken, phases, _fewest(list(sectors.values()), bytes))


def _fewest(sectors: Sequence[Sequence[int]], bytes: int) -> int:
    """No order has fewer, of sectors whose vectors lie there in the tile."""
    words = [{word for near in sector for word in _words(near, bytes)} for sector in sectors]
    lanes = phase_lanes(bytes)
    alone = [_fullest(each) if bytes <= BANK_BYTES else 1 for each in words]
    filled = sum(of_lanes * len(sector) for of_lanes, sector in zip(alone, sectors, strict=True))
    return max(_fullest(set[int]().union(*words)), -(-filled // lanes))


def _words(address: int, bytes: int) -> range:
    return range(address // BANK_BYTES, (address + bytes - 1) // BANK_BYTES + 1)


def _fullest(words: set[int]) -> int:
    """Of the words that one bank has, the most."""
    return max(Counter(word % BANKS for word in words).values(), default=0)
