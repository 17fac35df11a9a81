"""Conditions on positions: which elements of an array there are.

A condition is written over the names of axes, which stand for positions along them, and of integer inputs, which are
indexed by their axes: `x <= q`, `x < len[b]`, `seg_x[x] == seg_q[q] and x <= q + shift`. It joins comparisons with
`and`, `or` and `not`; what is compared is linear: sums, differences, and products with constants. Sums may be divided
by numbers above zero, as Python's `//` and `%` do: `q // 16 - x // 32 <= 1`, `(q - x) % 128 == 0`. One quotient in a
comparison is none: `x // 16 <= last[q]` says `x <= 16 * last[q] + 15`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

from treadle.dialects.diagram.linear import (
    LAST_POSITION,
    ONE,
    Atom,
    Divided,
    Entry,
    Linear,
    Quotient,
    Read,
    Remainder,
    Term,
    axes_in,
    axis_in,
    divisor_in,
    leaves_32_bits,
    leaves_64_bits,
    modulus_in,
    of_position,
    quotient,
    quotient_of,
    remainder,
    remainder_of,
    spelled,
)
from treadle.dialects.diagram.solved import furthest, is_decided, undivided

# -- what a condition says -------------------------------------------------------------------------


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


def terms_of(condition: Condition) -> Iterator[Atom]:
    """The positions and the inputs that a condition speaks of, those that it divides, too."""
    if isinstance(condition, AtLeastZero):
        yield from condition.form.atoms
        return
    for part in condition.parts:
        yield from terms_of(part)


def forms_of(condition: Condition) -> Iterator[Linear]:
    if isinstance(condition, AtLeastZero):
        yield condition.form
        return
    for part in condition.parts:
        yield from forms_of(part)


def resolved(condition: Condition, value: Callable[[Atom], SSAValue | None]) -> Condition:
    """The same condition over the values of its inputs; None stands for a position."""
    if isinstance(condition, AtLeastZero):
        return AtLeastZero(condition.form.of(value))
    parts = tuple(resolved(part, value) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


def widened(condition: Condition, cells: Mapping[str, int]) -> Condition:
    """The condition over the first positions of cells of these sizes that holds where the given one may hold for some
    positions in the cells, if its inputs are the same throughout."""
    if isinstance(condition, AtLeastZero):
        return AtLeastZero(furthest(condition.form, {axis: size - 1 for axis, size in cells.items()}, 1))
    parts = tuple(widened(part, cells) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text of the same condition, with other names for inputs."""

    class Renaming(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(names.get(node.id, node.id))

    return ast.unparse(Renaming().visit(parsed(text))) if names else text


def placed(text: str, places: Mapping[str, Linear]) -> str:
    """The text of the condition that holds where positions along some axes, by which no input is indexed, are these."""

    class Placing(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parsed(spelled(places[node.id])) if node.id in places else node

        def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
            return node

    return ast.unparse(Placing().visit(parsed(text)))


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

    text = re.sub(r"\[\s*\]", "[()]", text)  # the entry of an array without axes, which no Python says
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
            instead = _instead(node) or "compare with <, <=, >, >=, == or !=, as in 'x <= q'"
            raise Unreadable(f"'{ast.unparse(node)}' is no comparison: {instead}")


def _comparison(left: Linear, op: ast.cmpop, right: Linear, negated: bool) -> Condition:
    if isinstance(op, ast.Eq | ast.NotEq):
        return _equality(left.plus(right, -1), isinstance(op, ast.Eq) != negated)
    if type(op) not in _ORDER:
        raise Unreadable("compare with <, <=, >, >=, == or !=")
    sign, added = _ORDER[type(op)]
    form = right.plus(left, -1).times(sign).plus(Linear({}, added))
    return _at_least_zero(form.times(-1).plus(ONE, -1) if negated else form)


def _equality(apart: Linear, holds: bool) -> Condition:
    """That a form is 0, or is not: remainders are so where one, which is not negative, is."""
    apart = _one_remainder(apart) or apart
    if holds:
        return _all_of((_at_least_zero(apart), _at_least_zero(apart.times(-1))))
    return _one_of((_at_least_zero(apart.plus(ONE, -1)), _at_least_zero(apart.times(-1).plus(ONE, -1))))


def _one_remainder(apart: Linear) -> Linear | None:
    """The one remainder that is 0 where one is a number that it can be, or two of one divisor are equal."""
    divided = [(term, factor) for term, factor in apart.terms.items() if isinstance(term, Remainder)]
    if len(divided) < len(apart.terms) or [abs(factor) for _, factor in divided] not in ([1], [1, 1]):
        return None
    (first, factor), *others = divided
    if not others:
        number = -apart.constant * factor
        return remainder_of(first.form.plus(ONE, -number), first.divisor) if 0 <= number < first.divisor else None
    ((second, other),) = others
    if apart.constant or factor == other or first.divisor != second.divisor:
        return None
    return remainder_of(first.form.plus(second.form, -1), first.divisor)


def _all_of(parts: tuple[Condition, ...]) -> Condition:
    """All of some comparisons, without those that always hold."""
    left = tuple(part for part in parts if part != ALWAYS)
    return NEVER if NEVER in left else left[0] if len(left) == 1 else Both(left)


def _one_of(parts: tuple[Condition, ...]) -> Condition:
    """One of some comparisons, without those that never hold."""
    left = tuple(part for part in parts if part != NEVER)
    return ALWAYS if ALWAYS in left else left[0] if len(left) == 1 else Either(left)


ALWAYS, NEVER = Both(()), Either(())


def _at_least_zero(form: Linear) -> Condition:
    """`form >= 0` divided by what divides all its factors, without a quotient that stands alone, and as what always or
    never holds if remainders say so."""
    form = _reduced(form)
    if [type(term) for term in form.divided] == [Quotient] and abs(form.terms[first := form.divided[0]]) == 1:
        assert isinstance(first, Quotient)
        return _at_least_zero(undivided(form, first))
    if not form.divided or (holds := is_decided(form)) is None:
        return AtLeastZero(form)
    return ALWAYS if holds else NEVER


def _reduced(form: Linear) -> Linear:
    most = gcd(*form.terms.values())
    return form.over(most) if most > 1 else form


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
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right) if not in_place:
            make = quotient_of if isinstance(op, ast.FloorDiv) else remainder_of
            return make(read(left), _divisor(right, node))
        case ast.BinOp(left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=int() as divisor)) if (
            in_place and divisor > 0
        ):
            return Linear({quotient(name, divisor): 1})
        case ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=int() as divisor)) if (
            in_place and divisor > 0
        ):
            return remainder(name, divisor)
        case _:
            instead = f": {said}" if (said := _instead(node)) else ""
            raise Unreadable(f"'{ast.unparse(node)}' is no sum of positions, integer inputs and whole numbers{instead}")


def _instead(node: ast.expr) -> str | None:
    """What a condition has in place of an operation of arrays or numbers."""
    match node:
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return "join comparisons by 'and' and 'or'"
        case ast.UnaryOp(op=ast.Invert()):
            return "negate a comparison by 'not'"
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):  # a condition divides sums, too, and says itself by what
            return f"a place divides one position by a number above zero; of anything else, {NAME_IT}"
        case ast.BinOp(op=ast.Div()):
            return "divide by '//', which rounds down"
        case ast.Call(func=ast.Name(id="abs")):
            return "compare on both sides, as in '-16 < q - x < 16'"
        case _:
            return None


def _divisor(node: ast.expr, division: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool) and number > 0:
            return number
        case _:
            said = ast.unparse(division)
            raise Unreadable(f"'{said}' is divided by '{ast.unparse(node)}', which is no number above zero: {NAME_IT}")


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
                raise VerifyException(
                    f"condition '{self.text.data}' indexes '{term.name}' in two ways: give the array a second name, "
                    "read with `diagram.read` along the axes of the other"
                )
        if any(leaves_64_bits(form) for form in forms_of(condition)):
            raise VerifyException(f"condition '{self.text.data}' has numbers beyond 64 bits")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_str_literal()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.text.data)


def evaluate(condition: Condition, value: Callable[[Atom], Any]) -> Any:
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


__all__ = [
    "LAST_POSITION",
    "NAME_IT",
    "ONE",
    "AtLeastZero",
    "Atom",
    "Both",
    "Condition",
    "ConditionAttr",
    "Divided",
    "Either",
    "Entry",
    "Linear",
    "Quotient",
    "Read",
    "Remainder",
    "Term",
    "Unreadable",
    "axes_in",
    "axis_in",
    "divisor_in",
    "evaluate",
    "forms_of",
    "leaves_32_bits",
    "modulus_in",
    "of_position",
    "parsed",
    "quotient",
    "read_condition",
    "read_linear",
    "remainder",
    "renamed",
    "resolved",
    "spelled",
    "terms_of",
    "widened",
]
