"""Conditions on positions: which elements of an array there are.

A condition is written over the names of axes, which stand for positions along them, and of integer inputs, which are
indexed by their axes: `x <= q`, `x < len[b]`, `seg_x[x] == seg_q[q] and x <= q + shift`. It joins comparisons with
`and`, `or` and `not`; what is compared is linear: sums, differences, and products with constants. One whole part of a
quotient may stand in a comparison, `x // 16 <= last[q]`, which says `x <= 16 * last[q] + 15`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from keyword import iskeyword
from math import gcd
from typing import Any, TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

# -- what a condition says -------------------------------------------------------------------------


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
class Quotient(Entry):
    """The whole part of a form over a number, in a comparison while it is read: none is left of it."""

    divisor: int

    @property
    def form(self) -> Linear:
        return self.places[0]

    def __str__(self) -> str:
        inner = spelled(self.form)
        return f"{inner if inner.isidentifier() else f'({inner})'} // {self.divisor}"


Term: TypeAlias = "str | Read | Entry | SSAValue"
"""What a linear form sums up: the position along an axis (its name), in a place its whole part over a number or what
that leaves, or an input, by name or as the value it is."""


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

    def side(self, sign: int) -> Linear:
        """What stands on one side of a comparison with 0 that subtracts nothing: the terms whose factors have a sign,
        and the constant if it has that sign, times the sign."""
        terms = {term: factor * sign for term, factor in self.terms.items() if factor * sign > 0}
        return Linear(terms, max(self.constant * sign, 0))

    def evaluate(self, value: Callable[[Term], Any]) -> Any:
        total: Any = self.constant
        for term, factor in self.terms.items():
            total = total + factor * value(term)
        return total

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))


@dataclass(frozen=True)
class AtLeastZero:
    """`form >= 0`."""

    form: Linear


@dataclass(frozen=True)
class Both:
    """All of some conditions; of none: always."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    """One of some conditions; of none: never."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = AtLeastZero | Both | Either


def terms_of(condition: Condition) -> Iterator[Term]:
    if isinstance(condition, AtLeastZero):
        yield from condition.form.terms
        return
    for part in condition.parts:
        yield from terms_of(part)


def forms_of(condition: Condition) -> Iterator[Linear]:
    if isinstance(condition, AtLeastZero):
        yield condition.form
        return
    for part in condition.parts:
        yield from forms_of(part)


LAST_POSITION = 2**31 - 2**20
"""Of an axis whose size is known only at launch. The little that is left of 32 bits is for a constant beside it, as in
a window, whose test is made for every score."""


def leaves_32_bits(form: Linear, last: Callable[[str], int] = lambda _: LAST_POSITION) -> bool:
    """Whether some of what a form adds up may be beyond 32 bits together, in any order: for any data, and positions
    from 0 to the `last` along each axis."""
    low, high = min(form.constant, 0), max(form.constant, 0)
    for term, factor in form.terms.items():
        ends = (0, last(term)) if isinstance(term, str) else (-(2**31), 2**31 - 1)
        low, high = low + min(factor * end for end in ends), high + max(factor * end for end in ends)
    return low < -(2**31) or high >= 2**31


def _leaves_64_bits(form: Linear) -> bool:
    """Whether a form may be no number of 64 bits for any 32 bits that its terms have."""
    return sum(abs(factor) for factor in form.terms.values()) * 2**31 + abs(form.constant) >= 2**63


def resolved(condition: Condition, value: Callable[[Term], SSAValue | None]) -> Condition:
    """The same condition over the values of its inputs; None stands for a position."""
    if isinstance(condition, AtLeastZero):
        terms = {value(term) or term: factor for term, factor in condition.form.terms.items()}
        return AtLeastZero(Linear(terms, condition.form.constant))
    parts = tuple(resolved(part, value) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


def widened(condition: Condition, cells: Mapping[str, int]) -> Condition:
    """The condition over the first positions of cells of these sizes that holds where the given one may hold for some
    positions in the cells, if its inputs are the same throughout."""
    if isinstance(condition, AtLeastZero):
        form = condition.form
        ahead = [factor * (cells[term] - 1) for term, factor in form.terms.items() if isinstance(term, str)]
        return AtLeastZero(form.plus(Linear(constant=sum(step for step in ahead if step > 0))))
    parts = tuple(widened(part, cells) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text of the same condition, with other names for inputs."""

    class Renaming(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(names.get(node.id, node.id))

    return ast.unparse(Renaming().visit(parsed(text))) if names else text


# -- reading one -----------------------------------------------------------------------------------


class Unreadable(Exception):
    """Why a text is no condition, or no place."""


_JOINS = ("and", "or", "not")
_NAMED = "\u03be"
"""A letter that no name of an axis has."""


def parsed(text: str) -> ast.expr:
    """The expression that a text says, with Python's grammar (SyntaxError, ValueError). What only Python reserves is a
    name: an axis may be called `for`."""

    def as_name(word: re.Match[str]) -> str:
        return word[0] + _NAMED if iskeyword(word[0]) and word[0] not in _JOINS else word[0]

    try:
        tree = ast.parse(re.sub(r"\b[A-Za-z]+\b", as_name, text.strip()), mode="eval").body
    except SyntaxError:  # `x in q`, say, of which there is more to tell than that
        tree = ast.parse(text.strip(), mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removesuffix(_NAMED)
    return tree


_ORDER: dict[type[ast.cmpop], tuple[int, int]] = {ast.LtE: (1, 0), ast.Lt: (1, -1), ast.GtE: (-1, 0), ast.Gt: (-1, -1)}
"""`left op right` as `sign * (right - left) + added >= 0`."""


@lru_cache(maxsize=4096)
def read_condition(text: str) -> Condition:
    """The condition that a text says (VerifyException). Its expressions have Python's grammar. It is asked of few
    texts, thousands of times."""
    try:
        return _condition(parsed(text), negated=False)
    except (SyntaxError, ValueError) as error:
        raise VerifyException(f"condition '{text}' cannot be read: write it as in 'x <= q and x < len[b]'") from error
    except Unreadable as error:
        raise VerifyException(f"condition '{text}': {error}") from error


def _condition(node: ast.expr, negated: bool) -> Condition:
    match node:
        case ast.BoolOp(op=join, values=values):
            parts = tuple(_condition(value, negated) for value in values)
            return Both(parts) if isinstance(join, ast.And) != negated else Either(parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _condition(operand, not negated)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [read_linear(side) for side in (left, *others)]
            pairs = zip(sides, ops, sides[1:], strict=False)
            parts = tuple(_comparison(one, op, other, negated) for one, op, other in pairs)
            return parts[0] if len(parts) == 1 else Either(parts) if negated else Both(parts)
        case _:
            said = ast.unparse(node)
            raise Unreadable(f"'{said}' is no comparison: compare with <, <=, >, >=, == or !=, as in 'x <= q'")


def _comparison(left: Linear, op: ast.cmpop, right: Linear, negated: bool) -> Condition:
    if isinstance(op, ast.Eq | ast.NotEq):
        apart = left.plus(right, -1)
        if isinstance(op, ast.Eq) != negated:
            return Both((_at_least_zero(apart), _at_least_zero(apart.times(-1))))
        return Either((_at_least_zero(apart.plus(ONE, -1)), _at_least_zero(apart.times(-1).plus(ONE, -1))))
    if type(op) not in _ORDER:
        raise Unreadable("compare with <, <=, >, >=, == or !=")
    sign, added = _ORDER[type(op)]
    form = right.plus(left, -1).times(sign).plus(Linear({}, added))
    return _at_least_zero(form.times(-1).plus(ONE, -1) if negated else form)


ONE = Linear({}, 1)


def _at_least_zero(form: Linear) -> AtLeastZero:
    """`form >= 0` without a quotient, and divided by what divides all its factors."""
    form = _undivided(form)
    most = gcd(*form.terms.values())
    if most < 2:
        return AtLeastZero(form)
    return AtLeastZero(Linear({term: factor // most for term, factor in form.terms.items()}, form.constant // most))


def _undivided(form: Linear) -> Linear:
    """What is at least zero where a form is that has a quotient (Unreadable): over the integers `x // n >= b` says
    `x >= n * b`, and `x // n <= b` says `x <= n * b + n - 1`."""
    quotients = [term for term in form.terms if isinstance(term, Quotient)]
    if not quotients:
        return form
    first, *others = quotients
    factor, divisor = form.terms[first], first.divisor
    if others or abs(factor) != 1:
        beside = f"beside '{others[0]}'" if others else f"times {abs(factor)}"
        raise Unreadable(f"'{first}' is compared {beside}: {NAME_IT}")
    rest = form.plus(Linear({first: 1}), -factor).times(divisor)
    return rest.plus(first.form, factor).plus(ONE, divisor - 1 if factor < 0 else 0)


NAME_IT = "compute it in an array of integers, and name that"


def read_linear(node: ast.expr, in_place: bool = False) -> Linear:
    """What an expression sums up (Unreadable); in a place, terms may be `x // 16`, `x % 16` and `table[x // 16]`."""

    def read(part: ast.expr) -> Linear:
        return read_linear(part, in_place)

    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return Linear({}, number)
        case ast.Name(id=name):
            return Linear({name: 1})
        case ast.Subscript(value=ast.Name(id=name), slice=place) if in_place:
            return Linear({Entry(name, tuple(_position_in(name, entry) for entry in _entries(place))): 1})
        case ast.Subscript(value=ast.Name(id=name), slice=place):
            return Linear({Read(name, _axes(place)): 1})
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return read(operand).times(-1)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return read(left).plus(read(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return read(left).plus(read(right), -1)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(read(left), read(right), node)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int() as divisor)) if (
            not in_place and divisor > 0 and not any(isinstance(term, Quotient) for term in read(left).terms)
        ):
            return Linear({Quotient("", (read(left),), divisor): 1})
        case ast.BinOp(left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=int() as divisor)) if (
            in_place and divisor > 0
        ):
            return Linear({quotient(name, divisor): 1})
        case ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=int() as divisor)) if (
            in_place and divisor > 0
        ):
            return remainder(name, divisor)
        case _:
            is_divided = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod) and not in_place
            hint = f": {NAME_IT}" if is_divided else ""
            raise Unreadable(f"'{ast.unparse(node)}' is no sum of positions, integer inputs and whole numbers{hint}")


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


def spelled(form: Linear) -> str:
    """A form as a place or a condition has it: `2 * t - r + 1`."""
    ordered = sorted(form.terms.items(), key=lambda each: each[1] < 0)
    terms = [f"{'-' if factor < 0 else '+'} {_times(abs(factor), term)}" for term, factor in ordered]
    if ordered and ordered[0][1] == -1 and _is_divided(ordered[0][0]):
        terms[0] = f"- ({ordered[0][0]})"  # `-x // 2` would be the quotient of -x
    if form.constant or not terms:
        terms.append(f"{'-' if form.constant < 0 else '+'} {abs(form.constant)}")
    text = " ".join(terms).removeprefix("+ ")
    return f"-{text[2:]}" if text.startswith("- ") else text


def _times(factor: int, term: Term) -> str:
    text = str(term)
    if factor == 1:
        return text
    return f"{factor} * ({text})" if _is_divided(term) else f"{factor} * {text}"


def _is_divided(term: Term) -> bool:
    return isinstance(term, str) and term != axis_in(term)


def _product(left: Linear, right: Linear, node: ast.expr) -> Linear:
    if left.terms and right.terms:
        raise Unreadable(f"'{ast.unparse(node)}' multiplies two things that vary: one of them must be a number")
    return left.times(right.constant) if left.terms else right.times(left.constant)


def _entries(place: ast.expr) -> Sequence[ast.expr]:
    return place.elts if isinstance(place, ast.Tuple) else (place,)


def _position_in(name: str, entry: ast.expr) -> Linear:
    """A position along an axis of an input of a place."""
    form = read_linear(entry, in_place=True)
    if inner := [term for term in form.terms if isinstance(term, Entry)]:
        raise Unreadable(f"'{name}' is read at '{inner[0]}', which is data, too: let a diagram.read be the input")
    return form


def _axes(place: ast.expr) -> tuple[str, ...]:
    entries = _entries(place)
    names = tuple(entry.id for entry in entries if isinstance(entry, ast.Name))
    if len(names) != len(entries):
        raise Unreadable(
            f"an input is indexed by the names of its axes, not by '{ast.unparse(place)}': let a diagram.read at these "
            "positions be the input"
        )
    return names


# -- the attribute ---------------------------------------------------------------------------------


@irdl_attr_definition
class ConditionAttr(ParametrizedAttribute):
    """`#diagram.condition<"x <= q">`: a condition on positions. It can evaluate itself."""

    name = "diagram.condition"

    text: StringAttr = param_def()

    def __init__(self, text: str):
        super().__init__(StringAttr(text))

    @property
    def condition(self) -> Condition:
        return read_condition(self.text.data)

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The axes by which each input is indexed. A bare name is that of an axis, if the array has it; else a
        scalar: `WhereOp` knows."""
        return {term.name: term.axes for term in terms_of(self.condition) if isinstance(term, Read)}

    def verify(self) -> None:
        condition = self.condition
        seen: dict[str, Read] = {}
        for term in terms_of(condition):
            if isinstance(term, Read) and seen.setdefault(term.name, term) != term:
                raise VerifyException(f"condition '{self.text.data}' indexes '{term.name}' in two ways")
        if any(_leaves_64_bits(form) for form in forms_of(condition)):
            raise VerifyException(f"condition '{self.text.data}' has numbers beyond 64 bits")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_str_literal()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.text.data)


def evaluate(condition: Condition, value: Callable[[Term], Any]) -> Any:
    """A condition, given what its terms are: numbers, or numpy arrays that broadcast."""
    match condition:
        case AtLeastZero(form):
            return form.evaluate(value) >= 0
        case Both(parts):
            result: Any = True
            for part in parts:
                result = result & evaluate(part, value)
            return result
        case Either(parts):
            result = False
            for part in parts:
                result = result | evaluate(part, value)
            return result
