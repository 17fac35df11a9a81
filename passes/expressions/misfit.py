"""Whether values may be rounded to a narrower format before they are summed."""

from __future__ import annotations

import math as numbers
from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.ir import Attribute

from treadle.dialects.diagram import CastOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import holds, number_format
from treadle.passes._functions import label
from treadle.passes.expressions.distances import Distance, distance_of
from treadle.passes.expressions.inner import look_through
from treadle.passes.expressions.magnitudes import most_in
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    factors,
    is_number,
    positive_constant,
    strip_casts,
)


def misfit(expression: Expression, format: Attribute, over: Iterable[str], shrinks: bool = False) -> str | None:
    """Why an expression may not be rounded to a narrower format before it is summed over `over` (and
    scaled afterwards), or None if it may.

    It must not overflow, nor saturate. In a format of few exponents it must not vanish either: a row that is tiny
    throughout would lose what the scale afterwards was to bring back. So it must come from that format, or reach 1
    somewhere along the sum: then the scale afterwards, a share of that sum, shrinks what rounding loses. Or it is known
    that the scale `shrinks` numbers: then those that the program rounds are smaller still."""
    if is_exact_in(expression, format):
        return None
    known = number_format(format)
    if (bound := most_in(format, expression)) > known.largest:
        most = (
            f"no bound is known{_what_has_none(expression, format)}"
            if bound == numbers.inf
            else f"it may reach {bound:.3g}"
        )
        return f"it may overflow {format} ({most})"
    if shrinks or not known.has_few_exponents:
        return None
    scale, distance = _scaled_distance(_where_it_counts(expression, over))
    is_near = scale >= 1 and distance is not None and distance.is_reached
    if distance is None or not is_near or not set(distance.extremum.over_axes) <= set(over):
        return f"all of a sum may be too small for {format}: nothing keeps its largest element near 1"
    return None


def _what_has_none(expression: Expression, format: Attribute) -> str:
    """Of which factors no bound is known, and what would have one."""
    arrays = [
        factor.value for factor in map(strip_casts, factors(strip_casts(expression))[0]) if isinstance(factor, Leaf)
    ]
    endless = dict.fromkeys(label(array) for array in arrays if most_in(format, Leaf(array)) == numbers.inf)
    return f" of {', '.join(endless)}: rounded to {format}, or clipped at both ends, it has one" if endless else ""


def _where_it_counts(expression: Expression, over: Iterable[str]) -> Expression:
    """An expression in the rows that are not zero as a whole, which a condition says that does not vary along them."""
    expression = look_through(expression)
    while isinstance(expression, Node) and expression.kind is arith.SelectOp:
        condition, yes, no = expression.operands
        varies = bool(set(axes_in(condition)) & set(over))
        if varies or not any(is_number(part, 0) for part in (yes, no)):
            return expression
        expression = look_through(no if is_number(yes, 0) else yes)
    return expression


def _scaled_distance(expression: Expression) -> tuple[float, Distance | None]:
    """An expression as a positive constant times an exponential distance."""
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind is not arith.MulfOp:
        return _with_peak(distance_of(expression))
    for factor, other in (expression.operands, expression.operands[::-1]):
        if (constant := positive_constant(factor)) is not None:
            scale, distance = _scaled_distance(other)
            return constant * scale, distance
    return 1.0, None


def _with_peak(distance: Distance | None) -> tuple[float, Distance | None]:
    return (1.0 if distance is None else distance.peak), distance


def is_exact_in(expression: Expression, format: Attribute) -> bool:
    """Whether an expression is an array of that format, or of one that it holds, widened."""
    while True:
        if isinstance(expression, Leaf) and holds(format, expression.type):
            return True
        if isinstance(expression, Node) and expression.kind is arith.ExtFOp:
            expression = expression.operands[0]
        elif isinstance(expression, Leaf) and isinstance(expression.value.owner, CastOp):
            narrow = expression.value.owner.operand
            if not holds(expression.type, format_of(narrow.type)):
                return False
            expression = Leaf(narrow)
        else:
            return False
