"""What numbers are computed from: the arguments of the program, as far back as operations can be followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.dialects.diagram import ExtentOp, FillOp, IndexOp, MapOp
from treadle.dialects.hierarchy import KernelOp, StreamOp

PLAIN = (arith.ConstantOp, FillOp, IndexOp)
"""Numbers that no data are in."""


def sources_of(value: SSAValue) -> frozenset[SSAValue]:
    """Arguments of the function, of a number in the body of a map as of an array. What a stream makes, and its states,
    come from all that the stream reads."""
    found: set[SSAValue] = set()
    seen: set[SSAValue] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        before = _before(each)
        if before is None:
            found.add(each)
        else:
            waiting += before
    return frozenset(found)


def is_size(value: SSAValue) -> bool:
    """Whether a number is the size of an axis, found here or, where a kernel is given it, by the function around."""
    if isinstance(value.owner, ExtentOp):
        return True
    given = _before_argument(value) if isinstance(value, BlockArgument) else None
    return given is not None and len(given) == 1 and isinstance(given[0].owner, ExtentOp)


def _before(value: SSAValue) -> Sequence[SSAValue] | None:
    """What a value is computed from at once; None where that is not known, or it is an argument."""
    if isinstance(value, BlockArgument):
        return _before_argument(value)
    op = value.owner
    assert isinstance(op, Operation)
    return () if isinstance(op, PLAIN) else tuple(_read(op))


def _before_argument(argument: BlockArgument) -> Sequence[SSAValue] | None:
    block = argument.owner
    assert isinstance(block, Block)
    match block.parent_op():
        case MapOp() as map:
            return (map.inputs[argument.index],)
        case KernelOp(inputs=inputs) if argument.index < len(inputs):
            return (inputs[argument.index],)
        case StreamOp() as stream:
            return tuple(_read(stream))
        case _:
            return None


def _read(op: Operation) -> Iterator[SSAValue]:
    """The operands of an operation, and what its regions read from around it."""
    inside = set(op.walk())
    for operand in (operand for each in inside for operand in each.operands):
        owner = operand.owner
        if (owner if isinstance(owner, Operation) else owner.parent_op()) not in inside:
            yield operand
