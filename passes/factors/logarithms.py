"""Logarithms in exponents: `exp(u - log v) = exp(u) / v`.

A share that is written as a power, as `exp(log_softmax(s))` and `exp(s - logsumexp(s))` are, is a power below its
maximum over their sum; so the sum is a divisor of all of a row. Where `v` is zero, infinite or no number, both sides
are alike; it must not be below zero, where a logarithm is no number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from treadle.dialects.diagram import MapOp
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    difference,
    number,
    power_of,
    product,
    select,
    total,
)
from treadle.passes.expressions.signs import is_nonnegative

_INVERSE: dict[type[Operation], type[Operation]] = {math.ExpOp: math.LogOp, math.Exp2Op: math.Log2Op}


@dataclass(frozen=True)
class Share:
    """A power without the logarithms that were taken off its exponent, and what these are of."""

    power: Expression
    divisors: list[Expression]


def share_of(power: Node, is_late: Callable[[Expression], bool]) -> Share | None:
    """A power `exp(u - log v)` with late `v`, if what is left of it is the power of a distance from an extremum, and so
    no more than 1, or than a number of the program; None of others."""
    if power.kind not in _INVERSE:
        return None
    exponent = _Exponent(_INVERSE[power.kind], is_late)
    rest = power_of(power.kind, exponent.without(power.operands[0]))
    return Share(rest, exponent.found) if exponent.found and distance_of(rest) is not None else None


@dataclass(frozen=True)
class _Exponent:
    """Takes late logarithms off an exponent."""

    logarithm: type[Operation]
    is_late: Callable[[Expression], bool]
    found: list[Expression] = field(default_factory=list[Expression])
    """What they are of."""

    def without(self, part: Expression, subtracted: bool = False) -> Expression:
        """What is left of a part of the exponent; the part itself where it has none."""
        match part:
            case Leaf():
                inner = inner_expression(part.value) if isinstance(part.value.owner, MapOp) else None
                rest = part if inner is None else self.without(inner, subtracted)
                return part if rest is inner else rest
            case Node(kind=self.logarithm, operands=(of,)) if subtracted and self.is_late(part) and is_nonnegative(of):
                self.found.append(of)
                return number(0)
            case Node(kind=arith.AddfOp | arith.SubfOp, operands=(left, right)):
                is_sum = part.kind is arith.AddfOp
                rests = self.without(left, subtracted), self.without(right, subtracted is is_sum)
                unchanged = rests[0] is left and rests[1] is right
                return part if unchanged else (total if is_sum else difference)(*rests)
            case Node(kind=arith.SelectOp) if self.is_late(part):
                return self._without_choice(part, subtracted)
            case _:
                return part

    def _without_choice(self, choice: Node, subtracted: bool) -> Expression:
        """Of a choice whose sides have the same left of them, as where a row has an infinite maximum."""
        condition, *sides = choice.operands
        each = [_Exponent(self.logarithm, self.is_late) for _ in sides]
        rests = [inside.without(side, subtracted) for inside, side in zip(each, sides, strict=True)]
        if not any(inside.found for inside in each) or key_of(rests[0]) != key_of(rests[1]):
            return choice
        self.found.append(select(condition, *(_multiplied(inside.found) for inside in each)))
        return rests[0]


def _multiplied(factors: Iterable[Expression]) -> Expression:
    return reduce(product, factors, number(1))
