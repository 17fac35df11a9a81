"""A time estimate: how long the units of the machine are busy (`units`), how long a warp takes and waits (`rounds`),
and how blocks share the processors (`grid`). Over the whole launch the traffic of device memory and of L2 is a bound
as well (`traffic`), of which, with the rates that last, neither hides all of the other (`tiles_in_flight`). An
estimate, to choose by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from treadle.compiler.amounts import Amount, choice, is_any, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import takes_powers_first
from treadle.compiler.cost.levels.memory import Footprint, footprint
from treadle.compiler.cost.timing.clusters import L2_PORT, Shape, bytes_spared, cluster_of, shapes_of
from treadle.compiler.cost.timing.grid import Grid
from treadle.compiler.cost.timing.rounds import begin_clocks, round_of
from treadle.compiler.cost.timing.tiles_in_flight import clocks_beside_memory, tiles_in_flight
from treadle.compiler.cost.timing.traffic import addition_clocks, traffic_clocks
from treadle.compiler.cost.timing.turns import Made, bytes_in_turns, can_take_turns, together
from treadle.compiler.cost.timing.units import block_clocks, busy_units
from treadle.compiler.machines import Machine

STEPS_OF_CLOCK = 4
"""Until how long tensor cores multiply and device memory works, and at which clock, fit each other."""


@dataclass(frozen=True)
class Estimate:
    """`time_us` is an estimate; `units_us` says how long each unit is busy, all SMs sharing the work."""

    time_us: float
    bottleneck: str
    units_us: Mapping[str, float]
    footprint: Footprint
    blocks: int
    blocks_per_sm: int
    limited_by: str
    """What keeps an SM from holding more blocks: `registers`, `shared memory` or `threads`."""
    waves: float
    in_turns: bool = False
    """Whether as many blocks as run at a time take one piece after another."""
    by_piece: bool = False
    """Whether it could, but blocks of their own, several on an SM, take less time."""
    cluster: Shape[str] | None = None
    """Blocks that bring together what they read alike; None where each reads by itself."""
    at_a_time: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many pieces along each axis of the grid are worked on at a time."""


@dataclass(frozen=True)
class Timing:
    """Of one plan, or of many."""

    time_us: Amount
    """Infinite where not one block fits on an SM."""
    units_us: Mapping[str, Amount]
    """How long each is busy, all SMs sharing the work."""
    footprint: Footprint
    blocks: Amount
    blocks_per_sm: Amount
    in_turns: Amount
    """Whether as many blocks as run at a time take one piece after another."""
    cluster: Amount
    """The number of the cluster among `clusters.shapes_of`, from 1 on; 0 for none."""


def timing(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], made: Made | None = None, needs: Footprint | None = None
) -> Timing:
    """Of a plan, or with arrays for the sizes of its pieces of as many; `made` says what is known of a kernel that is
    there already, and `needs` what a block takes where the same plan was timed at another clock."""
    needs, blocks = needs or footprint(plan, machine), plan.blocks(sizes)
    powers_first = takes_powers_first(plan, machine, needs.shared_bytes) & (made is None or made.powers_first)
    clocks = block_clocks(plan, machine, sizes, blocks, powers_first)
    products = sum(used for unit, used in clocks.items() if unit.startswith("tensor"))
    has_clusters = made is None or made.has_clusters
    cluster = cluster_of(plan, machine, sizes, products) if has_clusters else 0
    spared = bytes_spared(plan, sizes, cluster)
    clocks["loads"] -= spared / most(blocks, 1) / L2_PORT
    round_ = round_of(plan, machine, sizes, clocks, needs, powers_first)
    grid = Grid(plan, machine, sizes, made, needs, blocks, round_, powers_first)
    on_sms, turns = grid.clocks()
    at_a_time = choice(turns, needs.resident, most(grid.resident, 1))
    slots = machine.sms * at_a_time
    traffic = traffic_clocks(plan, machine, sizes, slots, turns, spared) | addition_clocks(plan, machine, sizes)
    if not plan.has_products:
        on_sms = grid.filled_by_others(on_sms, traffic["device memory"])
    busy = most(on_sms, begin_clocks(machine) + most(*traffic.values()))
    if machine.counts_queues:
        busy = most(
            busy, _in_line(grid, clocks, turns, traffic["device memory"], tiles_in_flight(plan, needs, at_a_time))
        )
    units = {unit: used * blocks / machine.sms for unit, used in busy_units(clocks).items()} | traffic
    in_us = {unit: _microseconds(used, machine) for unit, used in units.items()}
    return Timing(
        _microseconds(choice(grid.resident > 0, busy, inf), machine),
        in_us,
        needs,
        blocks,
        choice(grid.resident > 0, at_a_time, 0),
        turns,
        cluster,
    )


def _in_line(grid: Grid, clocks: Mapping[str, Amount], turns: Amount, memory: Amount, tiles: Amount) -> Amount:
    """Until all is done by processors and by device memory, which takes so long for that, with so many tiles on their
    way between both; 0 if there are none. How long processors wait for memory follows from that, so that they are
    asked how long they take where they do not."""
    if not is_any(tiles):
        return 0
    fast = grid.machine.with_endless("device")
    round_ = round_of(grid.plan, fast, grid.sizes, clocks, grid.needs, grid.powers_first)
    on_sms, _ = replace(grid, machine=fast, round=round_).clocks(turns)
    begin = begin_clocks(fast)
    return begin + clocks_beside_memory(most(on_sms - begin, 0), memory, tiles)


def estimate(plan: Plan, machine: Machine, sizes: Mapping[str, int], made: Made | None = None) -> Estimate | None:
    """None where not one block fits on an SM."""
    found = timing(plan, machine, sizes, made)
    if found.blocks_per_sm == 0:
        return None
    clock = machine.clock
    for _ in range(STEPS_OF_CLOCK if machine.loaded_clock else 0):
        loaded = machine.under_load(*_loads(found))
        if loaded.clock == clock:
            break  # as all further steps would find
        clock, found = loaded.clock, timing(plan, loaded, sizes, made, found.footprint)
    needs, in_turns = found.footprint, bool(found.in_turns)
    if in_turns:
        twice = made is None or made.twice
        needs = replace(needs, shared_bytes=int(bytes_in_turns(plan, needs.shared_bytes, machine, twice)))
    slots = machine.sms * found.blocks_per_sm
    return Estimate(
        time_us=float(found.time_us),
        bottleneck=_bottleneck(found.units_us, found.time_us),
        units_us={unit: float(used) for unit, used in found.units_us.items()},
        footprint=needs,
        blocks=found.blocks,
        blocks_per_sm=found.blocks_per_sm,
        limited_by=_limit(machine, found.footprint, found.blocks_per_sm),
        waves=found.blocks / (machine.sms * found.blocks_per_sm),
        in_turns=in_turns,
        by_piece=bool(can_take_turns(plan, machine, found.blocks, found.footprint.shared_bytes)) and not in_turns,
        cluster=shapes_of(plan)[int(found.cluster) - 1] if found.cluster else None,
        at_a_time={axis: int(count) for axis, count in together(plan, machine, sizes, slots, in_turns).items()},
    )


def _loads(found: Timing) -> tuple[float, float]:
    """Of the time, for which tensor cores multiply, and for which device memory works."""
    tensor = sum(used for unit, used in found.units_us.items() if unit.startswith("tensor"))
    return min(1.0, tensor / found.time_us), min(1.0, found.units_us["device memory"] / found.time_us)


def least_time(machine: Machine) -> float:
    """Of a kernel that loads and saves anything at all, with its launch."""
    return _microseconds(begin_clocks(machine), machine) + 1e6 * machine.launch


def _limit(machine: Machine, needs: Footprint, resident: int) -> str:
    if replace(needs, registers_taken=1).blocks_on(machine) > resident:
        return "registers"
    return (
        "shared memory"
        if replace(needs, registers_taken=1, shared_bytes=0).blocks_on(machine) > resident
        else "threads"
    )


def _microseconds(clocks: Amount, machine: Machine) -> Amount:
    return clocks / machine.clock * 1e6


def _bottleneck(units: Mapping[str, float], total: float) -> str:
    """The unit that is busy longest, or `latency` if even that one idles half of the time."""
    if not units or total == 0:
        return "nothing"
    unit = max(units, key=lambda name: units[name])
    return unit if units[unit] >= total / 2 else "latency"
