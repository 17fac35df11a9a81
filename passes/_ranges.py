"""Which positions along an axis a condition concerns.

Along a streamed axis x a comparison of a condition (`diagram.where`) says `a * x + rest >= 0`. Over the piece of a
group `rest` lies in an interval whose ends follow from the ends of the pieces (interval analysis: the smallest and the
largest value of each term). So there are two ranges of x:

- *some*: outside of it the condition holds nowhere in the group's piece;
- *every*: inside of it the condition holds everywhere in the group's piece.

And and or combine ranges, never losing soundness: `some` may only grow, `every` only shrink. A comparison with data
along x says nothing: it may hold anywhere and need hold nowhere. So it is tested element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue

from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either, Linear


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
    """Where a condition may hold. `is_known` says of an input whether a group knows its smallest and largest value."""
    match condition:
        case AtLeastZero(form):
            return _where(form, axis, 1, is_known) or WHOLE
        case Both(parts):
            ranges = [some_of(part, axis, is_known) for part in parts]
            return Range(_extreme([r.low for r in ranges], True), _extreme([r.high for r in ranges], False))
        case Either(parts):
            return hull([some_of(part, axis, is_known) for part in parts])


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
