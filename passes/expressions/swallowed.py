"""Powers that are infinite where what they multiply is zero.

The slope of `a / (1 + exp(-x))` is `a / (1 + exp(-x)) / (1 + exp(-x)) * exp(-x)`. Far below zero the power is beyond
f32, both quotients are zero, and zero times infinity is NaN, where the slope is next to nothing. What is divided twice
by a sum that has the power falls as the power rises, so the power may as well stop."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith

from treadle.passes.expressions.inner import look_through
from treadle.passes.expressions.scalars import (
    Expression,
    Node,
    is_number,
    is_same,
    number,
    positive_constant,
)

HIGHEST = 2.0**96
"""Above, nothing of f32 is left of one that is divided twice by more; and 2^31 times as much is still finite."""


def held_finite(power: Expression, adjoint: Expression) -> Expression:
    """The power, or the least of it and a number that is as good, where the adjoint is divided by it twice."""
    above, below = _factors(adjoint)
    if sum(_is_raised(each, power) for each in below) < 2 or not _is_free(above, power):
        return power
    return Node(arith.MinimumfOp, (power, number(HIGHEST)), power.type)


def _factors(expression: Expression) -> tuple[list[Expression], list[Expression]]:
    """Those of a product and of its divisor, behind the names of maps and without signs."""
    part = look_through(expression)
    if not isinstance(part, Node):
        return [part], []
    if part.kind is arith.NegfOp:
        return _factors(part.operands[0])
    if part.kind is arith.SubfOp and is_number(part.operands[0], 0):
        return _factors(part.operands[1])
    if part.kind is arith.MulfOp:
        one, other = (_factors(operand) for operand in part.operands)
        return [*one[0], *other[0]], [*one[1], *other[1]]
    if part.kind is arith.DivfOp:
        above, below = _factors(part.operands[0])
        return above, [*below, part.operands[1]]
    return [part], []


def _is_raised(divisor: Expression, power: Expression) -> bool:
    """Whether it is a constant above zero and the power."""
    part = look_through(divisor)
    if not isinstance(part, Node) or part.kind is not arith.AddfOp:
        return False
    one, other = part.operands
    return any(
        positive_constant(constant) is not None and is_same(rest, power)
        for constant, rest in ((one, other), (other, one))
    )


def _is_free(parts: Sequence[Expression], power: Expression) -> bool:
    """Whether none rises with the power: it is in divisors that have it, if it is anywhere."""
    waiting, seen = list(parts), set[int]()
    while waiting:
        part = waiting.pop()
        if is_same(part, power):
            return False
        part = look_through(part)
        if not isinstance(part, Node) or id(part) in seen:
            continue
        seen.add(id(part))
        if is_same(part, power):
            return False
        is_swallowed = part.kind is arith.DivfOp and _is_raised(part.operands[1], power)
        waiting += part.operands[:1] if is_swallowed else part.operands
    return True


__all__ = ["held_finite"]
