"""Comparisons `form >= 0` whose forms have quotients and remainders, told of positions along one axis.

A quotient is a comparison of what is divided: over the integers `x // n >= b` says `x >= n * b`, and `x // n <= b` says
`x <= n * b + n - 1`. So a form with one quotient along an axis is *solved* for it. What cannot be solved is bounded: a
remainder is from 0 to below the divisor `n`, a quotient is within 1 of the fraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from treadle.dialects.diagram.linear import (
    ONE,
    Atom,
    Divided,
    Linear,
    Quotient,
    Remainder,
    ends_of,
    leaves_64_bits,
    quotient_of,
)


def undivided(form: Linear, quotient: Quotient) -> Linear:
    """What is at least zero where a form is, with what a quotient divides in its place; the rest is divided by the
    factor of the quotient."""
    factor, divisor = form.terms[quotient], quotient.divisor
    rest = quotient_of(form.plus(Linear({quotient: 1}), -factor), abs(factor)).times(divisor)
    return rest.plus(quotient.form) if factor > 0 else rest.plus(quotient.form, -1).plus(ONE, divisor - 1)


def is_along(term: Divided, axis: str) -> bool:
    """Whether positions along an axis are divided."""
    return axis in term.form.atoms


def solved(form: Linear, axis: str) -> Linear | None:
    """What is at least zero where a form is, with no position along an axis in a quotient or a remainder; None if that
    cannot be, or not in 64 bits."""
    inside = [term for term in form.divided if is_along(term, axis)]
    if not inside:
        return None if leaves_64_bits(form) else form
    first, *others = inside
    is_alone = axis not in form.terms or abs(form.terms[first]) == 1
    if others or not isinstance(first, Quotient) or not is_alone:
        return None
    return solved(undivided(form, first), axis)


def bounded(form: Linear, axis: str, sign: int) -> Linear | None:
    """A form without positions along an axis in quotients and remainders that is at least zero wherever one is (`sign`
    1), or only where it is (-1); None if its numbers are too large."""
    while inside := [term for term in form.divided if is_along(term, axis)]:
        form = _without(form, inside[0], sign)
    return None if leaves_64_bits(form) else form


def _without(form: Linear, term: Divided, sign: int) -> Linear:
    """Where a remainder is from 0 to n - 1, n times a quotient is what is divided less that."""
    factor, most = form.terms[term], term.divisor - 1
    rest = form.plus(Linear({term: 1}), -factor)
    if isinstance(term, Remainder):
        return rest.plus(ONE, _further(factor * most, sign))
    return rest.times(term.divisor).plus(term.form, factor).plus(ONE, _further(-factor * most, sign))


def _further(number: int, sign: int) -> int:
    """The larger (`sign` 1) or smaller (-1) of a number and 0."""
    return max(number, 0) if sign > 0 else min(number, 0)


def furthest(form: Linear, ahead: Mapping[str, int], sign: int) -> Linear:
    """A form of positions that is at least (`sign` 1) or at most (-1) what a form is at any from these on, so many
    `ahead` along each axis. Of one term it is what that is somewhere, or beyond what a remainder can be."""
    found = Linear({}, form.constant)
    for term, factor in form.terms.items():
        towards = sign if factor > 0 else -sign
        found = found.plus(
            _furthest_of(term, ahead, towards) if isinstance(term, Divided) else Linear({term: 1}), factor
        )
        if isinstance(term, str):
            found = found.plus(ONE, _further(factor * ahead[term], sign))
    return found


def _furthest_of(term: Divided, ahead: Mapping[str, int], sign: int) -> Linear:
    """Of `t % n` at `t` to `t + k`, none is more than `t % n + k`, nor less than `(t + k) % n - k`."""
    if isinstance(term, Quotient):
        return quotient_of(furthest(term.form, ahead, sign), term.divisor)
    low, high = (furthest(term.form, ahead, each) for each in (-1, 1))
    between = high.plus(low, -1)
    if between.terms or between.constant >= term.divisor - 1:
        return Linear({}, term.divisor - 1 if sign > 0 else 0)
    if sign > 0:
        return Linear({Remainder(low, term.divisor): 1}, between.constant)
    return Linear({Remainder(high, term.divisor): 1}, -between.constant)


def is_decided(form: Linear) -> bool | None:
    """Whether a form of remainders is at least zero, whatever they are; None where it depends, and of other forms."""
    if any(not isinstance(term, Remainder) for term in form.terms):
        return None
    low, high = ends_of_remainders(form)
    return True if low >= 0 else False if high < 0 else None


def ends_of_remainders(form: Linear) -> tuple[int, int]:
    """The least and the largest that a form is whose terms are remainders."""

    def of_atom(atom: Atom) -> NoReturn:
        raise AssertionError(f"'{atom}' is no remainder")

    return ends_of(form, of_atom)
