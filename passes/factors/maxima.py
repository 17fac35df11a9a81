"""Positive scales past maxima, and past conditions on the way there."""

from __future__ import annotations

from xdsl.dialects import arith, func
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import (
    array_type,
    axes_of,
    format_of,
    sizes_of,
)
from treadle.passes._functions import (
    erase_unused,
    fresh_hint,
    label,
    note,
    replace,
)
from treadle.passes.expressions.forms import is_positive_scalar
from treadle.passes.expressions.powers import PASS
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    build_map,
    expression_of,
    forgets_absences,
    is_plain,
    positive_constant,
    substitute,
)


def hoist_from_maximum(function: func.FuncOp, maximum: ReduceOp) -> None:
    scaled = maximum.operand.owner
    if maximum.init is not None or not isinstance(scaled, MapOp) or not is_plain(scaled):
        return
    expression = expression_of(scaled)
    source = _scaled_leaf(expression)
    if source is None or forgets_absences(scaled, expression):
        return
    if format_of(scaled.result.type) != format_of(maximum.result.type):
        return
    if not set(maximum.over_axes) <= set(axes_of(source.value.type)):
        return
    inner = _maximum_of(maximum, source.value)
    outer = substitute(expression, lambda leaf: Leaf(inner.result) if leaf == source else leaf)
    new = build_map(outer, maximum.result.type, maximum.result.name_hint, maximum.location)
    kind = maximum.kind.data
    before = maximum.operand
    subject = f"the positive scale of {label(scaled.result)} past the {kind} {label(maximum.result)}"
    replace(maximum, [inner, new], new.result)
    erase_unused([before])
    note(function, PASS, subject, f"monotonicity of {kind}", "exact: rounding is monotone")


def hoist_from_condition(function: func.FuncOp, where: WhereOp) -> None:
    """Bring a positive scale behind the condition of what a maximum is taken of, as where scores are scaled before they
    are masked."""
    scaled = where.operand.owner
    if not any(_is_maximum(use.operation) for use in where.result.uses) or not where.operand.has_one_use():
        return
    if not isinstance(scaled, MapOp) or not is_plain(scaled):
        return
    expression = expression_of(scaled)
    source = _scaled_leaf(expression)
    if source is None or forgets_absences(scaled, expression) or source.value.type != where.operand.type:
        return
    inner = where.of(source.value)
    inner.location, inner.result.name_hint = where.location, fresh_hint(where.result, where.result.name_hint)
    outer = substitute(expression, lambda leaf: Leaf(inner.result) if leaf == source else leaf)
    new = build_map(outer, where.result.type, where.result.name_hint, where.location)
    before = where.operand
    subject = f"the positive scale of {label(before)} past the condition of {label(where.result)}"
    replace(where, [inner, new], new.result)
    erase_unused([before])
    note(function, PASS, subject, "a condition commutes with maps", "what is absent is absent of either")


def _is_maximum(op: Operation) -> bool:
    return isinstance(op, ReduceOp) and op.kind.data in ("max", "min")


def _scaled_leaf(expression: Expression) -> Leaf | None:
    """The array that an expression multiplies by, or divides by, positive constants and numbers of the program only."""
    if isinstance(expression, Leaf):
        return expression
    if not isinstance(expression, Node) or expression.kind not in (arith.MulfOp, arith.DivfOp):
        return None
    left, right = expression.operands
    if _is_scale(right):
        return _scaled_leaf(left)
    if expression.kind is arith.MulfOp and _is_scale(left):
        return _scaled_leaf(right)
    return None


def _is_scale(expression: Expression) -> bool:
    return positive_constant(expression) is not None or is_positive_scalar(expression)


def _maximum_of(maximum: ReduceOp, operand: SSAValue) -> ReduceOp:
    sizes = sizes_of(operand.type)
    kept = [axis for axis in axes_of(maximum.result.type) if axis in sizes]
    type = array_type(format_of(maximum.result.type), {axis: sizes[axis] for axis in kept})
    new = ReduceOp(maximum.kind.data, operand, maximum.over_axes, type)
    new.location = maximum.location
    base = operand.name_hint
    new.result.name_hint = fresh_hint(maximum.result, f"{base}_{maximum.kind.data}" if base else None)
    return new
