"""What a block loses between two pieces, where it takes one after another, and between two loops of a piece: its tensor
cores, or what else it is bound by, idle while the last products and scores of one have nothing to hide behind, and
until the tiles of the next piece are there.

Within a piece a warpgroup multiplies while it, or another, computes scores. At the begin there are no products yet but
the first of each, at the end no scores. If all meet at the end of a piece, as they do where one thread sends the result
of all, nothing of this hides behind another piece, and what the next one holds is asked for only then. Where each sends
its own rows (`passes/grids/apart.py`), one begins the next piece while another ends this one; and what a piece holds
comes when the last product with its place is done (`passes/grids/early.py`), or, if it has two places, while all of
them are computed (`passes/grids/two_places.py`). By the rates that last, warpgroups that wait for one place begin
together even so, and what it holds comes for all processors at a time.

Conditions part a stream into loops (of whole pieces, and of those that are tested). Where the last product of one loop
is not carried into the next (`passes/loops/carry.py`), each of them ends and begins as a piece does, but that no
warpgroup waits for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from treadle.compiler.amounts import Amount, choice, most
from treadle.compiler.cost.kernel.plan import LEAVING, Plan
from treadle.compiler.cost.timing.clusters import L2_PORT
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP


@dataclass(frozen=True)
class Piece:
    """What a warpgroup does in a piece, in clocks of a quarter SM that it had for itself."""

    groups: Amount
    """Warpgroups that compute."""
    products: Amount
    scores: Amount
    """And all else that is computed in steps."""
    steps: Amount
    last: Amount
    """The part of the products that the last one of a step takes, which comes a step later."""
    after: Amount
    """What is computed behind the steps: of all warpgroups."""
    has_scores: bool = True
    """Whether steps compute what they multiply next."""

    def step(self) -> tuple[Amount, Amount, Amount]:
        """The first products of a step, what is computed, and the last product."""
        steps = most(self.steps, 1)
        products = self.products / steps
        return products * (1 - self.last), self.scores / steps, products * self.last

    def alone(self) -> Amount:
        """What a piece that overlaps with no other takes longer than a part of many steps.

        Tensor cores have the first products of all warpgroups to do until the first has computed its scores, which then
        share the units; and the last products of all but one while that one computes its last scores. If scores are
        what takes longest, they wait for the first product, and nothing is computed during the last."""
        if not self.has_scores:
            return 0
        first, scores, last = self.step()
        others = self.groups - 1
        idle = self.groups * most(scores - others * first, 0) + most(scores - others * last, 0)
        multiply, compute = self.groups * self.products, self.groups * self.scores
        return most(multiply + idle, compute + first + last) - most(multiply, compute) + self.after

    def ends(self) -> Amount:
        """What a piece takes longer that follows no other and is followed by none; of one without scores what is
        computed behind its products, which all warpgroups do at a time, since they share its tiles."""
        return self.alone() if self.has_scores else self.after

    def ragged(self) -> Amount:
        """What a last step takes longer that is smaller than the others, and so a loop of its own: warpgroups begin and
        end it together, as they do a piece."""
        return self.alone() - self.after if self.has_scores else 0

    def drained(self) -> Amount:
        """What a step takes longer that begins a loop behind another, whose last product comes before it.

        A warpgroup has that product and its first ones to do, one after the other, and then scores. Beside these tensor
        cores have the first products of the others, as at the begin of a piece; if scores are what takes longest, they
        have those of the others beside all products. Within a loop a step that is alone hides the last product behind
        its scores."""
        if not self.has_scores:
            return 0
        first, scores, last = self.step()
        others = self.groups - 1
        multiply, compute = self.groups * (first + last), self.groups * scores
        without_scores, without_products = scores - others * first, first + last - others * scores
        idle = choice(multiply >= compute, self.groups * most(without_scores, 0), most(without_products, 0))
        within = most(multiply, compute, first + most(scores, last))
        return most(most(multiply, compute) + idle - within, 0)


def exposed(plan: Plan, machine: Machine, piece: Piece, overlaps: bool, twice: Amount = False) -> Amount:
    """Of a piece that follows another in its block, what neither that one nor the next hides; `overlaps`: whether
    warpgroups end pieces by themselves, so that others work meanwhile. Even so they begin the next one together where
    they wait for what it holds, unless that has two places (`twice`). Without scores nothing sets warpgroups apart, so
    that all are behind their products at a time."""
    if not machine.counts_ends:
        return 0 if overlaps else piece.alone()
    if not piece.has_scores:
        return piece.ends()
    apart = (twice if _holds(plan) else True) & overlaps
    return choice(apart, 0, piece.alone())


def waits_for_tiles(plan: Plan, machine: Machine, piece: Piece, overlaps: bool, twice: Amount = False) -> Amount:
    """Of all warpgroups of a block between two pieces, until what the next one holds is there, and the first tile of
    its stream, which the producer asks for behind that; `overlaps`: whether it comes early. Blocks whose pieces are
    alike ask for it at a time: then only the latency hides behind the last scores and products. With two places
    (`twice`) it comes while the piece before is computed."""
    return choice(twice, 0, _waits_for_one_place(plan, machine, piece, overlaps))


def _waits_for_one_place(plan: Plan, machine: Machine, piece: Piece, overlaps: bool) -> Amount:
    if not _holds(plan):
        return 0
    latency, comes = machine.levels["device"].latency, _held(plan) / _bytes_for_each(machine)
    if not overlaps:
        return most(latency + comes + _first_bytes(plan) / L2_PORT - piece.after, 0)
    if machine.counts_ends:
        return comes
    _, scores, last = piece.step()
    return most(latency + comes - scores - last - piece.after / piece.groups, 0)


def _holds(plan: Plan) -> bool:
    return any(tile.role == "shared" for tile in plan.tiles)


def _held(plan: Plan) -> Amount:
    """Bytes in shared memory that a piece holds while its stream passes."""
    return sum(tile.elements * tile.width for tile in plan.tiles if tile.role == "shared")


def _bytes_for_each(machine: Machine) -> float:
    """Of device memory, a clock, for an SM while all ask for something: no more than its port passes on."""
    return min(L2_PORT, machine.bytes_per_clock("device") / machine.sms) if machine.counts_ends else L2_PORT


def clocks_of_ends(plan: Plan, machine: Machine) -> Amount:
    """For which a block waits beside the latency of its first load, before its first product and behind its last one:
    until the description of a tensor is there, which the first copy reads from memory itself; while what it holds
    comes, for all processors at a time, since their blocks begin and end together; and while its first tile, which
    others read too, comes through the port of its SM, and its results leave through it."""
    results = sum(tile.elements * tile.width for tile in plan.tiles if tile.role in LEAVING)
    held = _held(plan) / _bytes_for_each(machine)
    return machine.levels["device"].latency + held + (_first_bytes(plan) + results) / L2_PORT


def _first_bytes(plan: Plan) -> Amount:
    """Of the tile that the first product of a stream needs."""
    return next((tile.elements * tile.width for tile in plan.tiles if tile.role == "staged"), 0)


def mean_drains(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    """How often a loop of a piece ends with a product that the next could begin beside, on average."""
    return sum(pieces.mean_loops(sizes) for pieces in plan.streams) if plan.delays else 0


def ends_of_block(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    piece: Piece,
    waited: Amount,
    powers_first: Amount = False,
    tested_first: bool = False,
) -> Amount:
    """What a block takes longer that has an SM to itself, for a piece that follows no other; `waited`: clocks for which
    a warp waits within the scores of a step."""
    if not machine.counts_ends:
        return piece.alone()
    if not plan.has_scores:
        return piece.ends()
    conditions = choice(powers_first, _conditions(plan, sizes, piece, waited, tested_first), 0)
    return piece.ends() + waited + has_rest(plan, sizes) * _tested(plan, piece, waited) + conditions


def exposed_loops(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    piece: Piece,
    waited: Amount,
    powers_first: Amount,
    tested_first: bool = False,
) -> Amount:
    """What a piece that follows another takes longer since some loops are of the few tiles that conditions cut, or that
    are smaller. Where other turns take their powers first, these do not (`passes/speculation`), so that their scores
    have no product of their warpgroup beside them; else they are turns like all others."""
    if not machine.counts_ends or not plan.has_scores:
        return 0
    rest = has_rest(plan, sizes) * _tested(plan, piece, waited)
    return choice(powers_first, rest + _conditions(plan, sizes, piece, waited, tested_first), 0)


def _conditions(plan: Plan, sizes: Mapping[str, int], piece: Piece, waited: Amount, tested_first: bool) -> Amount:
    """Of tiles that conditions cut, in a piece that has others, too. If they came first, as on 26 November 2026,
    they are what nothing is beside anyway."""
    each = slots_of_tests(plan) if tested_first else _tested(plan, piece, waited)
    return mean_drains(plan, sizes) * each


def _tested(plan: Plan, piece: Piece, waited: Amount) -> Amount:
    """What a loop of one turn takes longer, which tests its scores."""
    return piece.ragged() + waited + slots_of_tests(plan)


TESTED = 1.5
"""Instructions for each score of a piece that is smaller than others: it is kept or not, by a bit of its column that
the two rows of a lane share."""


def slots_of_tests(plan: Plan) -> Amount:
    """What testing the scores of a last, smaller step issues, in clocks of a quarter SM: of all warps of a block."""
    if not plan.has_scores or not plan.streams:
        return 0
    rows = prod(pieces.size for pieces in plan.groups if pieces.axis == plan.row)
    return TESTED * rows * plan.streams[-1].size / (SUB_PARTITIONS * WARP)


def has_rest(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    """Whether the last step of the innermost stream takes a smaller piece than the others."""
    return 0 if not plan.streams else (sizes[plan.streams[-1].axis] % plan.streams[-1].size != 0) * 1


def mean_steps(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    return sum(pieces.mean(sizes) for pieces in plan.streams)
