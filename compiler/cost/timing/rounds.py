"""A round of a warp: what it has the units do in a block, and for what it waits.

A warp goes round a line of two stations: products, while operands are read and multiplied (these overlap), and
scalar work with everything else that is issued; it also waits, for first loads and at barriers. `n` warps on a quarter
of an SM share the stations: mean value analysis of a closed line says how long a round takes them. No unit is ever
busier than the whole time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.compiler.amounts import Amount, choice, is_any, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import (
    are_of_warpgroups,
    computes_in_order,
    computing,
    one_after_another,
    waited_in_scores,
)
from treadle.compiler.cost.levels.memory import POSITION_STAGES, Footprint, comes_in_turn, loads_ahead
from treadle.compiler.cost.timing.between import Piece, clocks_of_ends, has_rest, mean_steps
from treadle.compiler.cost.timing.line import clocks_of_line
from treadle.compiler.cost.timing.units import busy_units, clocks_after
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import FIRST_WITH_ASYNCHRONOUS_COPIES, SUB_PARTITIONS

LAUNCH_CLOCKS = 1000
"""From the start of a block to its first load, and from its last result to its end."""

TURN_CLOCKS = 60
"""A turn of a pipelined loop: the wait, the barrier, and operands for the first product."""

WARPGROUP_CLOCKS = 100
"""The same where warpgroups have roles: the ring, the start of a product and its way through the tensor core. Not
measured."""

SHUFFLE_CLOCKS = 30
"""What lanes wait for what they exchange, and add it. Not measured."""

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


@dataclass(frozen=True)
class Round:
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
        total = clocks_of_line(self.stations, warps, self.fill + self.waits)
        orderly = most(self.fill + self.waits + sum(self.stations), self._busy(warps))
        return choice(self.orderly, orderly, most(total, self._busy(warps)))

    def first(self, warps: Amount) -> Amount:
        """At least of a round whose units have nothing to do until the first tiles are there."""
        return self.fill + self._busy(warps)

    def _busy(self, warps: Amount) -> Amount:
        exposed = sum(self.stations) * choice(self.runs_on, 0, EXPOSED)
        orderly = most(self.busiest + exposed, computing(warps, self.computed, self.waited))
        return choice(self.orderly, warps * orderly + self.idle + self.exposed, warps * self.busiest)


def round_of(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    clocks: Mapping[str, Amount],
    needs: Footprint,
    powers_first: Amount,
) -> Round:
    """The round of each warp, from how long its block keeps each unit busy (`clocks`). A quarter of an SM has a quarter
    of each unit, and of the warps."""
    share = SUB_PARTITIONS / needs.warps
    grouped = are_of_warpgroups(plan, machine)
    products = share * _of_products(plan, clocks)
    in_order = 0.0
    if computes_in_order(plan, machine):
        in_order = one_after_another(clocks["special"], clocks["issue others"] - clocks["issue special"])
    scalars = share * most(clocks["float"], clocks["special"], clocks["issue others"], in_order)
    after = clocks_after(plan, machine, grouped)
    piece = Piece(
        needs.warps / SUB_PARTITIONS,
        products,
        most(scalars - share * after, 0),
        mean_steps(plan, sizes),
        plan.last_product(sizes) if plan.delays else 0,
        after,
        plan.has_scores,
    )
    if plan.delays:
        scalars = choice(grouped, most(scalars - share * _hidden(plan, machine, sizes, clocks), 0), scalars)
    fill = begin_clocks(machine)
    if machine.counts_ends:
        fill = fill + choice(grouped, clocks_of_ends(plan, machine), 0)
    alone = needs.resident == 1
    waited: Amount = 0
    if computes_in_order(plan, machine):
        # Beside other blocks no warpgroup has its turn: one that takes powers first waits for no maximum.
        known = choice(powers_first & (needs.resident > 1), 1, 0)
        waited = plan.steps(sizes) * waited_of_step(plan, known)
    waits, idle = _waits(plan, machine, sizes, clocks, needs, products)
    return Round(
        (products, scalars),
        piece,
        busiest=share * most(0.0, *busy_units(clocks).values()),
        fill=fill,
        waits=waits + choice(grouped, waited, 0),
        computed=share * in_order,
        waited=waited,
        orderly=grouped & alone,
        idle=idle,
        runs_on=powers_first & machine.counts_ends,
    )


def begin_clocks(machine: Machine) -> float:
    """From the start of a block until its first tiles are there, and from its last result to its end."""
    return LAUNCH_CLOCKS + machine.levels["device"].latency


def _of_products(plan: Plan, clocks: Mapping[str, Amount]) -> Amount:
    """Of a block: its tensor cores, what feeds them from shared memory, and the issue of products, which overlap."""
    feeding = (_tensor(clocks), clocks["shared"] if plan.has_products else 0.0, clocks["issue products"])
    longest = most(*feeding)
    return longest + EXPOSED * (sum(feeding) - longest)


def _tensor(clocks: Mapping[str, Amount]) -> Amount:
    return most(0.0, *(used for unit, used in clocks.items() if unit.startswith("tensor")))


def _hidden(plan: Plan, machine: Machine, sizes: Mapping[str, int], clocks: Mapping[str, Amount]) -> Amount:
    """Of a delayed product, what runs while its warpgroup works on the scores of the next turn."""
    hidden = _tensor(clocks) * plan.last_product(sizes)
    if not machine.counts_ends:
        return hidden
    # that of the last step has no next one
    return hidden * most(1 - (1 + has_rest(plan, sizes)) / most(mean_steps(plan, sizes), 1), 0)


def _waits(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    clocks: Mapping[str, Amount],
    needs: Footprint,
    products: Amount,
) -> tuple[Amount, Amount]:
    """What a warp waits for behind its first tiles, and what of that all warps of a block wait for at a time."""
    grouped, steps = are_of_warpgroups(plan, machine), plan.steps(sizes)
    latency = machine.levels["device"].latency
    alone = latency + SUB_PARTITIONS / needs.warps * clocks["loads"] / most(steps, 1)
    # What a step begins with is there already: its tiles, and what it loads to registers.
    staged = needs.stages > 1 if any(tile.role == "staged" for tile in plan.tiles) else _has_next(plan)
    is_fed = staged & (grouped | loads_ahead(plan))
    # With scores a step starts two products, one behind the other.
    starts = 2 if machine.counts_ends and plan.has_scores else 1
    of_step = choice(is_fed, choice(grouped, starts * WARPGROUP_CLOCKS, TURN_CLOCKS), alone)
    if plan.exchanges is not None and machine.capability >= FIRST_WITH_ASYNCHRONOUS_COPIES:
        # Its pieces are on their way for several steps, and each step waits for the one before.
        of_step = most(TURN_CLOCKS + SHUFFLE_CLOCKS * plan.exchanges, alone / (POSITION_STAGES - 1))
    in_turn = comes_in_turn(plan, machine) & loads_ahead(plan)
    if is_any(in_turn):
        # Of each phase what its copies take longer than the products of another one.
        copies = (clocks["loads"] - needs.warps / SUB_PARTITIONS * products) / most(steps, 1) / plan.phases
        of_step = choice(in_turn, plan.phases * (TURN_CLOCKS + most(latency + copies, 0)), of_step)
    waits = steps * (of_step + SPILL_CLOCKS * needs.spilled) + MEETING_CLOCKS * _meetings(plan, sizes)
    return waits, choice(is_fed, 0, steps * alone)


def waited_of_step(plan: Plan, known: Amount = 0) -> Amount:
    """Clocks of a step for which a warp that computes scores has nothing to issue; `known`: how many reductions nothing
    waits for."""
    reductions = sum(tile.role == "row" for tile in plan.tiles) - known
    return waited_in_scores(reductions, plan.streams[-1].size if plan.streams else 0)


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
