"""What can be proved about magnitudes. All of it is conservative: "unknown" is always a right answer."""

from __future__ import annotations

import math as numbers
from collections.abc import Iterable

from xdsl.dialects import arith, math
from xdsl.ir import Attribute, SSAValue

from treadle.dialects.diagram import ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.formats import known_format, number_format
from treadle.passes.expressions.distances import FAR_FROM_OVERFLOW, distance_of, least_of_sum
from treadle.passes.expressions.forms import linear_form, same_form
from treadle.passes.expressions.inner import inner_expression, logarithm_of, look_through
from treadle.passes.expressions.negative_exponents import is_never_above_zero
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    leaves,
    strip_casts,
)
from treadle.passes.expressions.signs import is_nonnegative, least


def magnitude(expression: Expression, unknown: float = numbers.inf) -> float:
    """An upper bound of the absolute value; where none is known, `unknown` stands for it."""
    expression = strip_casts(expression)
    if isinstance(expression, Leaf):
        owner = expression.value.owner
        # Of what a condition leaves.
        inner = Leaf(owner.operand) if isinstance(owner, WhereOp) else inner_expression(expression.value)
        known = known_format(expression.type)
        own = known.largest if known is not None and known.has_few_exponents else unknown
        if isinstance(owner, WhereOp) and _keeps_small_powers(owner):
            return min(own, 1.0)
        return own if inner is None else min(own, magnitude(inner, unknown))
    if isinstance(expression, Constant):
        return abs(expression.number)
    if (near := distance_of(expression)) is not None:
        return near.peak
    return _magnitude_of_node(expression, unknown)


def _keeps_small_powers(where: WhereOp) -> bool:
    """Whether a condition keeps powers that are at most 1 where it holds."""
    power = look_through(Leaf(where.operand))
    if not isinstance(power, Node) or power.kind not in (math.ExpOp, math.Exp2Op):
        return False
    return is_never_above_zero(power.operands[0], [where])


def most_in(format: Attribute, expression: Expression) -> float:
    """An upper bound of the absolute value of what is to be rounded to a format, computed in f32. Of what is beyond the
    largest f32 the plain form is infinite, too, so a format of as many exponents takes its own largest number where no
    bound is known."""
    known = number_format(format)
    return magnitude(expression, numbers.inf if known.has_few_exponents else known.largest)


def shrink(above: Iterable[Expression], below: Iterable[Expression]) -> bool:
    """Whether a number that is scaled by some factors, and divided by others, is proved to be no larger then, but for
    the two binary digits that a sum of powers may be off by (`distances.ROUNDED`)."""
    return all(magnitude(each) <= 1 for each in above) and all(at_least(each) >= QUARTER for each in below)


QUARTER = 0.25
"""Divisors that are at least this make what they divide larger by two binary digits each at most: of sums of powers no
more is known (`distances.ROUNDED`)."""


def at_least(divisor: Expression) -> float:
    """A lower bound of what divides, unless that is a sum of nothing; zero if none is known."""
    whole = look_through(divisor)
    if isinstance(whole, Node) and whole.kind is arith.SelectOp:
        return min(at_least(side) for side in whole.operands[1:])
    return max(least(divisor), least_of_sum(divisor))


def _magnitude_of_node(node: Node, unknown: float) -> float:
    operands = node.operands
    match node.kind:
        case math.SinOp | math.CosOp | math.TanhOp | math.ErfOp:
            return 1.0
        case arith.NegfOp | math.AbsFOp:
            return magnitude(operands[0], unknown)
        case arith.AddfOp | arith.SubfOp:
            return sum(magnitude(operand, unknown) for operand in operands)
        case arith.MulfOp:
            return _times(magnitude(operands[0], unknown), magnitude(operands[1], unknown))
        case arith.DivfOp if is_share(operands[0], operands[1]):
            return 1.0
        case math.ExpOp | math.Exp2Op if is_never_above_zero(operands[0]):
            return 1.0
        case math.ExpOp if _is_share_by_logarithm(operands[0]):
            return 1.0
        case arith.DivfOp if (smallest := least(operands[1])) > 0:
            return magnitude(operands[0], unknown) / smallest
        case arith.MaximumfOp | arith.MinimumfOp:
            return max(_most(node, unknown), _most(node, unknown, -1.0))
        case arith.SelectOp:
            return max(magnitude(operand, unknown) for operand in operands[1:])
        case _:
            return unknown


def _most(expression: Expression, unknown: float, sign: float = 1.0) -> float:
    """An upper bound of an expression, or of it times -1. A number is clipped by two extrema, each at one end."""
    expression = look_through(expression)
    if sign < 0 and is_nonnegative(expression):
        return 0.0
    match expression:
        case Constant(number=number):
            return sign * number
        case Node(kind=arith.MaximumfOp | arith.MinimumfOp as kind, operands=operands):
            parts = [_most(operand, unknown, sign) for operand in operands]
            return max(parts) if (kind is arith.MaximumfOp) == (sign > 0) else min(parts)
        case _:
            return magnitude(expression, unknown)


def is_share(part: Expression, whole: Expression) -> bool:
    """Whether `whole` is the sum of values of which `part` is one, none of them negative."""
    part, whole = strip_casts(part), look_through(whole)
    if not isinstance(part, Leaf) or not isinstance(whole, Leaf):
        return False
    sum = whole.value.owner
    if not isinstance(sum, ReduceOp) or sum.kind.data != "add" or sum.init is not None:
        return False
    return sum.operand is part.value and is_nonnegative(part)


def _is_share_by_logarithm(exponent: Expression) -> bool:
    """Whether an exponent is that of powers, less the logarithm of their sum. Each element that it has counts in it."""
    form, absent = linear_form(exponent), absences_of(leaf.value for leaf in leaves(exponent))
    for atom, factor in form.items():
        sum = logarithm_of(atom) if isinstance(atom, SSAValue) and factor == -1 else None
        if sum is None or not isinstance(sum.owner, ReduceOp) or sum.owner.kind.data != "add" or sum.owner.init:
            continue
        power = look_through(Leaf(sum.owner.operand))
        if (
            not isinstance(power, Node)
            or power.kind is not math.ExpOp
            or not absences_of([sum.owner.operand]) <= absent
        ):
            continue
        rest = {other: size for other, size in form.items() if other is not atom}
        if same_form(rest, linear_form(power.operands[0])):
            return True
    return False


def is_far_from_overflow(expression: Expression) -> bool:
    """Whether an expression is finite in f32: bounded, or a sum of bounded elements, or of such."""
    expression = look_through(expression)
    match expression:
        case Leaf(value=value) if isinstance(value.owner, ReduceOp) and value.owner.kind.data == "add":
            return value.owner.init is None and magnitude(Leaf(value.owner.operand)) <= FAR_FROM_OVERFLOW
        case Node(kind=arith.AddfOp, operands=operands):
            return all(is_far_from_overflow(each) for each in operands)
        case _:
            return magnitude(expression) <= FAR_FROM_OVERFLOW


def _times(left: float, right: float) -> float:
    return 0.0 if 0.0 in (left, right) else left * right
