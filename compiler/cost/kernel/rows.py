"""How arrays lie that are spread in rows over the lanes, beside products: as the largest that they are met in, or made
of (`lowering.layouts`)."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, is_array


def met_in(value: SSAValue, users: Iterable[Operation]) -> SSAValue:
    """The largest array that one of these makes of a value: `Q[q, d]` lies in the lanes as `Q[q, d] K[x, d]` does, of
    which each lane along x has the same of it."""
    largest = value
    for op in users:
        if isinstance(op, MapOp):
            largest = _larger(largest, op.result)
    return largest


def made_in(value: SSAValue, stream: str | None) -> SSAValue:
    """The largest array that a value is made of, of which reductions may have left it, but for those of the stream:
    what is summed over some lanes is there in all of them."""
    largest, op = value, value.owner
    if isinstance(op, ReduceOp) and stream in op.over_axes:
        return largest
    if isinstance(op, CastOp | WhereOp | MapOp | ReduceOp):
        for operand in op.inputs if isinstance(op, MapOp) else (op.operand,):
            if is_array(operand.type):
                largest = _larger(largest, made_in(operand, stream))
    return largest


def reduced_later(value: SSAValue) -> tuple[str, ...]:
    """The axes over which a value, or what is made of it element by element, is reduced."""
    axes: dict[str, None] = {}
    for use in value.uses:
        op = use.operation
        if isinstance(op, ReduceOp):
            axes |= dict.fromkeys(op.over_axes)
        elif isinstance(op, CastOp | MapOp | WhereOp):
            axes |= dict.fromkeys(reduced_later(op.result))
    return tuple(axes)


def _larger(value: SSAValue, other: SSAValue) -> SSAValue:
    return other if set(axes_of(value.type)) < set(axes_of(other.type)) else value
