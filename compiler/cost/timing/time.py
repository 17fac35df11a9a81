"""A time estimate: how long the units of the machine are busy, and how long a warp waits.

A warp goes round a line of two stations: products, while operands are read and multiplied (these overlap), and
scalar work with everything else that is issued; it also waits, for first loads and at barriers. `n` warps on a quarter
of an SM share the stations: mean value analysis of a closed line says how long a round takes them. No unit is ever
busier than the whole time. Blocks run in waves; over the whole launch the traffic of device memory and of L2 is a
bound as well. An estimate, to choose by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, prod

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, is_any, least, most
from treadle.compiler.cost.kernel.issue import PRODUCT_FLOP, SHARED_BYTES, is_issued
from treadle.compiler.cost.kernel.leaving import leaving_slots
from treadle.compiler.cost.kernel.plan import Issue, Plan
from treadle.compiler.cost.kernel.warpgroups import (
    are_of_warpgroups,
    computes_in_order,
    computing,
    one_after_another,
    takes_powers_first,
    waited_in_scores,
)
from treadle.compiler.cost.levels.memory import Footprint, comes_in_turn, footprint, loads_ahead
from treadle.compiler.cost.timing.between import (
    Piece,
    clocks_of_ends,
    ends_of_block,
    exposed,
    exposed_loops,
    has_rest,
    mean_drains,
    mean_steps,
    waits_for_tiles,
)
from treadle.compiler.cost.timing.clusters import L2_PORT, Shape, bytes_spared, cluster_of, shapes_of
from treadle.compiler.cost.timing.traffic import traffic_clocks
from treadle.compiler.cost.timing.turns import (
    Made,
    bytes_in_turns,
    can_take_turns,
    clocks_in_turns,
    holds_twice,
    together,
    uneven_share,
)
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP
from treadle.dialects.cuda.tiles import WORD

LAUNCH_CLOCKS = 1000
"""From the start of a block to its first load, and from its last result to its end."""

TURN_CLOCKS = 60
"""A turn of a pipelined loop: the wait, the barrier, and operands for the first product."""

WARPGROUP_CLOCKS = 100
"""The same where warpgroups have roles: the ring, the start of a product and its way through the tensor core. Not
measured."""

STEPS_OF_CLOCK = 4
"""Until how long tensor cores multiply and device memory works, and at which clock, fit each other."""

SPILL_CLOCKS = 4
"""For each register that is missing, in each turn: a store and a load of a thread's own memory."""

MEETING_CLOCKS = 90
"""Where warps that share a row exchange their parts of a result: a write, a barrier, a read. Not measured."""

CLUSTER_CLOCKS = 450
"""Where blocks that share a row do: their barrier, and reads of each other's memory, which take some 180 clocks each
(Luo et al., arXiv 2402.13499, section on distributed shared memory). Not measured."""

EXPOSED = 0.1
"""The part of the reads and the issue of products that does not hide behind the multiplication, or the other way
round: no unit of three is busy all the time."""

OF_PRODUCTS = ("products", "filled", "ldmatrix", "operands", "shared")
"""Instructions that overlap with the products that they feed."""


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
    """Whether a block on each SM takes one piece after another."""
    by_piece: bool = False
    """Whether it could, but blocks of their own, several on an SM, take less time."""
    cluster: Shape[str] | None = None
    """Blocks that bring together what they read alike; None where each reads by itself."""
    at_a_time: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many pieces along each axis of the grid are worked on at a time."""


@dataclass(frozen=True)
class _Round:
    """What one warp does in all, in clocks of its quarter of an SM."""

    stations: tuple[Amount, Amount]
    piece: Piece
    """The same of a warpgroup."""
    busiest: Amount
    """Of all units."""
    fill: Amount
    """Until the first tiles are there, for which all warps of a block wait."""
    waits: Amount
    """After that."""
    computed: Amount = 0
    """What warpgroups compute, where that is one after another; and for what of that they wait."""
    waited: Amount = 0
    orderly: Amount = False
    """Whether they are warpgroups: those take turns, so that a station has no queue."""
    idle: Amount = 0
    """Of what warpgroups wait, the part that all of a block wait for at a time: tiles that have one place."""
    exposed: Amount = 0
    """Of a piece, what does not hide behind another one, nor within it one loop behind another."""

    runs_on: Amount = False
    """Whether products wait for no scores but those that they multiply: turns take their powers first."""

    def clocks(self, warps: Amount) -> Amount:
        """A round of so many warps on one quarter: warps meet by chance, by mean value analysis."""
        waiting = [0.0 for _ in self.stations]
        total = 0.0
        for n in range(1, int(np.max(warps)) + 1):
            times = [demand * (1 + queue) for demand, queue in zip(self.stations, waiting, strict=True)]
            found = self.fill + self.waits + sum(times)
            total = choice(n <= warps, found, total)
            waiting = [n * time / found for time in times]
        orderly = most(self.fill + self.waits + sum(self.stations), self._busy(warps))
        return choice(self.orderly, orderly, most(total, self._busy(warps)))

    def first(self, warps: Amount) -> Amount:
        """At least of a round whose units have nothing to do until the first tiles are there."""
        return self.fill + self._busy(warps)

    def _busy(self, warps: Amount) -> Amount:
        exposed = sum(self.stations) * choice(self.runs_on, 0, EXPOSED)
        orderly = most(self.busiest + exposed, computing(warps, self.computed, self.waited))
        return choice(self.orderly, warps * orderly + self.idle + self.exposed, warps * self.busiest)


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
    """Whether a block on each SM takes one piece after another."""
    cluster: Amount
    """The number of the cluster among `clusters.shapes_of`, from 1 on; 0 for none."""


def timing(plan: Plan, machine: Machine, sizes: Mapping[str, int], made: Made | None = None) -> Timing:
    needs = footprint(plan, machine)
    resident = needs.blocks_on(machine)
    blocks = plan.blocks(sizes)
    powers_first = takes_powers_first(plan, machine, needs.shared_bytes) & (made is None or made.powers_first)
    tested_first = made is not None and made.tested_first
    clocks = _block_clocks(plan, machine, sizes, blocks, powers_first)
    products = sum(used for unit, used in clocks.items() if unit.startswith("tensor"))
    has_clusters = made is None or made.has_clusters
    cluster = cluster_of(plan, machine, sizes, products) if has_clusters else 0
    spared = bytes_spared(plan, sizes, cluster)
    clocks["loads"] -= spared / most(blocks, 1) / L2_PORT
    round_ = _round(plan, machine, sizes, clocks, needs, powers_first)
    drained: Amount = 0
    if made is not None and not made.loops_carry:  # other blocks of an SM hide it
        drained = choice(resident == 1, mean_drains(plan, sizes) * round_.piece.drained(), 0)
        round_ = replace(round_, exposed=drained)

    # Beside a block that has an SM to itself nothing hides how it begins and ends.
    waited = _waited(plan) if plan.has_scores else 0
    ends = ends_of_block(plan, machine, sizes, round_.piece, waited, powers_first, tested_first)
    lone = round_.orderly & (resident == 1) if machine.counts_ends else False
    of_blocks = replace(round_, exposed=drained + choice(lone, ends, 0))

    def beside(count: Amount, round_: _Round = of_blocks) -> tuple[Amount, Amount]:
        """So many blocks on one SM, and the same when a launch begins."""
        warps = most(1, ceil_div(count * needs.warps, SUB_PARTITIONS))
        clocks = round_.clocks(warps)
        first = most(clocks, round_.first(warps))
        return choice(lone, first, clocks), first

    slots = machine.sms * most(resident, 1)
    full, rest = blocks // slots, blocks % slots
    of_rest, only = beside(ceil_div(rest, machine.sms))
    on_sms = choice(rest > 0, choice(full > 0, of_rest, only), 0.0)
    if np.any(full):
        next_, first = beside(resident)
        on_sms = choice(full > 0, on_sms + first + (full - 1) * next_, on_sms)
        if share := uneven_share(plan, machine, sizes, resident, False, made):
            on_sms = first + (share * blocks / slots - 1) * next_
    turns = can_take_turns(plan, machine, blocks, needs.shared_bytes)
    if np.any(turns):
        warps = ceil_div(needs.warps, SUB_PARTITIONS)
        overlaps = made is None or made.pieces_overlap
        twice = holds_twice(plan, needs.shared_bytes, machine) & (made is None or made.twice)
        lost = exposed(plan, machine, round_.piece, overlaps, twice)
        lost = lost + exposed_loops(plan, machine, sizes, round_.piece, waited, powers_first, tested_first)
        following = replace(round_, fill=0, exposed=drained + lost)
        filled = following.clocks(warps) + waits_for_tiles(plan, machine, round_.piece, overlaps, twice)
        _, first = beside(1, replace(round_, exposed=drained + ends))
        in_turns = clocks_in_turns(first, filled, blocks, machine)
        # Where an SM holds one block, the next begins when it has ended.
        begun = clocks_in_turns(first, first, blocks, machine)
        if share := uneven_share(plan, machine, sizes, resident, True, made):
            in_turns = first + (share * blocks / machine.sms - 1) * filled
            begun = first * uneven_share(plan, machine, sizes, 1, False, made) * blocks / machine.sms
        by_piece = choice(turns & (resident == 1), begun, on_sms)
        turns = turns & (in_turns < by_piece if made is None else made.in_turns)
        on_sms = choice(turns, in_turns, by_piece)
    slots = choice(turns, machine.sms, slots)
    traffic = traffic_clocks(plan, machine, sizes, slots, turns, spared)
    if not plan.has_products:
        # Threads wait for what their block loads, so that device memory works or the block computes: others fill in,
        # as many as there are.
        alone = most(blocks / machine.sms, 1) * round_.clocks(ceil_div(needs.warps, SUB_PARTITIONS))
        others = most(least(resident, ceil_div(blocks, machine.sms)), 1)
        on_sms = most(on_sms, (traffic["device memory"] + alone) / others)
    units = {unit: used * blocks / machine.sms for unit, used in _units(clocks).items()} | traffic
    total = choice(resident > 0, most(on_sms, _begin_clocks(machine) + most(*traffic.values())), inf)
    in_us = {unit: _microseconds(used, machine) for unit, used in units.items()}
    held = choice(turns, 1, resident)
    return Timing(_microseconds(total, machine), in_us, needs, blocks, choice(resident > 0, held, 0), turns, cluster)


def estimate(plan: Plan, machine: Machine, sizes: Mapping[str, int], made: Made | None = None) -> Estimate | None:
    """None where not one block fits on an SM."""
    found = timing(plan, machine, sizes, made)
    if found.blocks_per_sm == 0:
        return None
    for _ in range(STEPS_OF_CLOCK if machine.loaded_clock else 0):
        found = timing(plan, machine.under_load(*_loads(found)), sizes, made)
    needs, in_turns = found.footprint, bool(found.in_turns)
    if in_turns:
        twice = made is None or made.twice
        needs = replace(needs, shared_bytes=int(bytes_in_turns(plan, needs.shared_bytes, machine, twice)))
    slots = machine.sms * (1 if in_turns else found.blocks_per_sm)
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
    return _microseconds(_begin_clocks(machine), machine) + 1e6 * machine.launch


def _begin_clocks(machine: Machine) -> float:
    """From the start of a block until its first tiles are there, and from its last result to its end."""
    return LAUNCH_CLOCKS + machine.levels["device"].latency


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


def _block_clocks(
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


def _units(clocks: Mapping[str, Amount]) -> dict[str, Amount]:
    units = {unit: used for unit, used in clocks.items() if is_any(used) and not unit.startswith("issue ")}
    return units | {"issue": clocks["issue products"] + clocks["issue others"] + clocks.get("issue lanes", 0)}


def _round(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    clocks: Mapping[str, Amount],
    needs: Footprint,
    powers_first: Amount,
) -> _Round:
    """A quarter of an SM has a quarter of each unit, and of the warps."""
    share = SUB_PARTITIONS / needs.warps
    tensor = most(0.0, *(used for unit, used in clocks.items() if unit.startswith("tensor")))
    feeding = (tensor, clocks["shared"] if plan.has_products else 0.0, clocks["issue products"])
    longest = most(*feeding)
    products = share * (longest + EXPOSED * (sum(feeding) - longest))
    steps = plan.steps(sizes)
    latency = machine.levels["device"].latency
    fill = _begin_clocks(machine)
    grouped = are_of_warpgroups(plan, machine)
    if machine.counts_ends:
        fill = fill + choice(grouped, clocks_of_ends(plan, machine), 0)
    in_order = 0.0
    if computes_in_order(plan, machine):
        in_order = one_after_another(clocks["special"], clocks["issue others"] - clocks["issue special"])
    scalars = share * most(clocks["float"], clocks["special"], clocks["issue others"], in_order)
    after = _clocks_after(plan, machine, grouped)
    last = plan.last_product(sizes) if plan.delays else 0
    piece = Piece(
        needs.warps / SUB_PARTITIONS,
        products,
        most(scalars - share * after, 0),
        mean_steps(plan, sizes),
        last,
        after,
        plan.has_scores,
    )
    busiest = share * most(0.0, *_units(clocks).values())
    # A delayed product runs while its warpgroup works on the scores of the next turn.
    if plan.delays:
        hidden = tensor * share * plan.last_product(sizes)
        if machine.counts_ends:  # that of the last step has no next one
            hidden = hidden * most(1 - (1 + has_rest(plan, sizes)) / most(mean_steps(plan, sizes), 1), 0)
        scalars = choice(grouped, most(scalars - hidden, 0), scalars)
    alone = latency + share * clocks["loads"] / most(steps, 1)
    # What a step begins with is there already: its tiles, and what it loads to registers.
    staged = needs.stages > 1 if any(tile.role == "staged" for tile in plan.tiles) else _has_next(plan)
    is_fed = staged & (grouped | loads_ahead(plan))
    # With scores a step starts two products, one behind the other.
    starts = 2 if machine.counts_ends and plan.has_scores else 1
    waits_of_step = choice(is_fed, choice(grouped, starts * WARPGROUP_CLOCKS, TURN_CLOCKS), alone)
    in_turn = comes_in_turn(plan, machine) & loads_ahead(plan)
    if is_any(in_turn):
        # Of each phase what its copies take longer than the products of another one.
        late = most(
            latency + (clocks["loads"] - needs.warps / SUB_PARTITIONS * products) / most(steps, 1) / plan.phases, 0
        )
        waits_of_step = choice(in_turn, plan.phases * (TURN_CLOCKS + late), waits_of_step)
    waits = steps * (waits_of_step + SPILL_CLOCKS * needs.spilled) + MEETING_CLOCKS * _meetings(plan, sizes)
    idle = choice(is_fed, 0, steps * alone)
    waited = steps * _waited(plan) if computes_in_order(plan, machine) else 0
    waits = waits + choice(grouped, waited, 0)
    computed = share * in_order
    runs_on = powers_first & machine.counts_ends
    return _Round((products, scalars), piece, busiest, fill, waits, computed, waited, grouped, idle, runs_on=runs_on)


def _waited(plan: Plan) -> Amount:
    """Clocks of a step for which a warp that computes scores has nothing to issue."""
    reductions = sum(tile.role == "row" for tile in plan.tiles)
    return waited_in_scores(reductions, plan.streams[-1].size if plan.streams else 0)


def _clocks_after(plan: Plan, machine: Machine, grouped: Amount) -> Amount:
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


def _meetings(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    """How often warps of a block exchange their parts of a result: after a stream, or in each of its steps. Blocks of a
    cluster as so many times as they take longer."""
    found: Amount = 0
    for tile in plan.tiles:
        if tile.role == "parts":
            times = 1 if tile.stream is None else plan.streams[-1].count(sizes)
            of_blocks = (plan.cluster > 1) * (CLUSTER_CLOCKS / MEETING_CLOCKS)
            found = found + ((tile.shape[-1] > 1) + of_blocks) * times
    return found


def _has_next(plan: Plan) -> bool:
    """Whether steps begin with what is loaded to registers."""
    return any(tile.role == "next" for tile in plan.tiles)
