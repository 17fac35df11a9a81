"""Whether the stages of a ring bring tiles in time, if memory takes longer than it does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.compiler.amounts import Amount, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.timing.clusters import L2_PORT
from treadle.compiler.cost.timing.time import Timing
from treadle.compiler.machines import Machine

LOADED = 2
"""How many times its latency memory is asked to take, as it does when all processors load."""


def is_late(plan: Plan, machine: Machine, sizes: Mapping[str, int], found: Timing) -> Amount:
    """Where a warp copies for others: a stage that is free is full again when those that are full have been used, or it
    is not. A ring of 2 stages of 96 KiB has as much on its way as one of 4 of 32, and each of these is free earlier."""
    stages, steps = found.footprint.stages, most(plan.steps(sizes), 1)
    blocks, slots = most(plan.blocks(sizes), 1), machine.sms * most(found.blocks_per_sm, 1)
    of_step = found.time_us * 1e-6 * machine.clock * slots / (blocks * steps)
    bytes = sum(each.values(sizes) * each.width for each in plan.transfers if not each.saves) / (blocks * steps)
    brought = LOADED * machine.levels["device"].latency + bytes / L2_PORT
    return (found.footprint.producers > 0) & ((stages < 2) | (most(stages - 1, 1) * of_step < brought))
