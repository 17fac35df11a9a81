"""What values compute from others, element by element."""

from __future__ import annotations

import math as numbers

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import holds, known_format
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    expression_of,
    is_number,
    is_plain,
    same_predicate,
    strip_casts,
)


def inner_expression(value: SSAValue) -> Expression | None:
    """What a value computes from others, element by element: the body of its map, or through a cast. It speaks of the
    elements that are there; whether it tells which, `forgets_absences` knows."""
    owner = value.owner
    if isinstance(owner, MapOp) and is_plain(owner):
        return expression_of(owner)
    if isinstance(owner, CastOp):
        return Leaf(owner.operand)
    return None


def look_through(expression: Expression) -> Expression:
    """The expression behind casts and behind the names of maps."""
    while True:
        expression = strip_casts(expression)
        if not isinstance(expression, Leaf) or (inner := inner_expression(expression.value)) is None:
            return expression
        expression = inner


def is_saturating(expression: Expression) -> bool:
    """Whether an expression is a cast to a format that saturates: where it does, it is not the identity."""
    if isinstance(expression, Leaf):
        owner = expression.value.owner
        source = format_of(owner.operand.type) if isinstance(owner, CastOp) else expression.type
    elif isinstance(expression, Node) and expression.kind is arith.TruncFOp:
        source = expression.operands[0].type
    else:
        return False
    known = known_format(expression.type)
    return known is not None and known.saturates and not holds(expression.type, source)


def is_rounding(expression: Expression) -> bool:
    """Whether the last that an expression does is to round to fewer bits than f32 has."""
    if isinstance(expression, Leaf):
        owner = expression.value.owner
        return isinstance(owner, CastOp) and not holds(expression.type, format_of(owner.operand.type))
    if not isinstance(expression, Node) or expression.kind is arith.ExtFOp:
        return False
    return expression.kind is arith.TruncFOp or not holds(expression.type, f32)


def stood_for(expression: Expression) -> SSAValue | None:
    """The extremum that an expression is, but for the zero that stands for it while it is neutral: `r == -inf ? 0 :
    r`."""
    if isinstance(expression, Leaf) and not expression.version:
        inner = inner_expression(expression.value)
        return None if inner is None or isinstance(inner, Leaf) else stood_for(inner)
    match expression:
        case Node(
            kind=arith.SelectOp,
            operands=(Node(kind=arith.CmpfOp, operands=(Leaf() as tested, Constant() as neutral)) as test, yes, no),
        ):
            is_equal = same_predicate(test, compare(tested, "==", neutral))
            if not is_equal and not same_predicate(test, compare(tested, "!=", neutral)):
                return None
            instead, chosen = (yes, no) if is_equal else (no, yes)
            is_it = chosen == tested and is_number(instead, 0) and _is_neutral_of(neutral, tested.value)
            return tested.value if is_it else None
        case _:
            return None


def _is_neutral_of(constant: Constant, value: SSAValue) -> bool:
    owner = value.owner
    start = {"max": -numbers.inf, "min": numbers.inf}
    return isinstance(owner, ReduceOp) and owner.init is None and start.get(owner.kind.data) == constant.number


def logarithm_of(value: SSAValue) -> SSAValue | None:
    """The array that a value is the natural logarithm of, element by element."""
    match inner_expression(value):
        case Node(kind=math.LogOp, operands=(Leaf(value=inner),)):
            return inner
        case _:
            return None
