"""Powers of 2 of what is below its maximum, times a factor: `exp2(slope a - offset)`, one multiply-add an element."""

from __future__ import annotations

import math as numbers
from dataclasses import dataclass

from xdsl.dialects import math
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    compare,
    difference,
    number,
    product,
    select,
)
from treadle.passes.expressions.spans import Span, span_of_maximum

DIGITS = 24
"""Binary digits of an f32."""
EXPONENT = 127
"""The largest exponent of an f32."""


LOWEST = -NUMBER_FORMATS[str(f32)].largest


@dataclass(frozen=True)
class MultiplyAdd:
    """Of all elements that share a maximum."""

    slope: SSAValue
    offset: SSAValue
    lowest: float
    """A finite number that no finite maximum is below, for which both are finite."""


def below_maximum(
    map: MapOp, a: SSAValue, at_most: SSAValue, maximum: SSAValue, factor: Expression, plus: float
) -> MultiplyAdd:
    """Slope and offset, arrays of their own before `map`, by which it makes `exp2(factor (a - at_most) + plus)`, where
    `at_most` is a maximum, or a number in its place."""
    steep, span = _steep(Leaf(at_most), factor, span_of_maximum(maximum, a), plus)
    is_fine = _is_fine(Leaf(at_most), factor)
    slope = _before(map, select(is_fine, factor, steep), at_most, "slope")
    offset = product(Leaf(at_most), Leaf(slope))
    if plus and span is not None:
        offset = Node(math.FmaOp, (Leaf(at_most), Leaf(slope), number(-plus)), f32)
    elif plus:
        offset = difference(offset, select(is_fine, number(plus), number(0)))
    lowest = LOWEST if span is None else -(2.0**span.most)
    return MultiplyAdd(slope, _before(map, offset, at_most, "offset"), lowest)


def _is_fine(maximum: Expression, factor: Expression) -> Expression:
    """Whether a product of a maximum and a factor has digits after the point."""
    size = Node(math.AbsFOp, (maximum,), maximum.type)
    if isinstance(factor, Constant):
        return compare(size, "<", number(2.0**DIGITS / factor.number))
    return compare(product(size, factor), "<", number(2.0**DIGITS))


def _steep(maximum: Expression, factor: Expression, span: Span | None, plus: float) -> tuple[Expression, Span | None]:
    """A power of two, at least a half of the factor, whose product with the maximum is finite. Of a factor that is not
    known it is so steep that neighbours of the maximum are 1 apart, at least: whatever the factor, they are that in a
    product with it that has no digit after the point. If one does for a whole span, what is added vanishes beside that
    product, too."""
    if isinstance(factor, Constant):
        return number(2.0 ** min(round(numbers.log2(factor.number)), 0)), None
    if span is not None and (exponent := _for_all(span, plus)) is not None:
        return number(2.0**exponent), span
    size = Node(math.AbsFOp, (maximum,), maximum.type)
    large = select(compare(size, "<", number(2.0**64)), number(2.0**63), number(1))
    return select(compare(size, "<", number(1)), number(2.0**126), large), None


def _for_all(span: Span, plus: float) -> int | None:
    """The exponent of a slope that does for every maximum of sums that are so far apart and so large, at the most."""
    exponent = EXPONENT - span.most
    # The least product has a last digit of which what is added is less than a quarter.
    last = span.apart + exponent - DIGITS
    return exponent if span.apart + exponent >= 0 and abs(plus) < 2.0 ** (last - 2) else None


def _before(map: MapOp, expression: Expression, like: SSAValue, hint: str) -> SSAValue:
    new = build_map(expression, like.type, hint, map.location)
    Rewriter.insert_op(new, InsertPoint.before(map))
    return new.result
