"""M: what a group holds at each level, against what the machine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf, prod

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, is_any, least, most, rounded
from treadle.compiler.cost.kernel.issue import VECTOR
from treadle.compiler.cost.kernel.plan import LEAVING, Plan, Tile, row_of
from treadle.compiler.cost.kernel.promotion import promoted_parts
from treadle.compiler.cost.kernel.warpgroups import (
    WARPGROUP,
    are_of_warpgroups,
    granted_registers,
    registers_at_launch,
    shared_by,
)
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import FIRST_WITH_ASYNCHRONOUS_COPIES, WARP
from treadle.dialects.cuda.boxes import SPANS
from treadle.dialects.cuda.rings import BARRIER_BYTES
from treadle.dialects.cuda.tiles import WORD
from treadle.passes.loops.load_ahead import MOST_WORDS
from treadle.passes.warps.tiles import STAGES as RING_STAGES

STAGES = 2
"""Places of each tile that a stream loads, where a block has memory for so many."""

POSITION_STAGES = 8
"""And of what a recurrence is fed: its pieces are small, and its turns shorter than memory takes."""

TILE_UNIT = 128
"""Tiles begin at multiples of this many bytes."""

BASE_REGISTERS = 16
"""Registers of a kernel without products, for sizes, positions and what is on its way from one value to the next."""

STREAM_REGISTERS = 8
"""And where it streams: counters, limits, and the tests of the last piece."""

PRODUCT_BASE = 26
"""And of one with products."""

CARRIED = 1.55
"""Registers for each accumulator that is carried: itself, half a one on its way out in 16 bits, and operands that are
loaded ahead, of which there are more where there are more accumulators."""

LEAST_CARRIED = 1.25
"""The same where a thread has no more: with attention of d = 128 in 13 warps on an A100, ptxas 13.0 spills nothing at
the 128 registers that this gives. And where tiles come in turn: with d = 192 and 256 there it takes 220 to 252 where
this gives 222 to 261, in pieces of 64 to 128."""

LIMITED_TWICE = 24
"""And where tiles come in turn in a stream that conditions limit at both ends: with a window and d = 192 in pieces of
96 ptxas 13.0 takes 251 (236 without these), and spills 164 bytes with d = 256 in pieces of 64 (248)."""

NOT_LACKED = 3
"""Registers by which that may be more than a thread has, if no step of a stream tests elements: with 9 to 12 warps on
an A100 (168 registers) ptxas 13.0 spills nothing of attention with d = 128 in pieces of 32 (171), and 8 to 24 bytes
with d = 96 in pieces of 64 (172) and with a bias (179); where steps test, 36 to 192 bytes of the first two."""

PASSING = 1.2
"""For each register of what a step makes and uses up."""

WARPGROUP_BASE = 19
WARPGROUP_CARRIED = 1.16
WARPGROUP_PASSING = 1.0
"""The same of consumers that are warpgroups: nothing is loaded ahead, and operands stay in shared memory. Of the entry
that tensor copies feed, ptxas 13.0 spills nothing at these keys of a step, and something at 16 more: heads of 64, 128
with the 160 registers of three warpgroups; heads of 128, 80 with these and 176 with the 240 of two. Of heads of 64 it
spills nothing at 240 with 240, and in f8 at 160 with 160. This says the same."""

WARPGROUP_BOUND = 7
"""For each whole number of a row with which tests of a step compare: what either side leaves of the first columns, in
the loops that test it. With one such number a row and heads of 64 ptxas 13.0 spills nothing of 112 keys with 160
registers and of 208 with 240, and 124 and 232 bytes of 16 more."""

WARPGROUP_LIMIT = 3
"""For each array that only says where streams of a group begin and end: an end of each of three loops. With three such
arrays ptxas 13.0 spills nothing in the loops of attention with heads of 64 in steps of 144 keys (240 registers), one
number in steps of 160, and nothing of heads of 128 in steps of 128."""

WARPGROUP_PARTIAL = 1.0
"""For each register of a sum on its way to an accumulator, beside which a step holds nothing else of its own."""

AHEAD = 0.9
"""The part of what maps begin while products run (`ahead.py`) that is there before these are: with positions as biases,
ptxas 13.0 spills nothing at pieces of 128 and 16 bytes at 144."""

WARPGROUP_CAPPED = 0.26
"""The part of scores that go through a `tanh` which is on its way there: ptxas 13.0 spills nothing of 112 keys with 160
registers and of 192 with 240, and 36 to 152 bytes of 16 more."""

DIVIDING = 0.45
"""The part of what a step divides that is on its way at a time: ptxas 13.0 spills nothing of scores that go through a
logistic function in pieces of 160, and 24 bytes in pieces of 176."""

NEXT = 1.5
"""For each register of what the next step begins with: itself, and half a one for what this step still uses when ptxas
begins to load. By this, what ptxas 13.0 takes of `softmax_matmul`, `quantised_matmul` and attention in 8 bits on an
A100 is within 12 % of the estimate in eleven of twelve sizes, and 18 % off in the last."""

REPAIRING = 4
"""For each register of a state by which a step repairs others, where each lane has many of them: itself, what it
becomes, a finite number for that, and the factor of the repair."""

FROM_SM_90 = 13
"""Registers that ptxas takes more for sm_90 and newer. With these numbers, what ptxas 13.0 takes is within about 10 %
of the estimate for most sizes of attention and matmul in `benchmarks/results/model-*.md`; the worst is 21 % off."""

UNEVEN = 2.5
"""For each turn in which threads copy a tile that they do not share out evenly: its address, and whether it takes part
in the last. ptxas 13.0 takes 10 to 24 more for three or four turns of both tiles of a product, and none for two."""
FEW_TURNS = 2
UNROLLED = 4
"""Turns that are under way at a time (`UNROLL_4` in the printed code)."""

FRAGMENT_LANES = 4
"""Lanes that share out the columns of a row of a fragment, and have each of its rows to themselves."""

SPILL_MOST = 48
"""Registers that a thread may lack: with more of its values in local memory, a kernel is not worth trying."""


@dataclass(frozen=True)
class Footprint:
    """Estimated needs of one block."""

    warps: Amount
    """That compute."""
    stages: Amount
    shared_bytes: Amount
    registers_per_thread: Amount
    spilled: Amount = 0
    """Registers that a thread lacks: its values go to local memory."""
    producers: Amount = 0
    """Warps that bring tiles and do nothing else."""
    registers_taken: Amount = 0
    """Of each thread, when the block starts: roles may move them then."""
    most_registers: Amount = 255
    """That a thread which computes can have."""
    resident: Amount = 1
    """Blocks that share an SM since their roles move registers."""

    @property
    def fits(self) -> Amount:
        return self.registers_per_thread <= self.most_registers

    def blocks_on(self, machine: Machine) -> Amount:
        """How many blocks an SM holds; 0 where not even one fits."""
        warps = self.warps + self.producers
        return self.fits * machine.blocks_on_sm(warps, self.registers_taken, self.shared_bytes)

    def of(self, place: int) -> Footprint:
        """Of one candidate, if this is of many."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Footprint(
            **{name: int(np.ravel(many)[place if np.size(many) > 1 else 0]) for name, many in values.items()}
        )


def footprint(plan: Plan, machine: Machine) -> Footprint:
    grouped = are_of_warpgroups(plan, machine)
    wanted = registers(plan, machine)
    limit = choice(grouped, granted_registers(plan, machine), machine.limits.registers_per_thread)
    spilled = choice(wanted <= limit + SPILL_MOST, most(0, wanted - limit), 0)
    needed = wanted - spilled
    # Under a bound, ptxas loads less ahead; what it needs even so it keeps in local memory.
    squeezed = choice(grouped, 0, most_of_block(plan, machine))
    fits = (needed > squeezed) & (least_registers(plan) <= squeezed)
    needed = choice(fits, squeezed, needed)
    spilled = spilled + choice(needed <= squeezed, _lacking(plan, machine), 0)
    stages = stages_on(plan, machine)
    producers = choice(grouped, WARPGROUP, 0)
    # Of several warpgroups that compute, or several blocks of one: all that their roles share out.
    resident = shared_by(plan)
    share_out = grouped & ((plan.warp_count > WARPGROUP) | (resident > 1))
    taken = choice(share_out, registers_at_launch(plan), needed)
    size = shared_bytes(plan, stages, grouped) + choice(grouped, ring_bytes(plan, stages), 0)
    return Footprint(plan.warp_count, stages, size, needed, spilled, producers, taken, limit, resident)


def stages_on(plan: Plan, machine: Machine) -> Amount:
    """How many pieces of each streamed tile are in shared memory at once: as `pipelining` decides it."""
    if machine.capability < FIRST_WITH_ASYNCHRONOUS_COPIES or not any(tile.role == "staged" for tile in plan.tiles):
        return 1
    room = room_of_tiles(plan, machine)
    alone = choice(shared_bytes(plan, STAGES) <= room, STAGES, 1)
    if not is_any(grouped := are_of_warpgroups(plan, machine)):
        return alone
    of_roles = 1
    for stages in sorted(RING_STAGES):
        of_roles = choice(shared_bytes(plan, stages, True) + ring_bytes(plan, stages) <= room, stages, of_roles)
    return choice(grouped, of_roles, alone)


def room_of_tiles(plan: Plan, machine: Machine) -> Amount:
    """Bytes of shared memory for the tiles of a block. Beside others that its roles share an SM with, its results have
    a place of their own, since it takes pieces in turns."""
    resident = shared_by(plan)
    leaving = sum(bytes_of_tile(tile, True) for tile in plan.tiles if tile.role in LEAVING and tile.width < WORD)
    return machine.shared_of_block(resident) - choice(resident > 1, leaving, 0)


def comes_in_turn(plan: Plan, machine: Machine) -> Amount:
    """Whether tiles of one place are asked for while a step reads others: as `pipelining` decides it."""
    if machine.capability < FIRST_WITH_ASYNCHRONOUS_COPIES or plan.phases == 1:
        return False
    return choice(are_of_warpgroups(plan, machine), False, stages_on(plan, machine) == 1)


def ring_bytes(plan: Plan, stages: Amount) -> Amount:
    """The barriers of roles: a pair for each place of each tile; lines of words, wider than what products of warpgroups
    read, come together (`passes/warps/tiles.py`)."""
    places: dict[str, Amount] = {"shared": 1, "staged": stages}
    narrow = [tile.role for tile in plan.tiles if tile.role in places and tile.width < WORD]
    lines = {tile.role for tile in plan.tiles if tile.role in places and tile.width >= WORD}
    return 2 * BARRIER_BYTES * sum(places[role] for role in [*narrow, *lines])


def shared_bytes(plan: Plan, stages: Amount, grouped: Amount = False) -> Amount:
    """Of a block: results on their way out lie where the tiles were, words only where there is room. Where warpgroups
    multiply, tiles lie in boxes."""
    places = {"shared": 1, "staged": stages, "listed": 1}
    tiles = sum(places[tile.role] * bytes_of_tile(tile, grouped) for tile in plan.tiles if tile.role in places)
    parts = (tile for tile in plan.tiles if tile.role == "parts")
    for tile in parts:
        of_blocks = choice(plan.cluster > 1, tile_bytes((*tile.shape[:-1], 1), tile.width), 0)
        tiles = tiles + choice(tile.shape[-1] > 1, tile_bytes(tile.shape, tile.width), 0) + of_blocks
    leaving = (bytes_of_tile(tile, grouped) for tile in plan.tiles if tile.role in LEAVING and tile.width < WORD)
    return most(tiles, *leaving)


def bytes_of_tile(tile: Tile, in_boxes: Amount) -> Amount:
    """One place of a tile of narrow numbers, which may lie in boxes, or of words."""
    plain = tile_bytes(tile.shape, tile.width)
    return plain if tile.width >= WORD else choice(in_boxes, boxes_bytes(tile.shape, tile.width), plain)


def tile_bytes(shape: tuple[Amount, ...], width: int) -> Amount:
    """One place of a tile, in the layout that the lowering gives it (`cuda.layout.rows_layout`): rows are whole chunks
    of 16 bytes."""
    chunk = 16 // width
    row = row_of(shape)
    size = prod(shape) // row * ceil_div(row, chunk) * chunk * width
    return ceil_div(size, TILE_UNIT) * TILE_UNIT


def boxes_bytes(shape: tuple[Amount, ...], width: int) -> Amount:
    """One place of a tile in boxes, whose rows reach to the end of the last (`dialects.cuda.boxes.reach_of_row`)."""
    row = row_of(shape)
    bytes = row * width
    count = ceil_div(bytes, SPANS[0])
    span: Amount = SPANS[0]
    for each in SPANS[1:]:
        span = choice(each * count >= bytes, each, span)
    reach = choice((row == 1) | (bytes % SPANS[-1] == 0), bytes, count * span)
    size = prod(shape) // row * reach
    return ceil_div(size, TILE_UNIT) * TILE_UNIT


def registers(plan: Plan, machine: Machine) -> Amount:
    """32-bit registers of one thread, however many there are."""
    if not plan.has_products:
        return rounded(BASE_REGISTERS + (STREAM_REGISTERS if plan.streams else 0) + plan.held)
    alone = PRODUCT_BASE + _held(plan, CARRIED, PASSING)
    if is_any(in_turn := comes_in_turn(plan, machine) & plan.has_scores):
        # Nothing is loaded ahead over the barriers between the phases of a step.
        alone = choice(in_turn, least_registers(plan) + LIMITED_TWICE * plan.limited_twice, alone)
    alone = alone + (FROM_SM_90 if machine.capability >= 90 else 0) + _addresses_of_copies(plan)
    apart = {"kept": 1, "partial": WARPGROUP_PARTIAL, "capped": WARPGROUP_CAPPED, "bound": WARPGROUP_BOUND}
    limits = WARPGROUP_LIMIT * sum(tile.role == "limit" for tile in plan.tiles)
    of_group = WARPGROUP_BASE + limits + _held(plan, WARPGROUP_CARRIED, WARPGROUP_PASSING, apart)
    return rounded(choice(are_of_warpgroups(plan, machine), of_group, alone - plan.spared_registers))


def _addresses_of_copies(plan: Plan) -> Amount:
    """Of tiles that the threads of a block do not share out evenly."""
    kept: Amount = 0
    for tile in plan.tiles:
        if tile.role == "staged":
            turns = tile.elements * tile.width / (VECTOR * WARP * plan.warp_count)
            several = (ceil_div(turns, 1) != turns) & (turns > FEW_TURNS)
            kept = kept + choice(several, UNEVEN * least(ceil_div(turns, 1), UNROLLED), 0)
    return kept


def most_of_block(plan: Plan, machine: Machine) -> Amount:
    """Registers of a thread with which one block of single warps fits an SM, each quarter of it its share."""
    limits = machine.limits
    of_quarter = (
        limits.registers_per_sm // limits.register_partitions // ceil_div(plan.warp_count, limits.register_partitions)
    )
    return least(of_quarter // WARP // 8 * 8, limits.registers_per_thread)


def _lacking(plan: Plan, machine: Machine) -> Amount:
    """Registers that a thread lacks even so, if its block is so large that it has fewer than there can be."""
    squeezed = most_of_block(plan, machine)
    if not plan.has_scores:
        return 0
    tests = any(transfer.fed is not None for transfer in plan.transfers)
    lacking = most(0, least_registers(plan) - squeezed - (0 if tests else NOT_LACKED))
    return choice(squeezed < machine.limits.registers_per_thread, ceil_div(lacking, 1), 0)


def least_registers(plan: Plan) -> Amount:
    """What ptxas needs without spilling where it is bound; infinite where it was never tried."""
    if not plan.has_scores:
        return inf
    return PRODUCT_BASE + _held(plan, LEAST_CARRIED, PASSING) + plan.kept_registers


def _held(plan: Plan, carried: float, passing: float, of_group: Mapping[str, float] | None = None) -> Amount:
    """`of_group`: weights of what only warpgroups hold, or hold otherwise."""
    weights = {
        "carried": carried,
        "passing": passing,
        "kept": 0,
        "partial": 0,
        "ahead": AHEAD,
        "capped": 0,
        "dividing": DIVIDING,
        "scanned": 1,
        "moving": 1,
        "address": 1,
        "state": 1,
        "repairing": REPAIRING,
        "value": 1,
        "row": 1,
        "column": 1,
        "bound": 1,
    } | dict(of_group or {})
    held = [(tile, weights[tile.role] * _words(tile, plan)) for tile in plan.tiles if tile.role in weights]
    lasting = sum(words for tile, words in held if tile.stream is None and not _is_on_its_way(tile))
    return lasting + most(*(_held_in(plan, held, stream) for stream in {None, *(tile.stream for tile in plan.tiles)}))


def _held_in(plan: Plan, held: Sequence[tuple[Tile, Amount]], stream: int | None) -> Amount:
    """Beside what stays: in a step of a stream, or outside of all."""
    here = [(tile, words) for tile, words in held if tile.stream == stream and stream is not None]
    addresses = sum(words for tile, words in here if tile.role == "address")
    apart = ("address", "partial")
    made = sum(words for tile, words in here if tile.role not in apart and not _is_on_its_way(tile))
    partial = most(0, *(words for tile, words in here if tile.role == "partial"))
    # What lies in rows is on its way before the products of the step begin, whose results it does not meet.
    loaded = _words_of(plan, "loaded", stream)
    moving = sum(words for tile, words in held if _is_on_its_way(tile) and tile.stream == stream)
    following = _words_of(plan, "next", stream)
    reduced = _words_of(plan, "reduced", stream)
    is_ahead = following <= MOST_WORDS
    ahead, now = choice(is_ahead, NEXT * following, 0), choice(is_ahead, 0, following)
    return addresses + ahead + partial + most(made, loaded + now + reduced, moving)


def loads_ahead(plan: Plan) -> Amount:
    """Whether each step has loaded what the next begins with: as `pipelining` decides it."""
    ahead: Amount = True
    for stream in {tile.stream for tile in plan.tiles}:
        ahead = ahead & (_words_of(plan, "next", stream) <= MOST_WORDS)
    return ahead


def _words_of(plan: Plan, role: str, stream: int | None) -> Amount:
    return sum(_words(tile, plan) for tile in plan.tiles if tile.role == role and tile.stream == stream)


def _is_on_its_way(tile: Tile) -> bool:
    """Whether it is an operand in rows, which takes the place of what was loaded for it."""
    return tile.role == "moving" and tile.of_lane is not None


def _words(tile: Tile, plan: Plan) -> Amount:
    """Registers that a lane needs for its part of a tile."""
    if tile.of_lane is not None:
        return ceil_div(tile.of_lane * tile.width, 4)
    words = ceil_div(tile.elements * tile.width * tile.repeats, 4)
    if tile.role == "column":
        return ceil_div(words, FRAGMENT_LANES)
    if tile.role == "partial":
        registers = ceil_div(words, WARP * plan.warp_count)
        return ceil_div(registers, promoted_parts(registers))
    lanes = WARP // FRAGMENT_LANES if tile.role in ("row", "bound") else WARP  # in a fragment four lanes share a row
    return ceil_div(words, lanes * plan.warp_count)
