"""How long one block keeps each unit of its SM busy, from the instructions that its warps issue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from treadle.compiler.amounts import Amount, choice, is_any, most
from treadle.compiler.cost.kernel.issue import PRODUCT_FLOP, SHARED_BYTES, is_issued
from treadle.compiler.cost.kernel.leaving import leaving_slots
from treadle.compiler.cost.kernel.plan import Issue, Plan
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups
from treadle.compiler.cost.timing.clusters import L2_PORT
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP
from treadle.dialects.cuda.tiles import WORD

OF_PRODUCTS = ("products", "filled", "ldmatrix", "operands", "shared")
"""Instructions that overlap with the products that they feed."""


def block_clocks(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], blocks: Amount, powers_first: Amount
) -> dict[str, Amount]:
    """How long one block keeps each unit of its SM busy. `issue products` is what the products take of `issue`,
    `issue special` what special functions take of `issue others`."""
    clocks: dict[str, Amount] = defaultdict(float)
    grouped = are_of_warpgroups(plan, machine)
    for issue in plan.issues:
        count = issue.count * plan.warp_count * prod(pieces.mean(sizes) for pieces in issue.streams)
        kind, _, format = issue.kind.partition(" ")
        if kind == "leaving":
            clocks["issue others"] += plan.warp_count * _leaving_slots(plan, issue, grouped) / SUB_PARTITIONS
            continue
        count = count * choice(grouped, issue.kind != "ldmatrix", kind != "operands")
        if kind == "lagging":
            count, kind = count * choice(powers_first, 0, 1), "float"
        issued = count * is_issued(issue.kind, grouped) / SUB_PARTITIONS
        if kind == "lanes":
            clocks["issue lanes"] += issued
            continue
        clocks["issue products" if kind in OF_PRODUCTS else "issue others"] += issued
        if kind in SHARED_BYTES:
            clocks["shared"] += count * SHARED_BYTES[kind] / machine.bytes_per_clock("shared")
        elif kind == "products":
            rate = choice(grouped, machine.rates.products(format), machine.products_of_single_warps(format))
            clocks[f"tensor {format}"] += count * PRODUCT_FLOP[format] / rate
        elif kind == "filled":
            clocks[f"tensor {format}"] += (
                choice(grouped, count, 0) * PRODUCT_FLOP[format] / machine.rates.products(format)
            )
        elif kind == "promote":
            clocks["float"] += count * choice(grouped, WARP / machine.rates.float, 0)
        elif kind in ("float", "special"):
            clocks[kind] += count * WARP / (machine.rates.float if kind == "float" else machine.rates.special)
            clocks["issue special"] += issued if kind == "special" else 0
    loaded = sum(transfer.values(sizes) * transfer.width for transfer in plan.transfers)
    clocks["loads"] = loaded / most(blocks, 1) / L2_PORT
    return clocks


def busy_units(clocks: Mapping[str, Amount]) -> dict[str, Amount]:
    """Of these, the units of a processor; whatever warps issue is one of them."""
    units = {unit: used for unit, used in clocks.items() if is_any(used) and not unit.startswith("issue ")}
    return units | {"issue": clocks["issue products"] + clocks["issue others"] + clocks.get("issue lanes", 0)}


def clocks_after(plan: Plan, machine: Machine, grouped: Amount) -> Amount:
    """What the warps of a block issue behind its streams, in clocks of a quarter SM; with ends counted, or what their
    special functions take, if that is longer."""
    found: Amount = 0
    special: Amount = 0
    for issue in plan.issues:
        kind = issue.kind.partition(" ")[0]
        if not issue.streams and kind not in OF_PRODUCTS:
            slots = (
                _leaving_slots(plan, issue, grouped)
                if kind == "leaving"
                else issue.count * is_issued(issue.kind, grouped)
            )
            found = found + slots * plan.warp_count / SUB_PARTITIONS
            special = special + (kind == "special") * issue.count * plan.warp_count * WARP / machine.rates.special
    return most(found, special) if machine.counts_ends else found


def _leaving_slots(plan: Plan, issue: Issue, grouped: Amount) -> Amount:
    return leaving_slots(issue.count, grouped, WORD if issue.kind == "leaving words" else 2, plan.warp_count)
