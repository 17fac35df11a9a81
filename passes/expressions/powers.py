"""Constant factors of powers, as part of their exponents: `c exp(u) = exp(u + log c)`."""

from __future__ import annotations

import math as numbers
from collections.abc import Sequence

from xdsl.dialects import arith, func, math
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp, ReduceOp
from treadle.passes._functions import label, note, replace
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.scalars import (
    Leaf,
    Node,
    build_map,
    expression_of,
    forgets_absences,
    is_plain,
    number,
    positive_constant,
    product,
    total,
)

PASS = "diagram-hoist-factors"
MOST = 2.0**16
"""Of a factor: its power stays far from what overflows."""


def raise_power(function: func.FuncOp, scaled: MapOp) -> None:
    """Make of an array `c e`, where `e` are powers at most 1, the powers themselves, which costs nothing where
    exponents are differences: the summand is one number a row. What else is made of `e` must be sums, whose factor is
    1 / c."""
    found = _power_and_factor(scaled)
    if found is None:
        return
    power, factor = found
    sums = [use.operation for use in power.result.uses if use.operation is not scaled]
    exponential = expression_of(power)
    assert isinstance(exponential, Node)
    if not all(_is_sum(op) for op in sums):
        return
    exponent = total(exponential.operands[0], number(numbers.log(factor)))
    raised = build_map(
        Node(math.ExpOp, (exponent,), exponential.type, exponential.properties, exponential.hint),
        power.result.type,
        scaled.result.name_hint,
        power.location,
    )
    name = label(power.result)
    Rewriter.insert_op(raised, InsertPoint.after(power))
    _scale_sums(sums, raised, 1 / factor)
    subject = f"the factor {factor:g} of {label(scaled.result)} into the power {name}"
    replace(scaled, [], raised.result)
    Rewriter.erase_op(power)
    note(function, PASS, subject, "exp(a) exp(b) = exp(a + b)", "sums of them are divided by it")


def _power_and_factor(scaled: MapOp) -> tuple[MapOp, float] | None:
    """Powers at most 1, and the constant that a map multiplies them by."""
    expression = expression_of(scaled) if is_plain(scaled) else None
    if not isinstance(expression, Node) or expression.kind is not arith.MulfOp or forgets_absences(scaled, expression):
        return None
    for leaf, factor in (expression.operands, expression.operands[::-1]):
        constant = positive_constant(factor)
        if not isinstance(leaf, Leaf) or constant is None or not 1 / MOST <= constant <= MOST:
            continue
        power, near = leaf.value.owner, distance_of(leaf)
        if not isinstance(power, MapOp) or not is_plain(power) or near is None or near.peak != 1:
            continue
        inner = expression_of(power)
        if not isinstance(inner, Node) or inner.kind is not math.ExpOp or forgets_absences(power, inner):
            continue
        if power.result.type == scaled.result.type:
            return power, constant
    return None


def _is_sum(op: Operation) -> bool:
    return isinstance(op, ReduceOp) and op.kind.data == "add" and op.init is None


def _scale_sums(sums: Sequence[Operation], raised: MapOp, by: float) -> None:
    for op in sums:
        assert isinstance(op, ReduceOp)
        new = ReduceOp(op.kind.data, raised.result, op.over_axes, op.result.type)
        new.location = op.location
        new.result.name_hint = f"{op.result.name_hint}_raised" if op.result.name_hint else None
        back = build_map(product(Leaf(new.result), number(by)), op.result.type, op.result.name_hint, op.location)
        replace(op, [new, back], back.result)
