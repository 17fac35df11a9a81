"""Powers that are infinite where what they multiply is zero.

The slope of `a / (1 + exp(-x))` is `a / (1 + exp(-x)) / (1 + exp(-x)) * exp(-x)`. Far below zero the power is beyond
f32, both quotients are zero, and zero times infinity is NaN, where the slope is next to nothing. What falls faster than
the power rises makes their product fall, too, so the power may as well stop. In slopes of slopes, what multiplies the
power is a sum of such quotients, each with its own powers above and below: its order in the power says how fast it
falls, and those that rise again (`log(1 / (1 + exp(-x)))`) are left alone."""

from __future__ import annotations

from xdsl.dialects import arith

from treadle.passes.expressions.growth import HIGHEST, POWERS, Growth
from treadle.passes.expressions.inner import look_through
from treadle.passes.expressions.scalars import Expression, Node, number

FASTER = -2 + 1e-6
"""The order that a factor must have. Above 2^96 nothing of f32 is left of one that falls twice as fast as the power
rises, and 2^31 times what is held is still finite."""


def held_finite(power: Expression, adjoint: Expression) -> Expression:
    """The power, or the least of it and a number that is as good, where the adjoint falls faster than it rises."""
    inner = look_through(power)
    if not isinstance(inner, Node) or inner.kind not in POWERS or not Growth(inner).is_at_most(adjoint, FASTER):
        return power
    return Node(arith.MinimumfOp, (power, number(HIGHEST)), power.type)


__all__ = ["held_finite"]
