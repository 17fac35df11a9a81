"""Flags of `fastmath` by which passes say that a shorter form is as exact as it has to be."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.ir import Operation

EXACT = arith.FastMathFlagsAttr("none")
BY_RECIPROCAL = arith.FastMathFlagsAttr([arith.FastMathFlag.ALLOW_RECIP])
APPROXIMATE = arith.FastMathFlagsAttr([arith.FastMathFlag.APPROX_FUNC])


def is_by_reciprocal(op: Operation) -> bool:
    """Whether a quotient may be a product with a reciprocal, of a divisor that is no subnormal
    number."""
    return isinstance(op, arith.DivfOp) and op.fastmath == BY_RECIPROCAL


def is_approximate(op: Operation) -> bool:
    """Whether of a `tanh` an absolute error of 2^-21 is allowed."""
    return isinstance(op, math.TanhOp) and op.fastmath == APPROXIMATE
