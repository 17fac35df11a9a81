"""Where factors begin and end along axes that a group holds whole.

A stream is fed what conditions leave of its axis (`runs.py`); an axis that is not cut has no such limits. What
conditions on data or a size leave of it (`d < n`) is worked out here, for each value that is multiplied in a sum over
it: outside of that range the other factor is absent wherever the value meets one, so no number need be there."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.runs import is_of_positions
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import is_array, shape_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, PieceOp, StreamOp
from treadle.passes.streams.limits import LimitWriter
from treadle.passes.streams.ranges import WHOLE, End, Knowledge, Range, hull, intersection, some_of

Held = dict[tuple[SSAValue, str], tuple[SSAValue | None, SSAValue | None]]
"""For a value and an axis, before which position and from which on nothing needs it; None where only the array ends."""

EVERYWHERE = Both(())
"""The condition that always holds."""


def hold_limits(kernel: KernelOp) -> Held:
    """Write what conditions leave of the axes that a kernel in explicit form holds, at the beginning of its group."""
    group = kernel.body.block.first_op
    if not isinstance(group, GroupOp):
        return {}
    new: list[Operation] = []
    held: Held = {}
    for value, axis in dict.fromkeys(_factors(kernel)):
        range = _range_of(value, axis, kernel)
        begin, stop = _written(range.low, axis, new), _written(range.high, axis, new)
        if begin is not None or stop is not None:
            held[value, axis] = begin, stop and _before_the_end(stop, axis, new)
    needed = {operand.owner for op in new for operand in op.operands} - set(new)
    moved = [op for op in group.body.block.ops if op in needed]
    for op in moved:
        op.detach()
    Rewriter.insert_op([*moved, *new], InsertPoint.at_start(group.body.block))
    return held


def _factors(kernel: KernelOp) -> Iterator[tuple[SSAValue, str]]:
    """What is multiplied in sums over axes that are not streamed."""
    streamed = _streamed(kernel)
    for op in kernel.walk():
        if isinstance(op, ContractOp):
            yield from ((value, axis) for value in (op.lhs, op.rhs) for axis in op.over_axes if axis not in streamed)


def _streamed(kernel: KernelOp) -> set[str]:
    return {axis for op in kernel.walk() if isinstance(op, StreamOp) for axis in op.partition.as_dict()}


def _range_of(value: SSAValue, axis: str, kernel: KernelOp) -> Range:
    """The positions at which a value may meet an element that is there. One that is loaded is all of it where anything
    else uses it."""
    ranges: list[Range] = []
    where_conditions_hold: list[Range] = []
    for use in value.uses:
        contract = use.operation
        if isinstance(contract, ContractOp) and use.index < 2 and axis in contract.over_axes:
            found = where_conditions_hold if _is_where_conditions_hold(contract) else ranges
            found.append(_left_of(contract.operands[1 - use.index], axis, kernel))
        elif isinstance(value.owner, LoadOp):
            return WHOLE
    # Of what both use, the border says what conditions leave: all of it where they are known to hold.
    return hull(ranges or where_conditions_hold)


def _is_where_conditions_hold(op: Operation) -> bool:
    """Whether an operation is of pieces of a stream in which conditions are known to hold."""
    stream = op.parent_op()
    return isinstance(stream, StreamOp) and stream.border is not None and op.parent_region() is stream.step


def _left_of(factor: SSAValue, axis: str, kernel: KernelOp) -> Range:
    """Where a factor may be there."""
    streamed = _streamed(kernel)

    def says(condition: Condition) -> Condition:
        """What a condition says of the axis, by numbers that the group knows at its beginning."""
        match condition:
            case Both(parts):
                return Both(tuple(map(says, parts)))
            case Either(parts):
                return Either(tuple(map(says, parts)))
            case AtLeastZero(form):
                is_known = all(
                    _is_known(term) if isinstance(term, SSAValue) else term not in streamed for term in form.terms
                )
                return condition if axis in form.terms and is_known else EVERYWHERE

    known = Knowledge(axis, _is_known, lambda value: False)
    return intersection([some_of(says(op.holds), known) for op in absences(factor)])


def _is_known(value: SSAValue) -> bool:
    """Whether a value is one number, and an argument, a size or loaded from an argument."""
    if is_array(value.type) and any(size != 1 for size in shape_of(value.type)):
        return False
    owner = value.owner
    return not isinstance(owner, Operation) or (
        isinstance(owner.parent_op(), GroupOp) and all(isinstance(each, BlockArgument) for each in owner.operands)
    )


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
