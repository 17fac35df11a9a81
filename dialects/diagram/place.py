"""Places: where an element of a read lies in the array that is read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.condition import (
    Entry,
    Linear,
    Term,
    Unreadable,
    axes_in,
    axis_in,
    divisor_in,
    modulus_in,
    parsed,
    quotient,
    read_linear,
    remainder,
    spelled,
)


@irdl_attr_definition
class PlaceAttr(ParametrizedAttribute):
    """`#diagram.place<"b, 2 * t + r, c">`: for each axis of an array a position that is affine in other axes, in
    quotients and remainders of them, `x // 16` and `x % 16`, and in entries of integer arrays, `table[b, x // 16]`, of
    one without axes `start[]`."""

    name = "diagram.place"

    text: StringAttr = param_def()

    def __init__(self, text: str):
        super().__init__(StringAttr(text))

    @property
    def forms(self) -> tuple[Linear, ...]:
        """One for each axis of the array (VerifyException)."""
        return _forms(self.text.data)

    def verify(self) -> None:
        for form in self.forms:
            for term in form.terms:
                if not isinstance(term, str | Entry):
                    raise VerifyException(f"place '{self.text.data}': '{term}' is no axis")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_str_literal()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.text.data)


@lru_cache(maxsize=4096)
def _forms(text: str) -> tuple[Linear, ...]:
    try:
        tree = parsed(text)
        entries: Sequence[ast.expr] = tree.elts if isinstance(tree, ast.Tuple) else (tree,)
        return tuple(read_linear(entry, in_place=True) for entry in entries)
    except (SyntaxError, ValueError) as error:
        raise VerifyException(f"place '{text}' cannot be read: write it as in 'b, 2 * t + r, c'") from error
    except Unreadable as error:
        raise VerifyException(f"place '{text}': {error}") from error


def check_within(place: PlaceAttr) -> None:
    """Raise where a place surely leaves its array (VerifyException)."""
    for form in place.forms:
        if backwards := [term for term, factor in form.terms.items() if factor < 0]:
            raise VerifyException(f"place '{place.text.data}': '{backwards[0]}' runs backwards")
        if form.constant < 0:
            raise VerifyException(f"place '{place.text.data}' begins before the array")


def divisors_in(forms: Iterable[Linear]) -> dict[str, int]:
    """The axes of which quotients are taken, and what is divided by."""
    terms = [term for form in forms for term in form.terms if not isinstance(term, Entry)]
    return {axis_in(term): divisor for term in terms if (divisor := divisor_in(term)) > 1}


def entries_in(forms: Iterable[Linear]) -> list[Entry]:
    """The entries of integer arrays that positions are made of, each once."""
    return list(dict.fromkeys(term for form in forms for term in form.terms if isinstance(term, Entry)))


def is_scattered(forms: Iterable[Linear]) -> bool:
    """Whether elements at these positions have no strides, one for each axis: data say where they are, or what a
    division leaves."""
    return any(isinstance(term, Entry) or modulus_in(term) for form in forms for term in form.terms)


def axes_of_forms(forms: Iterable[Linear]) -> tuple[str, ...]:
    """The axes along which positions are asked for, each once."""
    return tuple(dict.fromkeys(axis for form in forms for term in form.terms for axis in axes_in(term)))


def check_quotients(place: PlaceAttr) -> None:
    """Raise where an axis of which a quotient is taken stands anywhere else, too (VerifyException): no stride goes
    along it. Elements that are scattered need none."""
    if is_scattered(place.forms):
        return
    axes = [axis_in(term) for form in place.forms for term in form.terms]
    if twice := [axis for axis in divisors_in(place.forms) if axes.count(axis) > 1]:
        raise VerifyException(f"place '{place.text.data}': '{twice[0]}' of a quotient stands once")


def step_along(form: Linear, axis: str) -> int:
    """By how much a form grows where an axis of it, or a quotient of that, grows by one."""
    return sum(factor for term, factor in form.terms.items() if axis_in(term) == axis)


def composed(form: Linear, places: Mapping[str, Linear]) -> Linear:
    """A form, with others in the places of some of its axes (VerifyException where one of those says neither the
    quotient nor the remainder that it asks for)."""
    whole = Linear({}, form.constant)
    for term, factor in form.terms.items():
        whole = whole.plus(_composed_term(term, places), factor)
    return whole


def _composed_term(term: Term, places: Mapping[str, Linear]) -> Linear:
    if isinstance(term, Entry):
        return Linear({Entry(term.name, tuple(composed(each, places) for each in term.places)): 1})
    place = places.get(axis_in(term), Linear({axis_in(term): 1}))
    if divisor_in(term) == 1 and not modulus_in(term):
        return place
    return _divided(place, divisor_in(term), modulus_in(term))


def _divided(place: Linear, divisor: int, modulus: int) -> Linear:
    """The quotient of a position, or the remainder: of whole blocks, and of a position within them."""
    number = modulus or divisor
    within = [term for term, factor in place.terms.items() if factor % number]
    if len(within) != 1 or place.terms[within[0]] != 1 or place.constant % number or within[0] != axis_in(within[0]):
        what = f"({spelled(place)}) {'%' if modulus else '//'} {number}"
        raise VerifyException(f"no position of one axis says what '{what}' is: it takes whole blocks of {number}")
    axis = axis_in(within[0])
    if modulus:
        return remainder(axis, modulus)
    blocks = {term: factor // divisor for term, factor in place.terms.items() if term != axis}
    return Linear({**blocks, quotient(axis, divisor): 1}, place.constant // divisor)


def reach(form: Linear, sizes: Mapping[str, int]) -> int:
    """One past the last position that a form takes over axes of these sizes, none of them empty."""
    ahead = {axis: factor for axis, factor in form.terms.items() if factor > 0}
    return form.constant + 1 + sum(factor * (sizes[str(axis)] - 1) for axis, factor in ahead.items())


def least(form: Linear, sizes: Mapping[str, int]) -> int:
    """The least position that a form takes over axes of these sizes, none of them empty."""
    back = {axis: factor for axis, factor in form.terms.items() if factor < 0}
    return form.constant + sum(factor * (sizes[str(axis)] - 1) for axis, factor in back.items())


def within_remainder(form: Linear, length: int) -> bool:
    """Whether a position is what a division leaves, which is less than a length that is known."""
    modulus = next((modulus_in(term) for term in form.terms), 0)
    return len(form.terms) == 1 and form.constant == 0 and set(form.terms.values()) == {1} and 0 < modulus <= length


def largest_fit(form: Linear, axis: str, length: int, others: Mapping[str, int]) -> int:
    """The largest size of an axis at which a form stays below `length`; the other axes have these sizes."""
    rest = Linear({term: factor for term, factor in form.terms.items() if term != axis}, form.constant)
    return max((length - reach(rest, others)) // form.terms[axis] + 1, 0)


def whole_steps(form: Linear, axis: str, length: int, others: Mapping[str, int]) -> int:
    """The size of an axis that steps over others of smaller factors, which have no size yet: as many steps as leave
    each of them its whole factor, and at least one; what is left over belongs to the last. `others` gives the sizes of
    those that have one."""
    rest = {term: factor for term, factor in form.terms.items() if term != axis and term in others}
    return max((length - reach(Linear(rest, form.constant), others) + 1) // form.terms[axis], 1)


def covering_steps(form: Linear, axis: str, length: int, others: Mapping[str, int]) -> int:
    """The size of an axis that steps over others, which have these sizes: as many steps as reach the last of `length`
    positions."""
    rest = Linear({term: factor for term, factor in form.terms.items() if term != axis}, form.constant)
    return max(-((reach(rest, others) - length) // form.terms[axis]) + 1, 0)
