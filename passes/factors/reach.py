"""Whether what is left to sum stays in the range of f32 when several factors leave it.

Over the reals factors may leave in any number. Each makes the summands smaller or larger by what it is, though, and
where several do a summand may leave the range of f32 in which the formula keeps it: `sum((x / m)^2)`, with the largest
of x for m, is a number of about 1, and `sum(x^2) / m^2` is 0 / 0 for x near 1e-25. One factor is let go anyway: what is
left are the numbers that the program had before it scaled them (`docs/numerics.md`, exceptions)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, math

from treadle.dialects.diagram.formats import known_format
from treadle.passes.expressions.distances import FAR_FROM_OVERFLOW
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.magnitudes import magnitude, shrink
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, strip_casts
from treadle.passes.factors.scaled import is_peak
from treadle.passes.factors.split import Split

LEAST = 2.0**-100
"""Products of numbers that are no smaller than this, or zero, keep their digits in f32."""


def stay_in_range(splits: Sequence[Split]) -> bool:
    """Whether summands without their factors are in the range of f32 wherever those with them are: at most one factor
    leaves, or there are bounds. A peak is no factor here, for powers are told from it."""
    above = [factor for split in splits for factor in split.above if not is_peak(factor)]
    below = [factor for split in splits for factor in split.below if not is_peak(factor)]
    if len(above) + len(below) < 2:
        return True
    rests = [split.rest for split in splits]
    if prod(magnitude(rest) for rest in rests) > FAR_FROM_OVERFLOW:
        return False
    if prod(_smallest(rest) for rest in rests) >= LEAST:
        return True
    return shrink(above, below)


def _smallest(expression: Expression) -> float:
    """A lower bound of the absolute value where it is not zero; zero where none is known."""
    expression = strip_casts(expression)
    if isinstance(expression, Leaf):
        inner, known = inner_expression(expression.value), known_format(expression.type)
        own = known.tiny if known is not None and known.has_few_exponents else 0.0
        return own if inner is None else max(own, _smallest(inner))
    if isinstance(expression, Constant):
        return abs(expression.number)
    match expression.kind:
        case arith.NegfOp | math.AbsFOp:
            return _smallest(expression.operands[0])
        case arith.MulfOp:
            return _smallest(expression.operands[0]) * _smallest(expression.operands[1])
        case _:
            return 0.0
