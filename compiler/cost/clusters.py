"""Whether blocks that read alike should read together, as a cluster, and what that moves between them.

A block that copies a share of what its cluster reads alike takes less from L2, and the rest from its neighbours, which
is faster than L2 by as much as was measured. In the terms of "FlashAttention on a Napkin" (arXiv 2412.03317), section
on cross transfers, with the bytes of the pieces in place of `H*`: what comes from above costs `1/B_above - 1/B_across`
a byte, and every byte that arrives `1/B_across`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from treadle.compiler.amounts import Amount, choice, is_any, most
from treadle.compiler.cost.boxes import rows_of
from treadle.compiler.cost.plan import Plan, Transfer
from treadle.compiler.cost.warpgroups import are_of_warpgroups
from treadle.compiler.machines import Machine
from treadle.dialects.cuda.tensor_maps import SHARE_ROWS

L2_PORT = 64
"""Bytes a clock from L2 into one SM [NVIDIA A100 white paper]."""

ACROSS: Mapping[int, float] = {2: 3.27 / 2.04, 4: 2.65 / 2.04}
"""Bandwidth inside a cluster of so many blocks, in units of that from above: published for an H800 (the same paper)."""

WORTH = 0.05
"""The part of a piece's time that a cluster must save: its blocks wait for each other. Not measured."""


@dataclass(frozen=True)
class Feeding:
    """What a piece brings and does; of one plan, or of many."""

    alike_bytes: Amount
    """What the blocks of a cluster read alike."""
    own_bytes: Amount
    product_clocks: Amount
    """Of the tensor cores of one SM."""

    def clocks(self, blocks: int, bytes_per_clock: float) -> Amount:
        """Until a piece of a cluster of so many blocks is fed, at so many bytes a clock from above into one SM."""
        return (self.alike_bytes * _part(blocks) + self.own_bytes) / bytes_per_clock


def _part(blocks: int) -> float:
    """What a byte that all blocks of a cluster read costs each of them, in units of one that comes from above: a share
    from there, and the whole across."""
    across = 0.0 if blocks == 1 else 1 / ACROSS[blocks]
    return (1 - across) / blocks + across


def from_l2(machine: Machine) -> float:
    """Bytes a clock from L2 into one SM while all are fed."""
    return min(L2_PORT, machine.bytes_per_clock("l2") / machine.sms)


def best_cluster(
    feeding: Feeding, machine: Machine, able: Mapping[int, Amount] = dict.fromkeys(ACROSS, True)
) -> Amount:
    """Blocks of the cluster that takes the least time, of those that can be made, products and copies overlapping; 1
    where none is worth it."""
    rate = from_l2(machine)
    alone = fewest = most(feeding.product_clocks, feeding.clocks(1, rate))
    best: Amount = 1
    for blocks in sorted(able):
        clocks = most(feeding.product_clocks, feeding.clocks(blocks, rate))
        better = able[blocks] & (clocks < fewest)
        best, fewest = choice(better, blocks, best), choice(better, clocks, fewest)
    return choice(fewest <= (1 - WORTH) * alone, best, 1)


# -- read off a plan ---------------------------------------------------------------------------------


def cluster_of(plan: Plan, machine: Machine, sizes: Mapping[str, int], product_clocks: Amount) -> Amount:
    """Blocks of the cluster that `passes/cuda_cluster.py` makes unasked, where the products of a block take the tensor
    cores so long: it must know how many pieces there are, and what they read."""
    grouped = are_of_warpgroups(plan, machine)
    if not plan.groups or plan.groups[-1].axis not in plan.static or plan.is_at_most or not is_any(grouped):
        return 1
    pieces = plan.groups[-1].count(sizes)
    able = {size: grouped & (pieces % size == 0) & (_bytes(plan, sizes, size) > 0) for size in ACROSS}
    alike = _bytes(plan, sizes, min(ACROSS))
    arriving = sum(_bytes_of_block(plan, transfer, sizes) for transfer in plan.transfers)
    return best_cluster(Feeding(alike, arriving - alike, product_clocks), machine, able)


def bytes_across(plan: Plan, sizes: Mapping[str, int], blocks: int) -> int:
    """What the blocks of clusters of that size bring each other over the whole launch: of what they read alike, all but
    the share of each. The cluster must divide the pieces along the innermost axis."""
    alike = (transfer for transfer, is_alike in _alike(plan, blocks) if is_alike)
    return sum(transfer.values(sizes) * transfer.width * (blocks - 1) // blocks for transfer in alike)


def bytes_spared(plan: Plan, sizes: Mapping[str, int], cluster: Amount) -> Amount:
    """By how many bytes less from L2 the launch is as fast as with clusters of so many blocks."""
    spared: Amount = 0.0
    for blocks in ACROSS:
        alike = (choice(is_alike, each.values(sizes) * each.width, 0) for each, is_alike in _alike(plan, blocks))
        spared = spared + choice(cluster == blocks, (1 - _part(blocks)) * sum(alike), 0.0)
    return spared


def _alike(plan: Plan, blocks: int) -> Iterator[tuple[Transfer, Amount]]:
    """What comes to shared memory alike for neighbours, which differ in the innermost coordinate of their pieces, and
    whether its tiles have shares for so many: the laws of `passes/grids/cluster_laws.py`, read off a plan."""
    if not plan.groups:
        return
    inner = plan.groups[-1].axis
    for transfer in plan.transfers:
        around = () if transfer.fed is None else transfer.fed.around
        if transfer.in_boxes and inner not in (*transfer.axes, *(pieces.axis for pieces in around)):
            yield transfer, rows_of(transfer.tile) % (SHARE_ROWS * blocks) == 0


def _bytes(plan: Plan, sizes: Mapping[str, int], blocks: int) -> Amount:
    """What a block reads as its neighbours do, where there are shares for so many."""
    return sum(choice(is_alike, _bytes_of_block(plan, each, sizes), 0) for each, is_alike in _alike(plan, blocks))


def _bytes_of_block(plan: Plan, transfer: Transfer, sizes: Mapping[str, int]) -> Amount:
    """What one block brings to shared memory of an array: whole tiles, also at the edges."""
    if not transfer.tile:
        return 0
    within = {*transfer.axes, *(pieces.axis for pieces in transfer.again)}
    steps = {pieces.axis: pieces.mean(sizes) for pieces in plan.streams if pieces.axis in within}
    return prod(transfer.tile) * transfer.width * prod(steps.values())
