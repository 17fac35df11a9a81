"""Whether blocks that read alike should read together, as a cluster, and what that moves between them.

A block that copies a share of what its cluster reads alike takes less from L2, and the rest from its neighbours, which
is faster than L2 by as much as was measured. In the terms of "FlashAttention on a Napkin" (arXiv 2412.03317), section
on cross transfers, with the bytes of the pieces in place of `H*`: what comes from above costs `1/B_above - 1/B_across`
a byte, and every byte that arrives `1/B_across`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

from treadle.compiler.amounts import Amount, choice, is_any, most
from treadle.compiler.cost.kernel.boxes import rows_of
from treadle.compiler.cost.kernel.plan import Plan, Transfer
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.tensor_maps import SHARE_ROWS

L2_PORT = 64
"""Bytes a clock from L2 into one SM [NVIDIA A100 white paper]."""

ACROSS: Mapping[int, float] = {2: 3.27 / 2.04, 4: 2.65 / 2.04}
"""Bandwidth inside a cluster of so many blocks, in units of that from above: published for an H800 (the same paper)."""

WORTH = 0.05
"""The part of a piece's time that a cluster must save: its blocks wait for each other. Not measured."""


Place = TypeVar("Place", bound=Hashable)
"""What a coordinate of the grid is called: an axis of a plan, or what a lowered kernel computes."""


@dataclass(frozen=True)
class Shape(Generic[Place]):
    """How many blocks a cluster has along which coordinates of the grid, the outermost first; along all others one."""

    sides: tuple[tuple[Place, int], ...]

    @property
    def blocks(self) -> int:
        return prod(count for _, count in self.sides)

    def together(self, own: Iterable[Place]) -> int:
        """How many of its blocks bring together what is another for each of these coordinates."""
        others = set(own)
        return prod(count for place, count in self.sides if place not in others)

    def __str__(self) -> str:
        along = " by ".join(f"{count} along {place}" for place, count in self.sides)
        return along if len(self.sides) == 1 else f"{self.blocks}, {along}"


def shapes_along(places: Sequence[Place]) -> list[Shape[Place]]:
    """The clusters that may be best, of blocks that read something alike along one of these coordinates, the outermost
    first; of those that take as long it is the first: the innermost lie side by side in the grid as it is. Along two,
    2 x 2 blocks would share all that a product reads, but across four of them: that saves less than a fortieth of what
    two along the better coordinate take, and four wait for each other."""
    return [Shape(((place, count),)) for place in reversed(places) for count in sorted(ACROSS)]


@dataclass(frozen=True)
class Feeding:
    """What a piece brings and does, as one of a cluster of so many blocks; of one plan, or of many."""

    bytes_by: Mapping[int, Amount]
    """What so many of the blocks bring together: 1 for what each brings by itself."""
    blocks: int = 1

    def clocks(self, bytes_per_clock: float) -> Amount:
        """Until it is fed, at so many bytes a clock from above into one SM."""
        return sum(part(together, self.blocks) * count for together, count in self.bytes_by.items()) / bytes_per_clock


def part(together: int, blocks: int) -> float:
    """What a byte that so many blocks of a cluster read alike costs each of them, in units of one that comes from
    above: a share from there, and the whole across. Across larger clusters than were measured as across the largest."""
    across = 0.0 if together == 1 else 1 / ACROSS.get(blocks, ACROSS[max(ACROSS)])
    return (1 - across) / together + across


def from_l2(machine: Machine) -> float:
    """Bytes a clock from L2 into one SM while all are fed: what blocks read alike and at a time is coalesced before L2,
    also where they are no cluster."""
    l2 = machine.levels["l2"]
    return min(L2_PORT, machine.bytes_per_clock("l2") / (machine.sms * l2.coalesced))


def best_cluster(
    alone: Feeding, made: Iterable[tuple[Amount, Feeding]], product_clocks: Amount, machine: Machine
) -> Amount:
    """The number of the cluster, from 1 on, that takes the least time of those that can be made, products and copies
    overlapping; 0 where none is worth it. `product_clocks`: of the tensor cores of one SM."""
    rate = from_l2(machine)
    by_itself = fewest = most(product_clocks, alone.clocks(rate))
    best: Amount = 0
    for number, (able, feeding) in enumerate(made, 1):
        clocks = most(product_clocks, feeding.clocks(rate))
        better = able & (clocks < fewest)
        best, fewest = choice(better, number, best), choice(better, clocks, fewest)
    return choice(fewest <= (1 - WORTH) * by_itself, best, 0)


# -- read off a plan ---------------------------------------------------------------------------------


def shapes_of(plan: Plan) -> list[Shape[str]]:
    """The clusters that `passes/cuda_cluster.py` may make unasked: it must know how many pieces there are along an
    axis, and what they read."""
    if plan.has_unknown_steps:
        return []
    axes = [pieces.axis for pieces in plan.groups if pieces.axis in plan.static]
    shared = [each for each in plan.transfers if each.in_boxes]
    return shapes_along([axis for axis in axes if any(axis not in _own(transfer) for transfer in shared)])


def cluster_of(plan: Plan, machine: Machine, sizes: Mapping[str, int], product_clocks: Amount) -> Amount:
    """The number, from 1 on, of the cluster of `shapes_of` that the pass makes, where the products of a block take the
    tensor cores so long; 0 if none."""
    grouped = are_of_warpgroups(plan, machine)
    shapes = shapes_of(plan)
    if not shapes or not is_any(grouped):
        return 0
    pieces = {each.axis: each.count(sizes) for each in plan.groups}
    brought = [(transfer, _bytes_of_block(plan, transfer, sizes)) for transfer in plan.transfers]
    made: list[tuple[Amount, Feeding]] = []
    for shape in shapes:
        able = grouped
        for axis, count in shape.sides:
            able = able & (pieces[axis] % count == 0)
        feeding = _feeding(brought, shape)
        made.append((able, feeding))
    return best_cluster(Feeding({1: sum(count for _, count in brought)}), made, product_clocks, machine)


def _feeding(brought: Iterable[tuple[Transfer, Amount]], shape: Shape[str]) -> Feeding:
    found: dict[int, Amount] = {1: 0}
    for transfer, count in brought:
        together, has_shares = _together(transfer, shape)
        found[together] = found.get(together, 0) + choice(has_shares, count, 0)
        found[1] = found[1] + choice(has_shares, 0, count)
    return Feeding(found, shape.blocks)


def bytes_across(plan: Plan, sizes: Mapping[str, int], shape: Shape[str]) -> int:
    """What the blocks of clusters of that shape bring each other over the whole launch: of what they read alike, all
    but the share of each. The cluster must divide the pieces."""
    found = 0
    for transfer in plan.transfers:
        together, has_shares = _together(transfer, shape)
        if has_shares:
            found += transfer.values(sizes) * transfer.width * (together - 1) // together
    return found


def bytes_exchanged(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    """What the blocks of clusters that share groups read of each other over the whole launch: each thread reads, of the
    results that it needs, the part of each other block."""
    return plan.blocks(sizes) * WARP * plan.warp_count * (plan.cluster - 1) * plan.exchanged


def bytes_spared(plan: Plan, sizes: Mapping[str, int], cluster: Amount) -> Amount:
    """By how many bytes less from L2 the launch is as fast as with clusters of that number (`cluster_of`)."""
    spared: Amount = 0.0
    for number, shape in enumerate(shapes_of(plan), 1):
        is_it = cluster == number
        if not is_any(is_it):
            continue
        spared = spared + choice(is_it, spared_by(plan, sizes, shape), 0.0)
    return spared


def spared_by(plan: Plan, sizes: Mapping[str, int], shape: Shape[str]) -> Amount:
    """The same of clusters of that shape."""
    spared: Amount = 0.0
    for transfer in plan.transfers:
        together, has_shares = _together(transfer, shape)
        less = (1 - part(together, shape.blocks)) * transfer.width * transfer.values(sizes)
        spared = spared + choice(has_shares, less, 0.0)
    return spared


def _together(transfer: Transfer, shape: Shape[str]) -> tuple[int, Amount]:
    """How many blocks of a cluster bring the tiles of a transfer together, and whether these have as many shares: the
    laws of `passes/grids/cluster_laws.py`, read off a plan."""
    together = shape.together(_own(transfer)) if transfer.in_boxes else 1
    if together == 1:
        return 1, False
    return together, rows_of(transfer.tile) % (SHARE_ROWS * together) == 0


def _own(transfer: Transfer) -> set[str]:
    """The axes along which each piece reads something else, or takes other turns."""
    around = () if transfer.fed is None else transfer.fed.around
    return {*transfer.axes, *(pieces.axis for pieces in around)}


def _bytes_of_block(plan: Plan, transfer: Transfer, sizes: Mapping[str, int]) -> Amount:
    """What one block brings to shared memory of an array: whole tiles, also at the edges."""
    if not transfer.tile:
        return 0
    within = {*transfer.axes, *(pieces.axis for pieces in transfer.again)}
    steps = {pieces.axis: pieces.mean(sizes) for pieces in plan.streams if pieces.axis in within}
    return prod(transfer.tile) * transfer.width * prod(steps.values())
