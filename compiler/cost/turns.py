"""Whether as many blocks as the machine has processors should take all pieces of a grid, one after another, as
`passes/cuda_persist.py` makes them: then the producer brings the next piece while the consumers finish one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.cost.plan import Pieces, Plan
from treadle.compiler.cost.tile_order import KEPT
from treadle.compiler.cost.warpgroups import are_of_warpgroups
from treadle.compiler.machines import Machine

PARTS = (1, 2, 4, 8)
"""Parts of a result that may leave one after another, through a place of its own."""

LARGEST_SECTION = 1024
"""Rows of pieces that are taken together, at most."""


def can_take_turns(plan: Plan, machine: Machine, blocks: Amount) -> Amount:
    """Whether there are roles, of which each counts its turns on from piece to piece, and a second piece to take."""
    return are_of_warpgroups(plan, machine) & (blocks > machine.sms)


def bytes_in_turns(plan: Plan, shared_bytes: int, machine: Machine) -> int:
    """Shared memory of a block whose results leave while the tiles of the next piece come: in as few parts as there is
    room for."""
    leaving = sum(tile.elements * tile.width for tile in plan.tiles if tile.role == "leaving")
    sizes = (shared_bytes + ceil_div(leaving, parts) for parts in PARTS)
    return next((size for size in sizes if size <= machine.limits.shared_per_block), shared_bytes)


def clocks_in_turns(first: Amount, filled: Amount, blocks: Amount, machine: Machine) -> Amount:
    """Of the block that takes most pieces: each but the first finds its tiles there when it begins."""
    return first + (ceil_div(blocks, machine.sms) - 1) * filled


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
        if transfer.saves:
            continue
        has_row = any(pieces.axis in transfer.axes for pieces in outer)
        cut = {pieces.axis: pieces.size for pieces in plan.groups}
        loaded = transfer.width * prod(least(cut.get(axis, sizes[axis]), sizes[axis]) for axis in transfer.axes)
        if has_row and inner.axis not in transfer.axes:
            of_row = of_row + loaded
        elif inner.axis in transfer.axes and not has_row:
            of_column = of_column + loaded
    return of_row, of_column
