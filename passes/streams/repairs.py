"""What accumulators are repaired by at given moments, and what stands for the extrema that they follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import LocationAttr, UnknownLoc
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.array import format_of
from treadle.passes.expressions.kinds import FINITE, ZERO, kinds_of
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.reductions import is_neutral, neutral_of, stand_in_of
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    compare,
    leaves,
    number,
    product,
    select,
    substitute,
    total,
)
from treadle.passes.streams.changes import ADDED, BEFORE, Repair
from treadle.passes.streams.stages import StreamPlan


@dataclass(frozen=True)
class Moments:
    """What states were before something moved, and what they and all else are after: a number where one stands for
    them, and themselves."""

    before: Callable[[SSAValue], SSAValue]
    after: Callable[[SSAValue], SSAValue]
    itself: Callable[[SSAValue], SSAValue]
    added: Callable[[SSAValue], SSAValue] | None = None
    """What a step adds to a sum; None where there are no steps, and nothing is scanned."""


Apply: TypeAlias = Callable[[Expression, Expression], Expression]


def changes_at(
    state: SSAValue, repair: Repair, plan: StreamPlan, moments: Moments
) -> Iterator[tuple[Apply, Expression]]:
    """By what, and how, an accumulator is changed at some moments, one after the other."""
    if repair.summand is not None:
        yield total, _summand_at(repair.summand, plan, moments)
    if repair.factor is not None:
        yield product, _factor_at(state, repair.factor, plan, moments)
    if repair.stays is not None:
        neutral = number(neutral_of(state).value.data, format_of(state.type))
        stays = _at(repair.stays, Moments(moments.before, moments.itself, moments.itself), lambda value: [])
        yield _or_anew(neutral), select(stays, number(1, neutral.type), number(0, neutral.type))


def _or_anew(neutral: Expression) -> Apply:
    """What an accumulator is where a number is zero that says whether it stays."""

    def apply(whole: Expression, stays: Expression) -> Expression:
        match stays:
            case Node(kind=arith.SelectOp, operands=(test, Constant(number=1), Constant(number=0))):
                return select(test, whole, neutral)
            case _:
                return select(compare(stays, "!=", number(0, stays.type)), whole, neutral)

    return apply


def _factor_at(state: SSAValue, factor: Expression, plan: StreamPlan, moments: Moments) -> Expression:
    """What an accumulator is multiplied by, at some moments. While a guarded state was neutral nothing was added, so
    there is nothing to repair: what such a state is after the step takes the place of what it was. All states are so
    exchanged: what a factor makes of their ways may overflow, and 0 times infinity is no number. None is where 0 is
    added up and the factor, too, is 0: as a power of 2 of -inf is."""
    moved = _moved(factor)
    guards = [] if _stays_nothing(state, factor, moved) else [each for each in moved if each in plan.guarded]
    return _at(factor, moments, lambda value: guards)


def _summand_at(summand: Expression, plan: StreamPlan, moments: Moments) -> Expression:
    """What an accumulator is increased by, at some moments; of a guarded state that was neutral as in a factor."""
    return _at(summand, moments, lambda value: [value] if value in plan.guarded else [])


def _at(change: Expression, moments: Moments, guards_of: Callable[[SSAValue], Sequence[SSAValue]]) -> Expression:
    def replace(leaf: Leaf) -> Expression:
        if leaf.version == ADDED:
            assert moments.added is not None
            return Leaf(moments.added(leaf.value))
        if leaf.version != BEFORE:
            return Leaf(moments.after(leaf.value))
        here: Expression = Leaf(moments.before(leaf.value))
        for guard in guards_of(leaf.value):
            here = select(is_neutral(guard, Leaf(moments.before(guard))), Leaf(moments.after(leaf.value)), here)
        return here

    return substitute(change, replace)


def _moved(change: Expression) -> list[SSAValue]:
    return list(dict.fromkeys(leaf.value for leaf in leaves(change) if leaf.version == BEFORE))


def stood_in(state: SSAValue, value: SSAValue) -> MapOp:
    """A value of a state; where it is neutral, the finite number that stands for it."""
    leaf = Leaf(value)
    finite = select(is_neutral(state, leaf), number(stand_in_of(state), leaf.type), leaf)
    return build_map(finite, value.type, hint_of(state, "safe"), location_of(state))


def _stays_nothing(state: SSAValue, factor: Expression, moved: Sequence[SSAValue]) -> bool:
    """Whether a sum is repaired by the way of one state, by a factor that is 0 where that was neutral and is a number
    now, for finite values of all else."""
    if neutral_of(state).value.data != 0 or len(moved) != 1:
        return False
    others = [leaf for leaf in leaves(factor) if leaf.value is not moved[0]]
    given = {key_of(leaf): kinds_of(leaf) & FINITE for leaf in others}
    given[key_of(Leaf(moved[0]))] = FINITE
    given[key_of(Leaf(moved[0], BEFORE))] = kinds_of(number(neutral_of(moved[0]).value.data))
    return kinds_of(factor, given) == ZERO


def hint_of(value: SSAValue, suffix: str) -> str | None:
    return f"{value.name_hint}_{suffix}" if value.name_hint else None


def location_of(value: SSAValue) -> LocationAttr:
    return value.owner.location if isinstance(value.owner, Operation) else UnknownLoc()
