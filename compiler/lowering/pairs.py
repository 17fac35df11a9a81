"""How elements that meet in pairs lie in the lanes (`passes/kernels/outer.py`): a lane has rows and columns of pairs,
and reads what it needs of each from tiles in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, level_of
from treadle.dialects.hierarchy import KernelOp, LoadOp


def met_in_pairs(kernel: KernelOp) -> list[LoadOp]:
    """What a kernel whose streams are expanded loads to shared memory though it multiplies nothing."""
    if any(isinstance(op, ContractOp) for op in kernel.walk()):
        return []
    return [op for op in kernel.walk() if isinstance(op, LoadOp) and level_of(op.result.type) == "shared"]


def taken_singly(kernel: KernelOp) -> frozenset[str]:
    """The axes of which a lane has no neighbours: of those that such arrays have, the ones along which none of them has
    its own. Lanes that have neighbours of rows would read far apart, from the same banks."""
    arrays = [axes_of(op.result.type) for op in met_in_pairs(kernel)]
    return frozenset(axis for axes in arrays for axis in axes) - frozenset(axes[-1] for axes in arrays)


def by_lanes(kernel: KernelOp, axes: Sequence[str]) -> tuple[str, ...]:
    """Axes in the order in which lanes are given to them, the last first: where elements meet in pairs, to what is
    reduced last, of which each lane would have its part of all pairs."""
    if not met_in_pairs(kernel):
        return tuple(axes)
    reduced = {axis for op in kernel.walk() if isinstance(op, ReduceOp) for axis in op.over_axes}
    return tuple(sorted(axes, key=lambda axis: axis not in reduced))


__all__ = ["by_lanes", "met_in_pairs", "taken_singly"]
