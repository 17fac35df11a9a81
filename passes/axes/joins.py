"""Reductions of reductions that are one over all their axes: sums of sums, maxima of maxima, a sum of contractions."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import func
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes._functions import label, note, replace
from treadle.passes._parts import Reducing

LAW = "associativity: a reduction of a reduction is one over all axes"


def inner_of(op: Operation) -> Reducing | None:
    """What a reduction combines that may as well be done with it: a reduction of its kind, or for a sum a contraction,
    that nothing else uses. Both keep their sums in one format, so that nothing is rounded in between that the plain
    form rounds."""
    if not isinstance(op, ReduceOp) or not isinstance(inner := op.operand.owner, ContractOp | ReduceOp):
        return None
    if inner.init is not None or len(list(inner.result.uses)) != 1:
        return None
    kind = inner.kind.data if isinstance(inner, ReduceOp) else "add"
    sums = format_of(inner.result.type) if isinstance(inner, ReduceOp) else inner.accumulate
    formats = {sums, format_of(inner.result.type), format_of(op.result.type)}
    return inner if kind == op.kind.data and len(formats) == 1 else None


def within(op: Operation) -> Iterator[Reducing]:
    """What may be done with a reduction, from the outside in."""
    while (inner := inner_of(op)) is not None:
        yield inner
        op = inner


def join(function: func.FuncOp, op: ReduceOp, rewrite: str) -> Reducing:
    """One reduction in the place of a reduction and what it combines."""
    inner = inner_of(op)
    assert inner is not None
    names = f"{label(inner.result)} into {label(op.result)}"
    over = [*op.over_axes, *inner.over_axes]
    value = op.result
    new: ContractOp | ReduceOp
    if isinstance(inner, ReduceOp):
        operand = inner.operand
        new = ReduceOp(op.kind.data, operand, _in_order(over, operand), value.type, op.init)
    else:
        multiply = inner.multiply.data if inner.multiply is not None else None
        ordered = _in_order(over, inner.lhs, inner.rhs)
        new = ContractOp(inner.lhs, inner.rhs, ordered, value.type, inner.accumulate, op.init, multiply)
    new.location = op.location
    replace(op, [new], new.result)
    inner.detach()
    inner.erase()
    note(function, rewrite, names, LAW)
    return new


def _in_order(over: list[str], *operands: SSAValue) -> list[str]:
    """Axes as the operands have them."""
    met = dict.fromkeys(axis for operand in operands for axis in axes_of(operand.type))
    return [axis for axis in met if axis in over]


__all__ = ["inner_of", "join", "within"]
