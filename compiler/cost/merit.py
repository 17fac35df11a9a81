"""What candidates are compared by: the choice of sizes and every search that judges it ask `merit` alone.

The estimate is of products of single warps. From sm_90 on a kernel may get a second form, with roles, in which
warpgroups multiply (`passes/warp_specialization.py`); what the estimate does not know of it is said here."""

from __future__ import annotations

from typing import NamedTuple

from treadle.compiler.cost.plan import Plan
from treadle.compiler.cost.sketch import Sketch
from treadle.compiler.cost.time import Estimate
from treadle.compiler.machines import Machine

WARPGROUP_CAPABILITY = 90
WARPGROUP_DEPTH = 16
WARPGROUP_WARPS = (4, 8, 12)
"""Warps of one, two or three warpgroups. Only their products (`wgmma`) reach the whole rate of the tensor cores."""

ONCE_A_ROW = 8
"""What a warpgroup does once in each step and row (maxima, repairs, waits for products and rings), in scores of that
row: it weighs less in larger pieces. Not measured, but set so that attention keeps its pieces of 128 keys on an H100,
for which the gates of `tests/test_gates.py` are stated."""


class Merit(NamedTuple):
    """Less is better, the first difference counts."""

    single_warps: bool
    """Whether products are of single warps although the machine has warpgroups."""
    spills: bool
    time_us: float
    """The estimate, where warpgroups work on scores with what they do once in each step and row."""


def merit(sketch: Sketch, plan: Plan, machine: Machine, found: Estimate) -> Merit:
    spills = found.footprint.spilled > 0
    if machine.capability < WARPGROUP_CAPABILITY or not plan.has_products:
        return Merit(False, spills, found.time_us)
    if not suits_warpgroups(sketch, plan):
        return Merit(True, spills, found.time_us)
    if not has_scores(plan):
        return Merit(False, spills, found.time_us)
    # Registers that a single warp would lack, consumers take from the producer; the estimate has counted their time.
    mean = sum(pieces.size for pieces in plan.streams) / len(plan.streams)
    return Merit(False, False, found.time_us * (1 + ONCE_A_ROW / mean))


def suits_warpgroups(sketch: Sketch, plan: Plan) -> bool:
    """Whether warpgroups can have 64 rows each, of 16-bit operands."""
    row = sketch.roles.row
    if row is None or sketch.alignment != WARPGROUP_DEPTH:
        return False
    warps = plan.warps.get(row, 0)
    (rows,) = (pieces.size for pieces in plan.groups if pieces.axis == row)
    alone = all(count == 1 for axis, count in plan.warps.items() if axis != row)
    return alone and warps in WARPGROUP_WARPS and rows == WARPGROUP_DEPTH * warps


def has_scores(plan: Plan) -> bool:
    """Whether a step makes values and uses them up."""
    return any(tile.role == "passing" for tile in plan.tiles)
