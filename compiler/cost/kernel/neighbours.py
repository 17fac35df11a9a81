"""Neighbours in memory: how much of what comes from L2 a group asked for.

L2 gives whole sectors of 32 bytes. A group that takes few neighbours at a time, as where the last axis of an array is a
batch of its products, gets others with them that it does not use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import BlockArgument, SSAValue

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp


def order_in_memory(argument: SSAValue) -> tuple[str, ...]:
    """The axes of an array that a kernel is given, the one along which neighbours lie side by side first; none where a
    view has its elements in no such order."""
    kernel = argument.block.parent_op() if isinstance(argument, BlockArgument) else None
    if not isinstance(kernel, KernelOp) or not isinstance(argument, BlockArgument):
        return axes_of(argument.type)[::-1]
    given = kernel.inputs[argument.index] if argument.index < len(kernel.inputs) else argument
    if not isinstance(read := given.owner, ReadOp):
        return axes_of(argument.type)[::-1]
    if not isinstance(read.operand, BlockArgument):
        return ()
    axes = axes_of(argument.type)
    alone = [next((axis for axis in axes if form.terms == {axis: 1}), None) for form in read.place.forms]
    return () if None in alone else tuple(axis for axis in reversed(alone) if axis is not None)


def sector_share(near: Sequence[tuple[str, Amount]], width: int, sizes: Mapping[str, int]) -> Amount:
    """The bytes of sectors for each byte that a group takes, if it takes so many neighbours of `width` bytes along
    these axes, the nearest first."""
    run: Amount = 1
    goes_on: Amount = True
    for axis, piece in near:
        size = most(sizes[axis], 1)
        run = choice(goes_on, run * least(most(piece, 1), size), run)
        goes_on = goes_on & (piece >= size)
    return ceil_div(run * width, SECTOR_BYTES) * SECTOR_BYTES / (run * width)
