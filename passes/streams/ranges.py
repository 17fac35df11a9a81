"""Which positions along an axis a condition concerns.

Along a streamed axis x a comparison of a condition (`diagram.where`) says `a * x + rest >= 0`. Over the piece of a
group `rest` lies in an interval whose ends follow from the ends of the pieces (interval analysis: the smallest and the
largest value of each term). So there are two ranges of x:

- *some*: outside of it the condition holds nowhere in the group's piece;
- *every*: inside of it the condition holds everywhere in the group's piece.

A quotient of x is solved for it. Where that cannot be, and of remainders of x, the ends are those of a bound on it:
`x % 16 == 0` may hold anywhere and never throughout. What is divided of others is largest or smallest where what it
divides says, exactly (`streams.limits`).

And and or combine ranges, never losing soundness: `some` may only grow, `every` only shrink.

A comparison with data along x, as in `seg[x] == seg[q]`, has no such form. It is searched for, once a group (`Search`):
with the smallest or the largest values of the group in the place of the rest, it says of each position alone whether it
may hold there for some row of the group, or holds for every one. *Some* is then the range from the first such position
to the last, whatever the order of the data; *every* that range, too, if no position is missing in between. Data that is
compared with nothing of the group looks the same to all groups, and is tested element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import AtLeastZero, Atom, Both, Condition, Either, Linear, Remainder, Term
from treadle.dialects.diagram.solved import bounded, solved


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


@dataclass(frozen=True)
class Search:
    """The positions at which a condition on data may hold somewhere in the piece of a group, and those at which it
    holds throughout."""

    condition: Condition


@dataclass(frozen=True)
class Found:
    """The first position at which what is searched for may hold (`sign` 1) or holds throughout (-1), or with `last` one
    past the last. Where there is none, and where it must hold throughout but does not at one in between, the two ends
    limit an empty range."""

    search: Search
    sign: int
    last: bool


End: TypeAlias = Quotient | Gate | Extreme | Found


def terms_of(end: End) -> Iterator[Atom]:
    """What an end is reckoned from: axes, whose pieces' corners it takes, and numbers. What a search finds has none."""
    if isinstance(end, Extreme):
        for part in end.ends:
            yield from terms_of(part)
    elif not isinstance(end, Found):
        yield from end.corner.form.atoms


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


@dataclass(frozen=True)
class Knowledge:
    """What a group can say of the inputs of a condition on a streamed axis: of one that it `knows` the smallest and
    the largest value, of one that it `searches` the value at each position along the axis."""

    axis: str
    knows: Callable[[SSAValue], bool]
    searches: Callable[[SSAValue], bool]

    def can_search(self, condition: Condition) -> bool:
        """Whether a comparison is one with data along the axis, and of that only."""
        if not isinstance(condition, AtLeastZero):
            return False
        if condition.form.divided:
            return False
        unknown = [term for term in condition.form.terms if isinstance(term, SSAValue) and not self.knows(term)]
        return bool(unknown) and all(map(self.searches, unknown))

    def is_sought(self, condition: Condition) -> bool:
        """Whether a comparison is to be searched for: data along the axis beside something that tells groups apart."""
        if not isinstance(condition, AtLeastZero):
            return False
        return self.can_search(condition) and any(map(self._differs, condition.form.terms))

    def _differs(self, term: Term) -> bool:
        if isinstance(term, SSAValue):
            return self.knows(term) and bool(axes_of(term.type))
        return term != self.axis


def some_of(condition: Condition, known: Knowledge) -> Range:
    """Where a condition may hold."""
    match condition:
        case AtLeastZero(form):
            return _found_by(condition, 1, known) or _where(form, 1, known) or WHOLE
        case Both():
            sought, others = searched_parts(condition, known)
            ranges = [some_of(part, known) for part in others]
            ranges += [_found(Search(Both(sought)), 1)] if sought else []
            return intersection(ranges)
        case Either(parts):
            return hull([some_of(part, known) for part in parts])


def every_of(condition: Condition, known: Knowledge) -> Range | None:
    """Where a condition holds throughout; None if nothing says so."""
    match condition:
        case AtLeastZero(form):
            return _found_by(condition, -1, known) or _where(form, -1, known)
        case Both():
            sought, others = searched_parts(condition, known)
            ranges = [every_of(part, known) for part in others]
            ranges += [_found(Search(Both(sought)), -1)] if sought else []
            certain = [r for r in ranges if r is not None]
            return intersection(certain) if len(certain) == len(ranges) else None
        case Either(parts):
            return _some_alternative([every_of(part, known) for part in parts])


def searched_parts(condition: Both, known: Knowledge) -> tuple[tuple[Condition, ...], list[Condition]]:
    """The parts of a conjunction, those of inner ones too, that one search finds together, and the others."""
    flat: list[Condition] = []
    left = list(condition.parts)
    while left:
        part = left.pop(0)
        if isinstance(part, Both):
            left = [*part.parts, *left]
        else:
            flat.append(part)
    if not any(map(known.is_sought, flat)):
        return (), flat
    return tuple(filter(known.can_search, flat)), [part for part in flat if not known.can_search(part)]


def _found_by(condition: Condition, sign: int, known: Knowledge) -> Range | None:
    return _found(Search(condition), sign) if known.is_sought(condition) else None


def _found(search: Search, sign: int) -> Range:
    return Range(Found(search, sign, last=False), Found(search, sign, last=True))


def _where(form: Linear, sign: int, known: Knowledge) -> Range | None:
    """Where `form >= 0` for the best (`sign` 1) or the worst (-1) of the group's other positions; None if nothing says
    so."""
    if any(isinstance(term, SSAValue) and not known.knows(term) for term in form.atoms):
        return None
    exact = solved(form, known.axis)
    told = exact or bounded(form, known.axis, sign)
    if told is None or (exact is None and not _tells(told)):
        return None
    slope = told.terms.get(known.axis, 0)
    rest = told.plus(Linear({known.axis: 1}), -slope)
    if slope == 0:
        return Range(high=Gate(Corner(rest, sign)))
    if slope < 0:  # x <= rest / -slope
        return Range(high=Quotient(Corner(rest, sign), -slope, added=1))
    return Range(low=Quotient(Corner(rest.times(-1), -sign), slope, up=True))


def _tells(form: Linear) -> bool:
    """Whether what bounds a form differs from piece to piece by more than remainders do."""
    return any(not isinstance(term, Remainder) for term in form.terms)


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
