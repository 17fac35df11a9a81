"""Whether as many blocks as the machine has processors should take all pieces of a grid, one after another, as
`passes/cuda_persist.py` makes them: then the producer brings the next piece while the consumers finish one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.cost.kernel.leaving import leave_by_tensor_copies, takes_a_place
from treadle.compiler.cost.kernel.plan import LEAVING, Pieces, Plan, Tile
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups, shared_by
from treadle.compiler.cost.levels.memory import bytes_of_tile
from treadle.compiler.cost.reading.fed import Fed
from treadle.compiler.cost.timing.tile_order import (
    KEPT,
    Sharing,
    best_section,
    end_of_grid,
    imbalance,
    longest,
    section_of_grid,
)
from treadle.compiler.machines import Machine
from treadle.dialects.cuda.boxes import SPANS
from treadle.dialects.cuda.rings import BARRIER_BYTES

PARTS = (1, 2, 4, 8)
"""Parts of a result that may leave one after another, through a place of its own."""

LARGEST_SECTION = 1024
"""Rows of pieces that are taken together, at most."""


def can_take_turns(plan: Plan, machine: Machine, blocks: Amount, shared_bytes: Amount) -> Amount:
    """Whether blocks that have a second piece to take could begin it while the first leaves."""
    return has_turns(plan, machine, shared_bytes) & (blocks > machine.sms * shared_by(plan))


def has_turns(plan: Plan, machine: Machine, shared_bytes: Amount) -> Amount:
    """Whether there are roles, of which each counts its turns on from piece to piece, and room for what leaves while
    its tiles come, by tensor copies: what threads copy out lies where the tiles go. A list of pieces all threads make
    together, before they have roles."""
    if any(tile.role == "listed" for tile in plan.tiles):
        return False
    grouped = are_of_warpgroups(plan, machine) & leave_by_tensor_copies(plan)
    room = [has_room for _, has_room in _rooms(plan, shared_bytes, machine)]
    return grouped & (sum(room) > 0)


def bytes_in_turns(plan: Plan, shared_bytes: Amount, machine: Machine, twice: bool = True) -> Amount:
    """Shared memory of a block whose results leave while the tiles of the next piece come: in as few parts as there is
    room for, and beside them, where that is told, a second place for what a piece holds, if there is."""
    size, _ = _with_places(plan, shared_bytes, machine)
    return size if twice else _size(plan, shared_bytes, machine)


def holds_twice(plan: Plan, shared_bytes: Amount, machine: Machine) -> Amount:
    """Whether all that a piece holds has two places, as `passes/grids/two_places.py` decides it."""
    return _with_places(plan, shared_bytes, machine)[1]


def _with_places(plan: Plan, shared_bytes: Amount, machine: Machine) -> tuple[Amount, Amount]:
    """With a second place for each held tile that there is room for, and whether all have one."""
    size, all_twice = _size(plan, shared_bytes, machine), True
    for tile in plan.tiles:
        if tile.role == "shared" and not _is_given_back(tile, plan):
            another = bytes_of_tile(tile, True) + 2 * BARRIER_BYTES
            fits = size + another <= machine.shared_of_block(shared_by(plan))
            size, all_twice = size + choice(fits, another, 0), all_twice & fits
    return size, all_twice


def _is_given_back(tile: Tile, plan: Plan) -> bool:
    """Whether registers have what is in a tile before the piece's stream begins, so that the next one's may come."""
    return any(other.role == "kept" and other.shape == tile.shape for other in plan.tiles)


def _size(plan: Plan, shared_bytes: Amount, machine: Machine) -> Amount:
    size = shared_bytes
    for parts, has_room in reversed(list(_rooms(plan, shared_bytes, machine))):
        size = choice(has_room, parts, size)
    return size


def _rooms(plan: Plan, shared_bytes: Amount, machine: Machine) -> Iterator[tuple[Amount, Amount]]:
    """What a block takes if its results leave in so many parts, and whether they can, and it has as much."""
    leaving = [(tile, takes_a_place(tile, plan)) for tile in plan.tiles if tile.role in LEAVING]
    for parts in PARTS:
        bytes = sum(choice(takes_place, bytes_of_tile(tile, True), 0) for tile, takes_place in leaving)
        size = shared_bytes + ceil_div(bytes, parts)
        are_cut: Amount = True
        for tile, takes_place in leaving:
            are_cut = are_cut & choice(takes_place, _leaves_in(tile, parts), True)
        yield size, are_cut & (size <= machine.shared_of_block(shared_by(plan)))


def _leaves_in(tile: Tile, parts: int) -> Amount:
    """Whether each part is as many whole boxes of a tensor copy: these are cut along the last axis, and parts along the
    columns of a product."""
    if parts == 1 or tile.role == "turned" or not tile.shape:
        return parts == 1
    columns = tile.shape[-1]
    spans = [span // tile.width for span in SPANS]
    boxes: Amount = 0
    for span in reversed(spans):
        boxes = choice(columns % span == 0, columns // span, boxes)
    return (boxes > 0) & (boxes % parts == 0)


def clocks_in_turns(first: Amount, filled: Amount, blocks: Amount, slots: Amount) -> Amount:
    """Of the block that takes most pieces, of as many as run at a time: each but the first finds its tiles there when
    it begins."""
    return first + (ceil_div(blocks, slots) - 1) * filled


@dataclass(frozen=True)
class Made:
    """How a kernel was made, where that is not for the model to say."""

    in_turns: bool
    share: float | None = None
    """Of uneven pieces, how many times its even share the processor has that has most; None for what orders leave."""
    pieces_overlap: bool = True
    """Whether one piece begins while another ends (`cost/timing/between.py`)."""
    loops_carry: bool = True
    """Whether the last product of a loop runs beside the first of the next (`cost/timing/between.py`)."""
    has_clusters: bool = True
    """Whether blocks that read alike read together where that pays (`cost/timing/clusters.py`)."""
    powers_first: bool = True
    """Whether turns whose maximum may lag take their powers before it, where threads have room."""
    tested_first: bool = False
    """Whether tiles that conditions cut came before others, as on 26 November 2026 (`cost/timing/between.py`)."""
    twice: bool = True
    """Whether what a piece holds has two places, if there is room."""


def uneven_share(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], resident: Amount, in_turns: bool, made: Made | None
) -> float:
    """How many times its even share the processor does that has most to do, of pieces that conditions make differ; 0
    where they do not, or it is not known how, or a machine that holds so many blocks on an SM holds all, or none."""
    slots = machine.sms * (shared_by(plan) if in_turns else resident)
    if not any(isinstance(each.fed, Fed) for each in plan.transfers):
        return 0.0  # also of many candidates at a time
    if not slots or plan.blocks(sizes) <= slots:
        return 0.0
    sharing = sharing_of(plan, int(slots), sizes)
    if sharing is None or longest(sharing) is None:
        return 0.0
    return (made and made.share) or _share(sharing, machine.levels["l2"].capacity, in_turns)


@lru_cache(maxsize=64)
def _share(sharing: Sharing, cache_bytes: int, in_turns: bool) -> float:
    """As `cuda-persist` deals pieces, or `cuda-order-blocks` orders them."""
    if in_turns:
        return imbalance(sharing, best_section(sharing, cache_bytes))
    return end_of_grid(sharing, section_of_grid(sharing, cache_bytes))


def sharing_of(plan: Plan, slots: int, sizes: Mapping[str, int]) -> Sharing | None:
    """What the pieces of a row bring, if conditions make them differ and each was asked."""
    found = next((each.fed for each in plan.transfers if isinstance(each.fed, Fed)), None)
    if found is None or not plan.groups or not any(pieces.axis == plan.groups[-1].axis for pieces in found.around):
        return None
    *outer, inner = plan.groups
    shares = found.shares(sizes)
    if 0 in shares.groups:
        return None
    along = [pieces.axis for pieces in found.around].index(inner.axis)
    others = tuple(i for i in range(len(shares.groups)) if i != along)
    steps = np.broadcast_to(shares.steps, shares.groups).mean(axis=others) / found.stream.count(sizes)
    of_row, of_column = _bytes_shared(plan, sizes, outer, inner)
    own = _bytes_alone(plan, sizes)
    rows = prod(pieces.count(sizes) for pieces in outer)
    return Sharing(rows, slots, of_row, of_column, tuple(int(own + of_row * part) for part in steps))


def _bytes_alone(plan: Plan, sizes: Mapping[str, int]) -> int:
    """Of what a piece loads, what no condition limits."""
    cut = {pieces.axis: pieces.size for pieces in plan.groups}
    return sum(
        each.width * prod(min(cut.get(axis, sizes[axis]), sizes[axis]) for axis in each.axes)
        for each in plan.transfers
        if not each.saves and each.fed is None
    )


def together(plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount, turns: Amount) -> dict[str, Amount]:
    """How many pieces along each axis are worked on at a time. Blocks are numbered along the last group axis; those
    that take turns take sections of rows, as `tile_order` chooses them."""
    found: dict[str, Amount] = {}
    left = slots
    for i, pieces in enumerate(reversed(plan.groups)):
        count = most(pieces.count(sizes), 1)
        ahead = ceil_div(left, _section(plan, machine, sizes, slots)) if not i and turns is not False else left
        found[pieces.axis] = least(most(choice(turns, ahead, left), 1), count)
        left = choice(turns, left // found[pieces.axis], left // count)
    return found


def _section(plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount) -> Amount:
    """`tile_order.best_section` for candidates: of the powers of two that fit the cache, the one that reads least."""
    *outer, inner = plan.groups
    rows = prod(pieces.count(sizes) for pieces in outer)
    of_row, of_column = _bytes_shared(plan, sizes, outer, inner)
    best: Amount = 1
    least_bytes = of_row + slots * of_column
    section = 2
    while section <= LARGEST_SECTION:
        read = least(section, slots) * of_row + ceil_div(slots, section) * of_column
        fits = (section <= rows) & (section * of_row <= KEPT * machine.levels["l2"].capacity)
        better = fits & (read < least_bytes)
        best, least_bytes = choice(better, section, best), choice(better, read, least_bytes)
        section *= 2
    return best


def _bytes_shared(plan: Plan, sizes: Mapping[str, int], outer: list[Pieces], inner: Pieces) -> tuple[Amount, Amount]:
    """Of what a piece loads: what it shares with its row, and with its column."""
    of_row = of_column = 0
    for transfer in plan.transfers:
        if transfer.saves or transfer.part == "border":  # of what the rest of the stream loads as well
            continue
        has_row = any(pieces.axis in transfer.axes for pieces in outer)
        cut = {pieces.axis: pieces.size for pieces in plan.groups}
        loaded = transfer.width * prod(least(cut.get(axis, sizes[axis]), sizes[axis]) for axis in transfer.axes)
        if has_row and inner.axis not in transfer.axes:
            of_row = of_row + loaded
        elif inner.axis in transfer.axes and not has_row:
            of_column = of_column + loaded
    return of_row, of_column
