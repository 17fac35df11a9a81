"""Linear forms over the integers: sums of positions along axes, integer inputs, quotients and remainders.

A position is told by the name of its axis. In a condition a form may be divided by a number above zero, `(q - x) // 16`
and `(q - x) % 16`: quotients round down and remainders are from 0 to below the divisor, as Python's `//` and `%`,
whatever the sign of what is divided. They are terms of forms themselves, and made by `quotient_of` and `remainder_of`,
so that those of one meaning are mostly one term."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, TypeAlias

from xdsl.ir import SSAValue


@dataclass(frozen=True)
class Read:
    """An integer input, at the positions along its axes; a scalar has none."""

    name: str
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(self.axes)}]" if self.axes else self.name


@dataclass(frozen=True)
class Entry:
    """An integer input at positions of its own, in a place: `table[b, x // 64]`."""

    name: str
    places: tuple[Linear, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its positions."""
        return tuple(dict.fromkeys(axis for form in self.places for term in form.terms for axis in axes_in(term)))

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(spelled, self.places))}]"


@dataclass(frozen=True)
class Divided:
    """What a form, divided by a number above zero, gives."""

    form: Linear
    divisor: int

    def __str__(self) -> str:
        return spelled_term(self, str)


class Quotient(Divided):
    """The whole part, rounded down."""


class Remainder(Divided):
    """What is left, from 0 to below the divisor."""


Atom: TypeAlias = "str | Read | Entry | SSAValue"
"""What a form is made of: the position along an axis (its name), in a place its whole part over a number or what that
leaves, or an input, by name or as the value it is."""

Term: TypeAlias = "Atom | Divided"
"""What a linear form sums up."""


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

    def over(self, divisor: int) -> Linear:
        """The form over a number that divides all its factors, rounded down."""
        return Linear({term: factor // divisor for term, factor in self.terms.items()}, self.constant // divisor)

    def side(self, sign: int) -> Linear:
        """What stands on one side of a comparison with 0 that subtracts nothing: the terms whose factors have a sign,
        and the constant if it has that sign, times the sign."""
        terms = {term: factor * sign for term, factor in self.terms.items() if factor * sign > 0}
        return Linear(terms, max(self.constant * sign, 0))

    @property
    def atoms(self) -> Iterator[Atom]:
        """What it is made of, inside of quotients and remainders, too."""
        for term in self.terms:
            if isinstance(term, Divided):
                yield from term.form.atoms
            else:
                yield term

    @property
    def divided(self) -> list[Divided]:
        """The quotients and remainders that it sums up."""
        return [term for term in self.terms if isinstance(term, Divided)]

    def of(self, make: Callable[[Atom], Atom | None]) -> Linear:
        """The same form of other things: None lets one stay."""
        found = Linear({}, self.constant)
        for term, factor in self.terms.items():
            if isinstance(term, Divided):
                changed = term.form.of(make)
                found = found.plus(Linear({type(term)(changed, term.divisor): 1}), factor)
            else:
                found = found.plus(Linear({make(term) or term: 1}), factor)
        return found

    def evaluate(self, value: Callable[[Atom], Any]) -> Any:
        total: Any = self.constant
        for term, factor in self.terms.items():
            total = total + factor * self._value(term, value)
        return total

    def _value(self, term: Term, value: Callable[[Atom], Any]) -> Any:
        if not isinstance(term, Divided):
            return value(term)
        inner = term.form.evaluate(value)
        return inner // term.divisor if isinstance(term, Quotient) else inner % term.divisor

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))


ONE = Linear({}, 1)

# -- quotients and remainders ----------------------------------------------------------------------


def quotient_of(form: Linear, divisor: int) -> Linear:
    """The whole part of a form over a number above zero: what the number divides stands outside of the quotient."""
    whole = Linear({t: _towards_zero(f, divisor) for t, f in form.terms.items()}, form.constant // divisor)
    whole = whole.plus(Linear())
    rest = form.plus(whole, -divisor)
    if not rest.terms:
        return whole
    common = gcd(divisor, *rest.terms.values())
    rest, divisor = rest.over(common), divisor // common
    (first, *others) = rest.terms
    if not others and isinstance(first, Quotient) and rest.terms[first] == 1:
        inner = first.form.plus(ONE, rest.constant * first.divisor)
        return whole.plus(quotient_of(inner, first.divisor * divisor))
    return whole.plus(Linear({Quotient(rest, divisor): 1}))


def remainder_of(form: Linear, divisor: int) -> Linear:
    """What is left of a form that is divided by a number above zero, without what that divides."""
    form = _without_remainders(form, divisor)
    terms = {term: left for term, factor in form.terms.items() if (left := _nearest(factor, divisor))}
    common = gcd(divisor, *terms.values())
    rest = Linear(terms, form.constant % divisor)
    if not terms:
        return rest
    made = Linear({Remainder(rest.over(common), divisor // common): 1})
    return made.times(common).plus(ONE, rest.constant % common)


def _without_remainders(form: Linear, divisor: int) -> Linear:
    """The same but for multiples of a number, without the remainders that differ by such from what is divided."""
    for term, factor in form.terms.items():
        if isinstance(term, Remainder) and factor * term.divisor % divisor == 0:
            return _without_remainders(form.plus(Linear({term: 1}), -factor).plus(term.form, factor), divisor)
    return form


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def _nearest(number: int, divisor: int) -> int:
    """What differs from a number by a multiple of the divisor and is nearest to 0; of two, that of the same sign."""
    rest = number - divisor * _towards_zero(number, divisor)
    return rest if 2 * abs(rest) <= divisor else rest - divisor if rest > 0 else rest + divisor


# -- ends ------------------------------------------------------------------------------------------

LAST_POSITION = 2**31 - 2**20
"""Of an axis whose size is known only at launch. The little that is left of 32 bits is for a constant beside it, as in
a window, whose test is made for every score."""


def ends_of(form: Linear, of_atom: Callable[[Atom], tuple[int, int]]) -> tuple[int, int]:
    """The least and the largest that a form may be, told from those of what it is made of."""
    low = high = form.constant
    for term, factor in form.terms.items():
        ends = [factor * end for end in _ends_of_term(term, of_atom)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _ends_of_term(term: Term, of_atom: Callable[[Atom], tuple[int, int]]) -> tuple[int, int]:
    if isinstance(term, Remainder):
        return 0, term.divisor - 1
    if isinstance(term, Divided):
        low, high = ends_of(term.form, of_atom)
        return low // term.divisor, high // term.divisor
    return of_atom(term)


def leaves_32_bits(form: Linear, last: Callable[[str], int] = lambda _: LAST_POSITION) -> bool:
    """Whether some of what a form adds up may be beyond 32 bits together, in any order: for any data, and positions
    from 0 to the `last` along each axis. So may what is divided, or the multiple of the divisor below it."""

    def of_atom(atom: Atom) -> tuple[int, int]:
        return (0, last(atom)) if isinstance(atom, str) else (-(2**31), 2**31 - 1)

    low, high = min(form.constant, 0), max(form.constant, 0)
    for term, factor in form.terms.items():
        ends = [factor * end for end in _ends_of_term(term, of_atom)]
        low, high = low + min(0, *ends), high + max(0, *ends)
    if low < -(2**31) or high >= 2**31:
        return True
    return any(leaves_32_bits(term.form.plus(ONE, -term.divisor), last) for term in form.divided)


def leaves_64_bits(form: Linear) -> bool:
    """Whether a form may be no number of 64 bits for any 32 bits that its terms have."""
    return _size_of(form) >= 2**63 or any(
        leaves_64_bits(term.form) or _size_of(term.form) + term.divisor >= 2**63 for term in form.divided
    )


def _size_of(form: Linear) -> int:
    """What the size of a form is at most."""
    return sum(abs(factor) * _size_of_term(term) for term, factor in form.terms.items()) + abs(form.constant)


def _size_of_term(term: Term) -> int:
    if isinstance(term, Remainder):
        return term.divisor
    return _size_of(term.form) // term.divisor + 1 if isinstance(term, Quotient) else 2**31


# -- in places, and in words -----------------------------------------------------------------------


def quotient(axis: str, divisor: int) -> str:
    """The term that is the whole part of a position over a number above zero, `x // 16`."""
    return f"{axis} // {divisor}" if divisor > 1 else axis


def remainder(axis: str, divisor: int) -> Linear:
    """What a position leaves when it is divided by a number above zero, `x % 16`."""
    return Linear({f"{axis} % {divisor}": 1}) if divisor > 1 else Linear()


def axis_in(term: Term) -> str:
    """The axis along which a position, or a quotient or a remainder of one, goes."""
    return str(term).partition(" // ")[0].partition(" % ")[0]


def axes_in(term: Term) -> tuple[str, ...]:
    """The axes whose positions say what a term of a place is."""
    return term.axes if isinstance(term, Entry) else (axis_in(term),)


def divisor_in(term: Term) -> int:
    """What a quotient divides by; 1 of a position, and of a remainder."""
    return 1 if isinstance(term, Entry) else int(str(term).partition(" // ")[2] or 1)


def modulus_in(term: Term) -> int:
    """What a remainder is of a division by; 0 of any other term."""
    return 0 if isinstance(term, Entry) else int(str(term).partition(" % ")[2] or 0)


def of_position(term: Term, position: Any) -> Any:
    """What a term of a place is at a position along its axis, a number or numpy's arrays."""
    modulus = modulus_in(term)
    return position % modulus if modulus else position // divisor_in(term)


def spelled(form: Linear, name: Callable[[Atom], str] = str) -> str:
    """A form as a place or a condition has it: `2 * t - r + 1`."""
    ordered = sorted(form.terms.items(), key=lambda each: each[1] < 0)
    terms = [f"{'-' if factor < 0 else '+'} {times(abs(factor), term, name)}" for term, factor in ordered]
    if ordered and ordered[0][1] == -1 and _is_divided(ordered[0][0]):
        terms[0] = f"- ({spelled_term(ordered[0][0], name)})"  # `-x // 2` would be the quotient of -x
    if form.constant or not terms:
        terms.append(f"{'-' if form.constant < 0 else '+'} {abs(form.constant)}")
    text = " ".join(terms).removeprefix("+ ")
    return f"-{text[2:]}" if text.startswith("- ") else text


def spelled_term(term: Term, name: Callable[[Atom], str]) -> str:
    """A term, with such names for what it is made of."""
    if not isinstance(term, Divided):
        return name(term)
    inner = spelled(term.form, name)
    is_alone = list(term.form.terms.values()) == [1] and not term.form.constant and not term.form.divided
    operator = "//" if isinstance(term, Quotient) else "%"
    return f"{inner if is_alone else f'({inner})'} {operator} {term.divisor}"


def times(factor: int, term: Term, name: Callable[[Atom], str] = str) -> str:
    """A term with a factor above zero."""
    text = spelled_term(term, name)
    if factor == 1:
        return text
    return f"{factor} * ({text})" if _is_divided(term) else f"{factor} * {text}"


def _is_divided(term: Term) -> bool:
    return isinstance(term, Divided) or (isinstance(term, str) and term != axis_in(term))
