"""Conditions on positions, and which pieces of a streamed axis they concern.

A condition is what the first operand of an `arith.select` in a map computes: comparisons of integers that are linear
in positions (`diagram.index`), scalars and arrays, joined by and, or, not. Along a streamed axis x a comparison says
`a * x + rest >= 0`. Over the piece of a group `rest` lies in an interval whose ends follow from the ends of the
pieces (interval analysis: the smallest and the largest value of each term). So there are two ranges of x:

- *some*: outside of it the condition holds nowhere in the group's piece;
- *every*: inside of it the condition holds everywhere in the group's piece.

And and or combine ranges, never losing soundness: `some` may only grow, `every` only shrink. What is not linear, or
compares with data along x, says nothing: it holds somewhere everywhere and everywhere nowhere. So it is tested
element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, SSAValue

from treadle.dialects.diagram.ops import IndexOp, MapOp

# -- conditions -----------------------------------------------------------------------------------

Term: TypeAlias = "str | SSAValue"
"""What a linear form sums up: the position along an axis (its name), or a scalar or array of integers."""


@dataclass(frozen=True)
class Linear:
    """`sum(factor * term) + constant`, over the integers."""

    terms: Mapping[Term, int] = field(default_factory=dict[Term, int])
    constant: int = 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for term, size in other.terms.items():
            terms[term] = terms.get(term, 0) + factor * size
        kept = {term: size for term, size in terms.items() if size}
        return Linear(kept, self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        return Linear().plus(self, factor)


@dataclass(frozen=True)
class AtLeastZero:
    """`form >= 0`."""

    form: Linear


@dataclass(frozen=True)
class Both:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Unknown:
    """A condition of which nothing is known before it is tested."""


Condition: TypeAlias = AtLeastZero | Both | Either | Unknown

ALWAYS = Both(())
NEVER = Either(())

_TRUE_FROM = {2: (1, 0, -1), 3: (1, 0, 0), 4: (0, 1, -1), 5: (0, 1, 0)}
"""For the predicates slt, sle, sgt, sge of `arith.cmpi`: which operand is the larger one (1 the right, 0 the left),
which the smaller, and what is added to their difference."""

LINEAR_DEPTH = 64
"""How many maps and operations a condition is followed through."""


def condition_of(value: SSAValue) -> Condition:
    """The condition that a boolean in the body of a map stands for."""
    return _condition(value, negated=False)


def _condition(value: SSAValue, negated: bool) -> Condition:
    owner = value.owner
    match owner:
        case arith.ConstantOp(value=IntegerAttr() as number):
            return ALWAYS if bool(number.value.data) != negated else NEVER
        case arith.AndIOp() | arith.OrIOp():
            parts = tuple(_condition(operand, negated) for operand in owner.operands)
            return Both(parts) if isinstance(owner, arith.AndIOp) != negated else Either(parts)
        case arith.XOrIOp() if _is_true(owner.rhs):
            return _condition(owner.lhs, not negated)
        case arith.XOrIOp() if _is_true(owner.lhs):
            return _condition(owner.rhs, not negated)
        case arith.CmpiOp():
            return _comparison(owner, negated)
        case _:
            return Unknown()


def _is_true(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr) and owner.value.value.data != 0


def _comparison(op: arith.CmpiOp, negated: bool) -> Condition:
    left, right = linear_of(op.lhs), linear_of(op.rhs)
    predicate = op.predicate.value.data
    if left is None or right is None or predicate > 5:
        return Unknown()
    if predicate in (0, 1):
        apart = left.plus(right, -1)
        if (predicate == 0) != negated:
            return Both((AtLeastZero(apart), AtLeastZero(apart.times(-1))))
        return Either((AtLeastZero(apart.plus(Linear(constant=-1))), AtLeastZero(apart.times(-1).plus(Linear({}, -1)))))
    is_right_larger, _, added = _TRUE_FROM[predicate]
    larger, smaller = (right, left) if is_right_larger else (left, right)
    form = larger.plus(smaller, -1).plus(Linear(constant=added))
    return AtLeastZero(form.times(-1).plus(Linear(constant=-1)) if negated else form)


def linear_of(value: SSAValue, depth: int = 0) -> Linear | None:
    """An integer in the body of a map as a linear form of what the map is given, through maps before it."""
    if depth > LINEAR_DEPTH:
        return None
    if isinstance(value, BlockArgument):
        return _linear_of_operand(value, depth)
    match value.owner:
        case arith.ConstantOp(value=IntegerAttr() as number):
            return Linear(constant=number.value.data)
        case arith.AddiOp(lhs=lhs, rhs=rhs):
            return _sum(linear_of(lhs, depth + 1), linear_of(rhs, depth + 1), 1)
        case arith.SubiOp(lhs=lhs, rhs=rhs):
            return _sum(linear_of(lhs, depth + 1), linear_of(rhs, depth + 1), -1)
        case arith.MuliOp(lhs=lhs, rhs=rhs):
            return _product(linear_of(lhs, depth + 1), linear_of(rhs, depth + 1))
        case _:
            return None


def _linear_of_operand(argument: BlockArgument, depth: int) -> Linear | None:
    map = argument.block.parent_op()
    if not isinstance(map, MapOp):
        return None
    operand = map.inputs[argument.index]
    if isinstance(operand.owner, IndexOp):
        return Linear({operand.owner.axis: 1})
    if isinstance(operand.owner, MapOp):
        return linear_of(operand.owner.yielded, depth + 1) or Linear({operand: 1})
    return Linear({operand: 1})


def _sum(left: Linear | None, right: Linear | None, factor: int) -> Linear | None:
    return None if left is None or right is None else left.plus(right, factor)


def _product(left: Linear | None, right: Linear | None) -> Linear | None:
    if left is None or right is None:
        return None
    if left.terms and right.terms:
        return None
    return left.times(right.constant) if left.terms else right.times(left.constant)


# -- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corner:
    """The largest (`sign` 1) or smallest (-1) value that a linear form takes in the piece of a group."""

    form: Linear
    sign: int


@dataclass(frozen=True)
class Quotient:
    """`floor(corner / divisor)`, or with `up` the ceiling."""

    corner: Corner
    divisor: int
    up: bool = False
    added: int = 0


@dataclass(frozen=True)
class Gate:
    """The whole axis if a corner is not negative, else nothing of it: an upper end."""

    corner: Corner


@dataclass(frozen=True)
class Extreme:
    """The largest or smallest of some ends."""

    largest: bool
    ends: tuple[End, ...]


End: TypeAlias = Quotient | Gate | Extreme


@dataclass(frozen=True)
class Range:
    """Positions from `low` up to, but not including, `high`; None is no limit."""

    low: End | None = None
    high: End | None = None

    @property
    def is_whole(self) -> bool:
        return self.low is None and self.high is None


WHOLE = Range()
"""All positions."""


def some_of(condition: Condition, axis: str, is_known: Callable[[SSAValue], bool]) -> Range:
    """Where a condition may hold. `is_known` says of a value whether each group knows it as one number."""
    match condition:
        case AtLeastZero(form):
            return _where(form, axis, 1, is_known) or WHOLE
        case Both(parts):
            ranges = [some_of(part, axis, is_known) for part in parts]
            return Range(_extreme([r.low for r in ranges], True), _extreme([r.high for r in ranges], False))
        case Either(parts):
            return hull([some_of(part, axis, is_known) for part in parts])
        case Unknown():
            return WHOLE


def every_of(condition: Condition, axis: str, is_known: Callable[[SSAValue], bool]) -> Range | None:
    """Where a condition holds throughout; None if nothing says so."""
    match condition:
        case AtLeastZero(form):
            return _where(form, axis, -1, is_known)
        case Both(parts):
            ranges = [every_of(part, axis, is_known) for part in parts]
            known = [r for r in ranges if r is not None]
            if len(known) < len(ranges):
                return None
            return intersection(known)
        case Either(parts):
            return _some_alternative([every_of(part, axis, is_known) for part in parts])
        case Unknown():
            return None


def _where(form: Linear, axis: str, sign: int, is_known: Callable[[SSAValue], bool]) -> Range | None:
    """Where `form >= 0` for the best (`sign` 1) or the worst (-1) of the group's other positions."""
    if any(isinstance(term, SSAValue) and not is_known(term) for term in form.terms):
        return None
    slope = form.terms.get(axis, 0)
    rest = form.plus(Linear({axis: 1}), -slope)
    if slope == 0:
        return Range(high=Gate(Corner(rest, sign)))
    if slope < 0:  # x <= rest / -slope
        return Range(high=Quotient(Corner(rest, sign), -slope, added=1))
    return Range(low=Quotient(Corner(rest.times(-1), -sign), slope, up=True))


def intersection(ranges: Sequence[Range]) -> Range:
    return Range(_extreme([r.low for r in ranges], True), _extreme([r.high for r in ranges], False))


def hull(ranges: Sequence[Range]) -> Range:
    """The smallest range around all of them; around none, the whole axis."""
    low = None if any(r.low is None for r in ranges) else _extreme([r.low for r in ranges], False)
    high = None if any(r.high is None for r in ranges) else _extreme([r.high for r in ranges], True)
    return Range(low, high)


def _some_alternative(ranges: Sequence[Range | None]) -> Range | None:
    """Part of a union that is a range itself: all of it where all are open to the same side, else the first."""
    known = [r for r in ranges if r is not None]
    if not known:
        return None
    if all(r.low is None for r in known) or all(r.high is None for r in known):
        return hull(known)
    return known[0]


def _extreme(ends: Sequence[End | None], largest: bool) -> End | None:
    present: list[End] = []
    for end in ends:
        if end is not None and end not in present:
            present.append(end)
    if len(present) < 2:
        return next(iter(present), None)
    return Extreme(largest, tuple(present))
