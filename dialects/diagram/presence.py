"""Whether conditions leave any element of a row along an axis, as a formula that does not walk along it.

A comparison with a position x whose factor is 1 or -1, and with data that does not vary along x, is a bound of x from
one side; a quotient of x is one if it can be solved for x. So what a condition of such comparisons leaves is some
stretches of positions, and there is an element where one of them is not empty. Data along the axis has no such form:
`seg[x] == seg[q]` may hold anywhere. Nor has a remainder, `x % 16 == 0`.

Some conditions leave an element of *every* row, whatever the sizes that are known only at launch: `x <= q` leaves
x = 0, as no position q is below 0. `is_in_every_row` decides that, in one direction: "no" says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import AtLeastZero, Atom, Both, Condition, Linear, terms_of
from treadle.dialects.diagram.linear import ends_of
from treadle.dialects.diagram.solved import solved

MOST = 16
"""Of more stretches than these no formula is made."""


@dataclass(frozen=True)
class Stretch:
    """The positions from the largest of `lows` through the smallest of `highs`, if no one of `gates` is negative."""

    lows: tuple[Linear, ...]
    highs: tuple[Linear, ...]
    gates: tuple[Linear, ...]

    @property
    def terms(self) -> dict[Atom, None]:
        return {term: None for form in (*self.lows, *self.highs, *self.gates) for term in form.atoms}


def stretches(conditions: Iterable[Condition], axis: str, over: Sequence[str] = ()) -> tuple[Stretch, ...] | None:
    """The stretches along `axis` in which all conditions (over values, `WhereOp.holds`) hold; None if they are not
    such, or vary along another axis of `over`."""
    whole = Both(tuple(conditions))
    if any(not _is_known(term, axis, over) for term in terms_of(whole)):
        return None
    choices = _choices(whole)
    if choices is None:
        return None
    found = [_stretch(forms, axis) for forms in choices]
    return None if None in found else tuple(each for each in found if each is not None)


def is_in_every_row(
    conditions: Iterable[Condition],
    axis: str,
    over: Sequence[str],
    size: int,
    ends: Callable[[Atom], tuple[int, int]],
) -> bool:
    """Whether all conditions hold at some position along `axis`, which has at least `size` (above 0), in every row
    along `over`, for any positions and data within their `ends` (the least and the largest): there is a stretch that is
    always there. (Rows that have each a stretch of another form are not found.)"""
    whole = Both(tuple(conditions))
    if any(not _is_known(term, axis, over) for term in terms_of(whole)):
        return False
    found = [_stretch(forms, axis) for forms in _choices(whole) or ()]
    return any(each is not None and _is_always_there(each, size, ends) for each in found)


def _is_always_there(stretch: Stretch, size: int, ends: Callable[[Atom], tuple[int, int]]) -> bool:
    lows, highs = [Linear(), *stretch.lows], [Linear({}, size - 1), *stretch.highs]
    apart = [high.plus(low, -1) for low in lows for high in highs]
    return all(ends_of(form, ends)[0] >= 0 for form in (*apart, *stretch.gates))


def _is_known(term: Atom, axis: str, over: Sequence[str]) -> bool:
    if isinstance(term, str):
        return term == axis or term not in over
    return isinstance(term, SSAValue) and not {axis, *over} & set(axes_of(term.type))


def _choices(condition: Condition) -> list[tuple[Linear, ...]] | None:
    """What must be at least zero together, in one way or another; None for too many ways."""
    if isinstance(condition, AtLeastZero):
        return [(condition.form,)]
    parts = [_choices(part) for part in condition.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if not isinstance(condition, Both):
        joined = [choice for part in known for choice in part]
        return joined if len(joined) <= MOST else None
    ways = 1
    for part in known:
        ways *= len(part)
    if ways > MOST:
        return None
    return [tuple(form for choice in choices for form in choice) for choices in product(*known)]


def _stretch(forms: Iterable[Linear], axis: str) -> Stretch | None:
    lows: list[Linear] = []
    highs: list[Linear] = []
    gates: list[Linear] = []
    for form in forms:
        form = solved(form, axis)
        if form is None:
            return None
        factor = form.terms.get(axis, 0)
        rest = Linear({term: size for term, size in form.terms.items() if term != axis}, form.constant)
        if abs(factor) > 1:
            return None
        if factor > 0:
            lows.append(rest.times(-1))
        else:
            (highs if factor else gates).append(rest)
    return Stretch(tuple(lows), tuple(highs), tuple(gates))
