"""How many blocks of one consumer warpgroup share an SM, since their producers give registers to the consumers.

A consumer of one warpgroup computes scores or multiplies: only blocks beside it fill the other unit meanwhile, and
nothing sets them apart as warpgroups of one block are, which wait for the same tiles. Where a thread needs more than
128 registers, an SM holds one such block, and two where it needs fewer. A producer that copies needs 32: what it gives
back leaves 128 for each consumer of three blocks. They take pieces in turns (`passes/cuda_persist.py`), as fewer larger
ones do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from treadle.compiler.amounts import Amount, choice, is_any, least, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import WARPGROUP, are_of_warpgroups
from treadle.compiler.cost.levels.memory import footprint, registers, ring_bytes, room_of_tiles, shared_bytes
from treadle.compiler.machines import Machine
from treadle.dialects.cuda.tiles import WORD
from treadle.passes.warps.laws import OF_PRODUCER, most_columns_beside, shares_of_blocks

SPARE = 8
"""Registers of a consumer beyond what the model counts: for what ptxas holds beside, of which roles give no more."""

LEAST_STAGES = 2
"""Places of a streamed tile: with one a producer brings nothing ahead."""


def with_residents(plan: Plan, machine: Machine, sizes: Mapping[str, int], asked: int | None = None) -> Plan:
    """The plan, in which it is decided how many blocks share an SM: where so many are `asked` for, however few pieces
    there are."""
    if plan.resident is not None:
        return plan
    alone = are_of_warpgroups(plan, machine) & (plan.warp_count == WARPGROUP)
    if not is_any(alone) or not _only_tensor_copies(plan):
        return replace(plan, resident=1)
    held, blocks, found = footprint(plan, machine).blocks_on(machine), plan.blocks(sizes), 1
    for resident in OF_PRODUCER if asked is None else {asked} & OF_PRODUCER.keys():
        fits = alone & _fits(replace(plan, resident=resident), machine, resident)
        pays = (held < resident) & (blocks >= resident * machine.sms)
        found = choice(fits & (pays if asked is None else True), resident, found)
    return replace(plan, resident=found)


def why_none_share(plan: Plan, machine: Machine, blocks: int) -> str:
    """Why so many blocks share no SM in any of the candidates of a plan."""
    if blocks not in OF_PRODUCER:
        return f"only {' or '.join(map(str, OF_PRODUCER))} may"
    alone = are_of_warpgroups(plan, machine) & (plan.warp_count == WARPGROUP)
    if not is_any(alone):
        return "none of its pieces is for one warpgroup that multiplies, beside one that copies"
    if not _only_tensor_copies(plan):
        return "what brings its tiles does more than start tensor copies, for which it needs its registers"
    each = np.broadcast_to(registers(replace(plan, resident=blocks), machine), np.shape(alone))
    _, granted = shares_of_blocks(blocks)
    return (
        f"a thread has {granted} registers then, and needs about {int(np.min(each[alone])) + SPARE} at least; or "
        "shared memory has no room for two places of each tile"
    )


def _only_tensor_copies(plan: Plan) -> bool:
    """Whether the producer does nothing but start copies of operands: with lines to copy, or entries and limits to
    load, which are words, it needs its registers."""
    by_lanes = any(issue.kind == "lanes" for issue in plan.issues)
    words = any(each.width >= WORD for each in plan.transfers if not each.saves)
    return not by_lanes and not words and not any(tile.role == "listed" for tile in plan.tiles)


def _fits(plan: Plan, machine: Machine, resident: int) -> Amount:
    """Whether so many blocks have room for their registers, for the sums of a product among those of the start, and for
    tiles that come ahead."""
    accumulators = (tile.elements for tile in plan.tiles if tile.role in ("carried", "passing") and tile.width == 4)
    rows = least(*(pieces.size for pieces in plan.groups if pieces.axis == plan.row))
    columns = most(0, *accumulators) / rows
    size = shared_bytes(plan, LEAST_STAGES, True) + ring_bytes(plan, LEAST_STAGES)
    _, granted = shares_of_blocks(resident)
    return (
        (registers(plan, machine) + SPARE <= granted)
        & (columns <= most_columns_beside(resident))
        & (size <= room_of_tiles(plan, machine))
    )
