"""How the warps of a quarter of an SM overlap in the loops of a kernel: the pipeline schedule of one step of each of
its streams, read off the instructions of an explicit kernel.

Streams run one after another, each with steps of its own. A step falls into stages where its instructions change
between products (with the reads that feed them) and scalar work. A warp does its stages in order; a stage takes as many
clocks as the busiest part of its unit does, or where that is in order as all of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.compiler.cost.kernel.issue import PRODUCT_FLOP, SHARED_BYTES
from treadle.compiler.cost.kernel.plan import Issue, Plan
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups, computes_in_order, one_after_another
from treadle.compiler.cost.timing.schedule import Stage, Timeline, schedule
from treadle.compiler.cost.timing.units import OF_PRODUCTS
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP

MOST_WORKERS = 8
"""Warps on a quarter whose timeline is worked out; more change it no more."""


@dataclass(frozen=True)
class Overlap:
    """The loop of one stream when it repeats itself."""

    stream: int
    """Its place among the streams of the plan."""
    warps: int
    """On a quarter of an SM."""
    stages: tuple[Stage, ...]
    """Of one warp in one step, in clocks of a quarter."""
    clocks_of_step: float
    """From one step of all these warps to the next."""
    use: dict[str, float]
    """The part of that time for which each unit is busy."""
    timeline: Timeline


def unit_clocks(issues: Sequence[Issue], machine: Machine, grouped: bool) -> dict[str, float]:
    """Clocks for which one warp keeps the units of its quarter busy, each instruction done once. `grouped`: whether it
    is one of a warpgroup, which multiplies at the whole rate."""
    clocks: dict[str, float] = defaultdict(float)
    for issue in issues:
        kind, _, format = issue.kind.partition(" ")
        clocks["issue"] += 0 if kind in ("operands", "filled") else issue.count
        if kind in SHARED_BYTES:
            clocks["shared"] += SUB_PARTITIONS * issue.count * SHARED_BYTES[kind] / machine.bytes_per_clock("shared")
        elif kind in ("products", "filled"):
            rate = machine.rates.products(format) if grouped else machine.products_of_single_warps(format)
            clocks[f"tensor {format}"] += SUB_PARTITIONS * issue.count * PRODUCT_FLOP[format] / rate
        elif kind == "promote":
            clocks["float"] += SUB_PARTITIONS * issue.count * WARP / machine.rates.float
        elif kind in ("float", "lagging", "special"):
            rate = machine.rates.special if kind == "special" else machine.rates.float
            clocks["special" if kind == "special" else "float"] += SUB_PARTITIONS * issue.count * WARP / rate
    return dict(clocks)


def overlaps(plan: Plan, machine: Machine, blocks_per_sm: int) -> tuple[Overlap, ...]:
    """The schedule of a step of each stream that computes, in the order of the program. `plan` is that of an explicit
    kernel, whose instructions stand in that order."""
    warps = max(1, -(-plan.warp_count * max(blocks_per_sm, 1) // SUB_PARTITIONS))
    grouped, in_order = bool(are_of_warpgroups(plan, machine)), computes_in_order(plan, machine)
    found: list[Overlap] = []
    for stream, issues in sorted(_by_stream(plan, grouped).items()):
        stages = tuple(_stages(issues, machine, grouped, in_order))
        timeline = schedule(stages, min(warps, MOST_WORKERS))
        clocks = timeline.clocks_of_step * warps / timeline.workers
        found.append(Overlap(stream, warps, stages, clocks, dict(timeline.use), timeline))
    return tuple(found)


def _by_stream(plan: Plan, grouped: bool) -> dict[int, list[Issue]]:
    """What a warp that computes issues in a step of each stream."""
    # A warpgroup's products read their operands themselves, and a producer copies.
    others = ("ldmatrix", "copies") if grouped else ("operands", "promote", "filled")
    found: dict[int, list[Issue]] = defaultdict(list)
    for issue in plan.issues:
        if issue.stream is not None and issue.kind.split()[0] not in ("turn", "lanes", *others):
            found[issue.stream].append(issue)
    return found


def _stages(issues: Sequence[Issue], machine: Machine, grouped: bool, in_order: bool) -> Iterator[Stage]:
    runs: list[tuple[str, list[Issue]]] = []
    feeds = "tensor" if any(issue.kind.startswith("products") for issue in issues) else "shared"
    for issue in issues:
        unit = feeds if issue.kind.split()[0] in OF_PRODUCTS else "scalar"
        if not runs or runs[-1][0] != unit:
            runs.append((unit, []))
        runs[-1][1].append(issue)
    for i, (unit, together) in enumerate(runs):
        before = f"{runs[i - 1][0]} {i}" if i else f"{runs[-1][0]} {len(runs)}"
        busy = unit_clocks(together, machine, grouped)
        clocks = max(busy.values())
        if in_order and unit == "scalar":
            special = sum(issue.count for issue in together if issue.kind == "special")
            clocks = max(clocks, float(one_after_another(busy.get("special", 0.0), busy["issue"] - special)))
        # One stage alone waits for nothing but its unit.
        after = ((before, 0 if i else 1),) if len(runs) > 1 else ()
        yield Stage(f"{unit} {i + 1}", unit, clocks, after)
