"""Whether blocks that read alike should read together, as a cluster.

A block that copies a share of what its cluster reads alike takes less from L2, and the rest from its neighbours, which
is faster than L2 by as much as was measured. In the terms of "FlashAttention on a Napkin" (arXiv 2412.03317), section
on cross transfers, with the bytes of the pieces in place of `H*`: what comes from above costs `1/B_above - 1/B_across`
a byte, and every byte that arrives `1/B_across`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.compiler.cost.time import L2_PORT
from treadle.compiler.machines import Machine

ACROSS: Mapping[int, float] = {2: 3.27 / 2.04, 4: 2.65 / 2.04}
"""Bandwidth inside a cluster of so many blocks, in units of that from above: published for an H800 (the same paper)."""

WORTH = 0.05
"""The part of a piece's time that a cluster must save: its blocks wait for each other. Not measured."""


@dataclass(frozen=True)
class Feeding:
    """What a piece brings and does."""

    alike_bytes: float
    """What the blocks of a cluster read alike."""
    own_bytes: float
    product_clocks: float
    """Of the tensor cores of one SM."""

    def clocks(self, blocks: int, bytes_per_clock: float) -> float:
        """Until a piece of a cluster of so many blocks is fed, at so many bytes a clock from above into one SM."""
        arriving = self.alike_bytes + self.own_bytes
        if blocks == 1:
            return arriving / bytes_per_clock
        from_above, share = self.alike_bytes / blocks + self.own_bytes, 1 / ACROSS[blocks]
        return ((1 - share) * from_above + share * arriving) / bytes_per_clock


def from_l2(machine: Machine) -> float:
    """Bytes a clock from L2 into one SM while all are fed."""
    return min(L2_PORT, machine.bytes_per_clock("l2") / machine.sms)


def best_cluster(feeding: Feeding, machine: Machine, able: Sequence[int] = tuple(ACROSS)) -> int:
    """Blocks of the cluster that takes the least time, of those that can be made, products and copies overlapping; 1
    where none is worth it."""
    rate = from_l2(machine)
    times = {blocks: max(feeding.product_clocks, feeding.clocks(blocks, rate)) for blocks in (1, *able)}
    best = min(times, key=lambda blocks: (times[blocks], blocks))
    return best if times[best] <= (1 - WORTH) * times[1] else 1
