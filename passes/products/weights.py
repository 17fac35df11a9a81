"""What stands between two products, taken apart: factors that are the same throughout the outer sum, factors that are
the same for all its rows, and powers of sums of both.

`exp(u[q] + v[x])` is `exp(u[q]) exp(v[x])`, of which neither may be a number of f32 where the power is one: decays are
such, `exp(a[q] - a[x])`, with `a` the sum of the logarithms of all decays so far. So powers are told from a reference,
the largest `v` of what is summed: `exp(u + v) = exp(u + r) exp(v - r)`, whose second factor is at most 1 and whose
first one is the largest power of the row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation

from treadle.passes.expressions.inner import inner_expression, is_saturating
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    axes_in,
    convert,
    difference,
    is_number,
    number,
    product,
    quotient,
    total,
)


@dataclass(frozen=True)
class Weights:
    """What an inner product is multiplied by: `scale * weight * exp(row + summed)`, and what is none of these."""

    scale: Expression
    """The same throughout the outer sum."""
    weight: Expression
    """The same for all rows."""
    row: Expression
    """Of an exponent, what is the same throughout the outer sum, in f32."""
    summed: Expression
    """Of an exponent, what is the same for all rows, in f32; 0 where there is no power."""
    mixed: Expression | None = None
    """A factor that varies with both and is no such power."""

    @property
    def has_power(self) -> bool:
        return not is_number(self.summed, 0)


def weights_of(factors: Iterable[Expression], over: Collection[str], rows: Collection[str]) -> Weights:
    """The factors of an inner product, by the axes over which the outer sum goes and those of its rows."""
    found = Weights(*(number(each) for each in (1, 1, 0, 0)))
    left = [(factor, False) for factor in factors]
    while left:
        factor, below = left.pop(0)
        if (parts := _parts(factor, below)) is not None and _is_mixed(factor, over, rows):
            left = [*parts, *left]
        else:
            found = _with(found, factor, below, over, rows)
    return found


def _is_mixed(expression: Expression, over: Collection[str], rows: Collection[str]) -> bool:
    axes = {*axes_in(expression)}
    return bool(axes & {*over}) and bool(axes & {*rows})


def _parts(factor: Expression, below: bool) -> list[tuple[Expression, bool]] | None:
    """The factors of a factor, each with whether it divides; None where it has none."""
    if is_saturating(factor):
        return None
    if isinstance(factor, Leaf):
        inner = inner_expression(factor.value)
        return None if inner is None else [(inner, below)]
    if not isinstance(factor, Node) or factor.kind not in (arith.MulfOp, arith.DivfOp, *CASTS):
        return None
    first, *others = factor.operands
    return [(first, below), *((other, below is (factor.kind is arith.MulfOp)) for other in others)]


def _with(found: Weights, factor: Expression, below: bool, over: Collection[str], rows: Collection[str]) -> Weights:
    """What was found, and one more factor."""
    join = quotient if below else product
    if not {*axes_in(factor)} & {*over}:
        return Weights(join(found.scale, factor), found.weight, found.row, found.summed, found.mixed)
    if not _is_mixed(factor, over, rows):
        return Weights(found.scale, join(found.weight, factor), found.row, found.summed, found.mixed)
    row, summed = found.row, found.summed
    if not isinstance(factor, Node) or factor.kind is not math.ExpOp:
        return Weights(found.scale, found.weight, row, summed, found.mixed or factor)
    for sign, term in _terms(factor.operands[0], over, rows):
        if _is_mixed(term, over, rows):
            return Weights(found.scale, found.weight, row, summed, found.mixed or factor)
        add = difference if (sign < 0) != below else total
        if {*axes_in(term)} & {*over}:
            summed = add(summed, convert(term, f32))
        else:
            row = add(row, convert(term, f32))
    return Weights(found.scale, found.weight, row, summed, found.mixed)


_SUMS: dict[type[Operation], int] = {arith.AddfOp: 1, arith.SubfOp: -1, arith.AddiOp: 1, arith.SubiOp: -1}
"""With the sign of the second operand."""


def _terms(expression: Expression, over: Collection[str], rows: Collection[str]) -> Iterator[tuple[int, Expression]]:
    """A sum as terms with their signs, as far as is needed to keep apart what varies with rows and with what is
    summed; a factor of a sum is one of each term."""
    if not _is_mixed(expression, over, rows) or is_saturating(expression):
        yield 1, expression
        return
    match expression:
        case Leaf(value=value) if (inner := inner_expression(value)) is not None:
            yield from _terms(inner, over, rows)
        case Node(kind=kind, operands=(left, right)) if kind in _SUMS:
            yield from _terms(left, over, rows)
            yield from ((_SUMS[kind] * sign, term) for sign, term in _terms(right, over, rows))
        case Node(kind=arith.NegfOp, operands=(operand,)):
            yield from ((-sign, term) for sign, term in _terms(operand, over, rows))
        case Node(kind=kind, operands=(operand,)) if kind in (*CASTS, arith.SIToFPOp):
            yield from ((sign, convert(term, f32)) for sign, term in _terms(operand, over, rows))
        case Node(kind=arith.MulfOp, operands=(left, right)):
            many, one = (left, right) if _is_mixed(left, over, rows) else (right, left)
            yield from ((sign, product(term, one)) for sign, term in _terms(many, over, rows))
        case Node(kind=arith.DivfOp, operands=(many, one)):
            yield from ((sign, quotient(term, one)) for sign, term in _terms(many, over, rows))
        case _:
            yield 1, expression


__all__ = ["Weights", "weights_of"]
