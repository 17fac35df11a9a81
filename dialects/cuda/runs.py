"""Runs: rows of a tile that follow each other in an array whose other axes they do not leave, so that a box brings
them together, although data say where each run lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd

from treadle.dialects.cuda.boxes import MOST_ROWS
from treadle.dialects.diagram.condition import Entry, Linear, Term, axes_in, axis_in, divisor_in, modulus_in

SWIZZLED_ROWS = 8
"""Rows after which a swizzle begins anew (PTX ISA 5.5.7)."""


def rows_of_run(forms: Sequence[Linear], axis: str, rows: int, begins_at: Callable[[int], bool]) -> int:
    """How many of the rows of a tile along an axis a box brings together: the most within which no entry changes and
    one position grows with the row, by one, as the others stay; they divide the rows, and are whole swizzles or fit
    into one. `begins_at` says whether tiles begin at multiples of a number. 1 where each row lies for itself."""
    length = following(forms, axis, rows, begins_at)
    if length % SWIZZLED_ROWS:
        length = gcd(length, SWIZZLED_ROWS)
    while length > MOST_ROWS:
        length //= 2
    return length


def following(forms: Sequence[Linear], axis: str, rows: int, begins_at: Callable[[int], bool]) -> int:
    """How many of the rows of a tile along an axis follow each other in the array, from multiples of that number on: no
    entry changes, and one position grows with the row, by one, as the others stay. They divide the rows."""
    if moving(forms, axis) is None:
        return 1
    limits = [number for form in forms for term in form.terms for number in _steady(term, axis)]
    length = gcd(rows, *limits)
    while limits and length > 1 and not begins_at(length):
        length = length // 2 if length % 2 == 0 else 1
    return length


def moving(forms: Sequence[Linear], axis: str) -> int | None:
    """The one position that grows with the rows of a run, by one with each; None if there is no such, or others do."""
    growths = [
        sum(factor for term, factor in form.terms.items() if not isinstance(term, Entry) and _grows(term, axis))
        for form in forms
    ]
    found = [i for i, growth in enumerate(growths) if growth]
    return found[0] if len(found) == 1 and growths[found[0]] == 1 else None


def _grows(term: Term, axis: str) -> bool:
    return axis_in(term) == axis and divisor_in(term) == 1


def _steady(term: Term, axis: str) -> Iterator[int]:
    """How many neighbours along an axis, from a multiple of it on, find an entry or a quotient unchanged, or a
    remainder growing by one: for each part of a term that asks for the axis."""
    if not isinstance(term, Entry):
        if axis_in(term) == axis and (divisor_in(term) > 1 or modulus_in(term)):
            yield modulus_in(term) or divisor_in(term)
        return
    for inner in (inner for place in term.places for inner in place.terms if axis in axes_in(inner)):
        yield 1 if isinstance(inner, Entry) else divisor_in(inner)
