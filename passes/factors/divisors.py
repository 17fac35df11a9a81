"""Numbers that divide what is summed, and the sums of powers that they are."""

from __future__ import annotations

from xdsl.dialects import arith

from treadle.dialects.diagram import ReduceOp
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.infinities import sources
from treadle.passes.expressions.kinds import NAN, kinds_of
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, Node, number, select


def is_above_zero(divisor: Expression) -> bool:
    """Whether a divisor is above zero in all rows that have elements, if it is a number; of a choice both sides are."""
    above = {key_of(leaf): NAN | {"+"} for leaf in sources(divisor) if _counts_its_peak(leaf)}
    return kinds_of(divisor, above) <= NAN | {"+", "+inf"}


def _counts_its_peak(leaf: Leaf) -> bool:
    """Whether an array is a sum of powers of distances from an extremum, that of the extremum itself among them."""
    sum = _sum(leaf)
    near = None if sum is None else distance_of(Leaf(sum.operand))
    return near is not None and near.is_reached and not near.may_vanish


def summed_powers(divisor: Expression) -> Expression | None:
    """The powers of distances from an extremum that a divisor is the sum of, and zero in rows for which it has a number
    instead: where one of these is no number, neither is the divisor."""
    match divisor:
        case Node(kind=arith.SelectOp, operands=(condition, Constant(), other)):
            powers = summed_powers(other)
            return None if powers is None else select(condition, number(0, powers.type), powers)
        case Node(kind=arith.SelectOp, operands=(condition, other, Constant())):
            powers = summed_powers(other)
            return None if powers is None else select(condition, powers, number(0, powers.type))
        case _:
            sum = _sum(divisor)
            powers = None if sum is None else Leaf(sum.operand)
            return None if powers is None or distance_of(powers) is None else powers


def _sum(divisor: Expression) -> ReduceOp | None:
    owner = divisor.value.owner if isinstance(divisor, Leaf) else None
    return owner if isinstance(owner, ReduceOp) and owner.kind.data == "add" and owner.init is None else None


__all__ = ["is_above_zero", "summed_powers"]
