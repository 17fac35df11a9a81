"""Whether a NaN in one element of a row makes NaN of all that is made of the row.

Then its neighbours may become NaN with it, and nothing that is saved tells: a weight that is NaN makes its row's sums
NaN, whatever the other weights are. What a condition leaves out is taken to be there: where elements are absent, their
neighbours must be left alone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from xdsl.dialects import arith, math
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import NUMBER_FORMATS

STRICT = (
    *(arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.ExtFOp, arith.TruncFOp),
    *(math.FmaOp, math.ExpOp, math.Exp2Op, math.TanhOp, math.LogOp, math.SqrtOp, math.AbsFOp),
)
"""What is NaN where one of its operands is, whatever the others are. Not `max`: of two, kernels drop none, but a
maximum of a row may have passed its NaN over."""

UNORDERED = range(8, 16)
"""Predicates of `arith.cmpf` that hold where an operand is NaN."""

_WIDE = ("f32", "f16", "bf16")
"""Formats that have a NaN for every NaN."""


class _State(Enum):
    SOME = auto()
    """NaN somewhere along the axis; what the others are is not known."""
    ALL = auto()
    """NaN everywhere."""
    UNKNOWN = auto()
    """May have changed."""


def spoils_its_row(value: SSAValue, axis: str) -> bool:
    """Whether all that leaves the block and is made of an array is NaN where one of its elements along an axis is, the
    others being what they may."""
    block, states = value.owner.parent if isinstance(value.owner, Operation) else None, {value: _State.SOME}
    if block is None:
        return False
    for op in block.ops:
        if not any(operand in states for operand in op.operands):
            continue
        if op is block.last_op:
            return all(states.get(operand, _State.ALL) is _State.ALL for operand in op.operands)
        if len(op.results) != 1 or (op.regions and not isinstance(op, MapOp)):
            return False
        states[op.results[0]] = _after(op, axis, states)
    return False


def passes_nan(body: Block, value: SSAValue) -> bool:
    """Whether the body of a map yields NaN where a value of it is NaN."""
    spoilt, known = {value}, dict[SSAValue, bool]()
    for op in body.ops:
        if isinstance(op, arith.CmpfOp) and not spoilt.isdisjoint(op.operands):
            known[op.result] = op.predicate.value.data in UNORDERED
        is_chosen = isinstance(op, arith.SelectOp) and spoilt.issuperset(_chosen(op, known))
        if is_chosen or (isinstance(op, STRICT) and not spoilt.isdisjoint(op.operands)):
            spoilt.add(op.results[0])
    last = body.last_op
    return last is not None and not spoilt.isdisjoint(last.operands)


def _chosen(op: arith.SelectOp, known: Mapping[SSAValue, bool]) -> tuple[SSAValue, ...]:
    """What a choice may be: one, where the condition is known."""
    if op.cond not in known:
        return op.lhs, op.rhs
    return (op.lhs,) if known[op.cond] else (op.rhs,)


def _after(op: Operation, axis: str, states: dict[SSAValue, _State]) -> _State:
    """Of the result of an operation."""
    match op:
        case MapOp():
            given = zip(op.inputs, op.body.block.args, strict=True)
            found = {states[each] for each, own in given if each in states and passes_nan(op.body.block, own)}
        case CastOp() if str(format_of(op.result.type)) in _WIDE:
            found = {states[op.operand]}
        case WhereOp() if all(each not in states for each in op.operands[1:]):
            found = {states[op.operand]} - {_State.ALL}
        case ReduceOp() if op.kind.data in ("add", "mul"):
            found = {_reduced(states.get(each), axis in op.over_axes) for each in op.operands}
        case ContractOp() if NUMBER_FORMATS[str(format_of(op.result.type))].is_float:
            found = {_reduced(states.get(each), axis in op.over_axes) for each in op.operands[:2]}
        case _:
            found = set[_State]()
    if _State.ALL in found:
        return _State.ALL
    return _State.SOME if _State.SOME in found and axis in axes_of(op.results[0].type) else _State.UNKNOWN


def _reduced(state: _State | None, is_along: bool) -> _State | None:
    """Of a sum over the axis, or over others."""
    return _State.ALL if state is _State.SOME and is_along else state
