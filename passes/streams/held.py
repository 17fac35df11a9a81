"""What conditions leave of axes that a group holds whole.

A stream is fed what conditions leave of its axis (`visits.py`); an axis that is not cut has no such limits. What
conditions on data, a size or a number leave of it (`d < n`) is found here, for each value that is multiplied in a sum
over it: outside of that range the other factor is absent wherever the value meets one, so no number need be there."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import is_array, shape_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, StreamOp
from treadle.passes.streams.ranges import (
    WHOLE,
    End,
    Knowledge,
    Range,
    hull,
    intersection,
    some_of,
    terms_of,
)

EVERYWHERE = Both(())
"""The condition that always holds."""


def held_ranges(kernel: KernelOp) -> Iterator[tuple[SSAValue, str, Range]]:
    """For each factor of a kernel in explicit form, and each axis that it is summed over and that groups hold whole,
    the positions at which it may meet an element that is there."""
    if not isinstance(kernel.body.block.first_op, GroupOp):
        return
    for value, axis in dict.fromkeys(_factors(kernel)):
        yield value, axis, _range_of(value, axis, kernel)


def limited_factors(kernel: KernelOp) -> set[SSAValue]:
    """The factors of which less than the whole may be read. An end that moves with pieces of other axes alone limits
    nothing: it is another for each of their positions."""
    return {
        value
        for value, _, range in held_ranges(kernel)
        if any(end is not None and not _is_of_positions(end) for end in (range.low, range.high))
    }


def _is_of_positions(end: End) -> bool:
    """As `lowering.runs.is_of_positions`, of an end that is not written yet."""
    terms = list(terms_of(end))
    return bool(terms) and all(isinstance(term, str) for term in terms)


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
                    _is_known(term) if isinstance(term, SSAValue) else term not in streamed for term in form.atoms
                )
                return condition if axis in form.atoms and is_known else EVERYWHERE

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
