"""Where factors begin and end along axes that a group holds whole, written into the kernel.

A stream is fed what conditions leave of its axis (`runs.py`); what they leave of an axis that is not cut
`passes/streams/held.py` finds."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.runs import is_of_positions
from treadle.dialects.hierarchy import GroupOp, KernelOp, PieceOp
from treadle.passes.streams.held import held_ranges
from treadle.passes.streams.limits import LimitWriter
from treadle.passes.streams.ranges import End

Held = dict[tuple[SSAValue, str], tuple[SSAValue | None, SSAValue | None]]
"""For a value and an axis, before which position and from which on nothing needs it; None where only the array ends."""


def hold_limits(kernel: KernelOp) -> Held:
    """Write what conditions leave of the axes that a kernel in explicit form holds, at the beginning of its group."""
    group = kernel.body.block.first_op
    if not isinstance(group, GroupOp):
        return {}
    new: list[Operation] = []
    held: Held = {}
    for value, axis, range in held_ranges(kernel):
        begin, stop = _written(range.low, axis, new), _written(range.high, axis, new)
        if begin is not None or stop is not None:
            held[value, axis] = begin, stop and _before_the_end(stop, axis, new)
    needed = {operand.owner for op in new for operand in op.operands} - set(new)
    moved = [op for op in group.body.block.ops if op in needed]
    for op in moved:
        op.detach()
    Rewriter.insert_op([*moved, *new], InsertPoint.at_start(group.body.block))
    return held


def _before_the_end(stop: SSAValue, axis: str, new: list[Operation]) -> SSAValue:
    """A stop, the end of the array at most: one that is a number is not taken for that end (`is_extent`)."""
    piece = PieceOp(axis)
    new += [piece, least := arith.MinSIOp(stop, piece.end)]
    return least.result


def _written(end: End | None, axis: str, new: list[Operation]) -> SSAValue | None:
    """One end of a range, by further operations; None where positions alone set it."""
    if end is None:
        return None
    ops: list[Operation] = []

    def add(op: Operation) -> SSAValue:
        ops.append(op)
        return op.results[0]

    def load(value: SSAValue) -> Operation:
        raise AssertionError(f"nothing is searched for along '{axis}'")

    found = LimitWriter(axis, 0, add, lambda value: value, load, {}).end(end)
    if is_of_positions(found):
        return None
    new += ops
    return found
