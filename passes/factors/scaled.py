"""A sum times the factors that left it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith

from treadle.passes.expressions.distances import peak_of
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    is_number,
    number,
    product,
    quotient,
)
from treadle.passes.factors.rows import RowGuard


def scale(sum: Expression, above: Sequence[Expression], below: Sequence[Expression], guard: RowGuard) -> Expression:
    """The sum with its factors; of an empty axis it is 0, and stays so. A peak is divided first: what it makes of a
    divisor is the share of the largest power, which no other is above."""
    peaks = [factor for factor in above if is_peak(factor)]
    others = [factor for factor in above if not is_peak(factor)]
    scaled = sum
    for factor in others:
        scaled = product(scaled, factor)
    divisors = [divisor if others and guard.there is None else guard.safe(divisor) for divisor in below]
    if peaks:
        height: Expression = number(1)
        for peak in peaks:
            height = product(height, peak if isinstance(peak, Constant) else guard.safe(peak))
        for divisor in divisors:
            height = quotient(height, divisor)
        scaled = product(scaled, height)
    else:
        for divisor in divisors:
            scaled = quotient(scaled, divisor)
    return guard.of_all(scaled, everywhere=bool(others))


def is_peak(factor: Expression) -> bool:
    """Whether a factor is the finite peak of powers (`expressions.peaks`)."""
    return isinstance(factor, Constant) or peak_of(factor) is not None


def without_constants_of_both(
    above: Sequence[Expression], below: Sequence[Expression]
) -> tuple[list[Expression], list[Expression]]:
    """Factors and divisors without a constant factor of both: `(c a) / (c b) = a / b` of any number but zero."""
    factors, divisors = list(above), list(below)
    for factor in above:
        for i, divisor in enumerate(divisors):
            if isinstance(factor, Constant) and (rest := _rest_without(divisor, factor)) is not None:
                factors.remove(factor)
                divisors[i] = rest
                break
    return factors, divisors


def _rest_without(divisor: Expression, factor: Constant) -> Expression | None:
    """What a product is, but for a constant factor; None where it has none."""
    whole = divisor
    while isinstance(whole, Leaf) and (inner := inner_expression(whole.value)) is not None:
        whole = inner
    if not isinstance(whole, Node) or whole.kind is not arith.MulfOp:
        return None
    left, right = whole.operands
    return left if is_number(right, factor.number) else right if is_number(left, factor.number) else None
