"""Summands that are polynomials of a late value: how their sum follows when the value moves.

With `u(x, m)` a polynomial of degree two in `m`, which does not vary along x, Taylor's formula is exact:

    sum u(x, m') = sum u(x, m) + (m' - m) sum du/dm(x, m) + (m' - m)^2 / 2 sum d2u/dm2(x, m)

The derivatives are found on the expression as it is written, so that `(x - m)^2` gives sums of `x - m` and of 1, not
of `x` and of `x^2`, whose difference would cancel where the mean is large beside the spread."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ReduceOp
from treadle.passes.expressions.forms import Atom, Scaled, linear_form, unscaled
from treadle.passes.expressions.inner import inner_expression, is_saturating
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    is_number,
    number,
    product,
    quotient,
    select,
    total,
)
from treadle.passes.expressions.signs import is_positive

T = TypeVar("T")

Key = Hashable
ONE: Key = ("constant", 1.0)
_COMMUTE = (arith.AddfOp, arith.MulfOp, arith.MaximumfOp, arith.MinimumfOp)


def unfolded(expression: Expression, axis: str) -> Expression:
    """An expression in arrays, through the maps and widenings that make what varies along an axis.

    What is done is known by the part itself, which stays alive in that: by its address alone, a part that is made while
    others are dropped could be taken for one of these."""
    done: dict[Expression, Expression] = {}

    def visit(part: Expression) -> Expression:
        if part not in done:
            done[part] = part
            if isinstance(part, Leaf) and axis in axes_in(part) and not part.version:
                inner = inner_expression(part.value)
                if inner is not None and (isinstance(inner, Node | Constant) or inner.type == part.type):
                    done[part] = visit(inner)
            elif isinstance(part, Node):
                operands = tuple(visit(operand) for operand in part.operands)
                done[part] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
        return done[part]

    return visit(expression)


class Keys:
    """Keys of expressions: equal for those that compute the same in the same way, whatever maps they are spread over.
    Each part is read once, as long as the IR stays as it is; it stays alive as a key of `_known`, so that no other
    takes its place."""

    def __init__(self) -> None:
        self._known: dict[Expression, Key] = {}
        self._inner: dict[SSAValue, Expression | None] = {}
        self.kinds: dict[Expression, frozenset[str]] = {}
        """Of what kinds parts may be, where nothing more is known of any (`kinds_of`)."""
        self._answers: dict[tuple[Callable[[Expression], object], Expression], object] = {}

    def once(self, ask: Callable[[Expression], T], expression: Expression) -> T:
        """What is asked of an expression, the same whenever it is asked."""
        key = ask, expression
        if key not in self._answers:
            self._answers[key] = ask(expression)
        return cast(T, self._answers[key])

    def of(self, expression: Expression) -> Key:
        if expression not in self._known:
            self._known[expression] = self._of(expression)
        return self._known[expression]

    def inner(self, value: SSAValue) -> Expression | None:
        """What a value computes from others (`inner_expression`), the same whenever it is asked."""
        if value not in self._inner:
            self._inner[value] = inner_expression(value)
        return self._inner[value]

    def _of(self, expression: Expression) -> Key:
        match expression:
            case Constant():
                return ("constant", expression.number)
            case Leaf():
                opaque = expression.version or is_saturating(expression)
                inner = None if opaque else self.inner(expression.value)
                return (expression.version, expression.value) if inner is None else self.of(inner)
            case Node():
                keys = [self.of(operand) for operand in expression.operands]
                if expression.kind in _COMMUTE:
                    keys.sort(key=hash)
                properties = frozenset((k, v) for k, v in expression.properties.items() if k != "fastmath")
                return _Hashed((expression.kind, properties, *keys))


class _Hashed:
    """A key that is made of others: its hash is found once, not again at each key that is made of it."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Hashed) and self._hash == other._hash and self._parts == other._parts


def key_of(expression: Expression) -> Key:
    """Equal for expressions that compute the same in the same way, whatever maps they are spread over."""
    return Keys().of(expression)


def atoms_of(expression: Expression, axis: str, moves: Callable[[Expression], bool]) -> list[Expression]:
    """The largest parts that move and do not vary along an axis, each once (NoPolynomial where something moves that
    varies and is not known as an expression: a rounding)."""
    found: dict[Key, Expression] = {}

    def visit(part: Expression) -> None:
        if not moves(part):
            return
        if axis not in axes_in(part):
            found.setdefault(key_of(part), part)
        elif isinstance(part, Node):
            for operand in part.operands:
                visit(operand)
        else:
            raise NoPolynomial

    visit(expression)
    return list(found.values())


def powers_in(expression: Expression, axis: str, moves: Callable[[Expression], bool]) -> list[Expression]:
    """The factors of an expression, and of each of its terms, that are powers, vary along an axis, and move
    (NoPolynomial where terms have different ones)."""
    if not isinstance(expression, Node):
        return []
    operands = expression.operands
    match expression.kind:
        case math.ExpOp | math.Exp2Op:
            return [expression] if axis in axes_in(expression) and moves(expression) else []
        case arith.MulfOp:
            return [power for operand in operands for power in powers_in(operand, axis, moves)]
        case arith.DivfOp | arith.NegfOp:
            return powers_in(operands[0], axis, moves)
        case arith.SelectOp if not moves(operands[0]) and any(is_number(side, 0) for side in operands[1:]):
            return powers_in(operands[2 if is_number(operands[1], 0) else 1], axis, moves)
        case arith.AddfOp | arith.SubfOp:
            left, right = (powers_in(operand, axis, moves) for operand in operands)
            if sorted(hash(key_of(power)) for power in left) != sorted(hash(key_of(power)) for power in right):
                raise NoPolynomial
            return left
        case _:
            return []


# -- derivatives -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A factor times an expression, of which the factor is no part."""

    factor: float
    expression: Expression


class NoPolynomial(Exception):
    """An expression is no polynomial of a part of it, as far as can be seen."""


def derivative(terms: list[Term], atom: Expression, held: Container[Key]) -> list[Term]:
    """The derivative of a sum of terms by a part, as if some parts did not depend on it (NoPolynomial); equal terms are
    one."""
    found: dict[Key, Term] = {}
    wanted = key_of(atom)
    for term in terms:
        for part in _derivative(term.expression, wanted, held):
            key = key_of(part.expression)
            known = found[key].factor if key in found else 0.0
            found[key] = Term(known + term.factor * part.factor, part.expression)
    return [term for term in found.values() if term.factor]


def _derivative(expression: Expression, atom: Key, held: Container[Key]) -> list[Term]:
    key = key_of(expression)
    if key == atom:
        return [Term(1.0, number(1))]
    if key in held or not _has(expression, atom):
        return []
    if not isinstance(expression, Node):
        raise NoPolynomial  # a late value that depends on another
    operands = expression.operands

    def by_atom(part: Expression) -> list[Term]:
        return _derivative(part, atom, held)

    match expression.kind:
        case arith.AddfOp:
            return [*by_atom(operands[0]), *by_atom(operands[1])]
        case arith.SubfOp:
            return [*by_atom(operands[0]), *_scaled(by_atom(operands[1]), -1.0)]
        case arith.NegfOp:
            return _scaled(by_atom(operands[0]), -1.0)
        case arith.MulfOp:
            left, right = operands
            return [*_times(by_atom(left), right), *_times(by_atom(right), left)]
        case arith.DivfOp if not _has(operands[1], atom):
            return [Term(each.factor, quotient(each.expression, operands[1])) for each in by_atom(operands[0])]
        case arith.SelectOp if not _has(operands[0], atom) and is_number(operands[2], 0):
            return [Term(each.factor, select(operands[0], each.expression, number(0))) for each in by_atom(operands[1])]
        case arith.SelectOp if not _has(operands[0], atom) and is_number(operands[1], 0):
            return [Term(each.factor, select(operands[0], number(0), each.expression)) for each in by_atom(operands[2])]
        case _:
            raise NoPolynomial


def _scaled(terms: list[Term], factor: float) -> list[Term]:
    return [Term(factor * term.factor, term.expression) for term in terms]


def _times(terms: list[Term], by: Expression) -> list[Term]:
    if isinstance(by, Constant):
        return _scaled(terms, by.number)
    return [Term(term.factor, product(term.expression, by)) for term in terms]


def _has(expression: Expression, atom: Key) -> bool:
    if key_of(expression) == atom:
        return True
    if isinstance(expression, Leaf):
        inner = None if expression.version else inner_expression(expression.value)
        return inner is not None and _has(inner, atom)
    return isinstance(expression, Node) and any(_has(operand, atom) for operand in expression.operands)


@dataclass(frozen=True)
class Taylor:
    """The derivatives of a sum by the parts of its summands that move, up to the second; a third is zero."""

    first: list[tuple[Expression, list[Term]]]
    second: list[tuple[Expression, Expression, float, list[Term]]]
    """By a part and by another or the same, and what the product of their shifts is multiplied by."""

    @property
    def terms(self) -> dict[Key, Expression]:
        """What must be summed: of ones first, then what moves least."""
        lists = [*(terms for *_, terms in self.second), *(terms for _, terms in self.first)]
        return {key_of(term.expression): term.expression for terms in lists for term in terms}

    def change(
        self,
        shift: Callable[[Expression], Expression],
        sum_of: Callable[[Expression], Expression],
        times: Callable[[Expression, Expression], Expression] = product,
    ) -> Expression:
        """What the sum increases by when its parts are shifted, `times` sums of derivatives; by 0 they stay."""
        whole: Expression = number(0)
        shifts = {id(atom): shift(atom) for atom, _ in self.first}
        for atom, terms in self.first:
            if not is_number(shifts[id(atom)], 0):
                whole = total(whole, times(shifts[id(atom)], _sum(terms, 1.0, sum_of)))
        for one, other, factor, terms in self.second:
            each = shifts[id(one)], shifts[id(other)]
            if not any(is_number(shifted, 0) for shifted in each):
                whole = total(whole, times(product(*each), _sum(terms, factor, sum_of)))
        return whole


def _sum(terms: list[Term], factor: float, sum_of: Callable[[Expression], Expression]) -> Expression:
    whole: Expression = number(0)
    for term in terms:
        whole = total(whole, product(sum_of(term.expression), number(factor * term.factor)))
    return whole


def taylor(expression: Expression, atoms: list[Expression], powers: Sequence[Expression] = ()) -> Taylor:
    """All derivatives of an expression by its atoms (NoPolynomial if there is a third), where some of its factors stay
    as they are."""
    held = {key_of(power) for power in powers}
    first = [(atom, derivative([Term(1.0, expression)], atom, held)) for atom in atoms]
    first = [(atom, terms) for atom, terms in first if terms]
    second: list[tuple[Expression, Expression, float, list[Term]]] = []
    for i, (atom, terms) in enumerate(first):
        for other, _ in first[i:]:
            if again := derivative(terms, other, held):
                if any(derivative(again, third, held) for third, _ in first):
                    raise NoPolynomial
                second.append((atom, other, 0.5 if other is atom else 1.0, again))
    return Taylor(first, second)


# -- before the first element ----------------------------------------------------------------------


_FUNCTIONS: dict[type[Operation], Callable[[float], float]] = {
    math.SqrtOp: numbers.sqrt,
    math.RsqrtOp: lambda x: 1 / numbers.sqrt(x),
    math.LogOp: numbers.log,
    math.ExpOp: lambda x: numbers.exp(min(x, 700.0)),
    math.TanhOp: numbers.tanh,
    math.AbsFOp: abs,
}


def keeps_its_size(expression: Expression, is_sum: Callable[[SSAValue], bool]) -> bool:
    """Whether an expression in sums is the same of twice the elements, as a mean is and a sum is not."""
    once, twice = (
        value_at_start(expression, lambda value, size=size: size if is_sum(value) else None) for size in (7.0, 14.0)
    )
    return once is not None and twice is not None and numbers.isclose(once, twice)


def value_at_start(expression: Expression, starts: Callable[[SSAValue], float | None]) -> float | None:
    """What an expression is before the first element, where `starts` says what reductions are; NaN for a finite number
    that is not known, None where it may be none, then or later."""
    match expression:
        case Constant():
            value = expression.number
        case Leaf():
            inner = inner_expression(expression.value)
            start = starts(expression.value)
            value = start if start is not None else numbers.nan if inner is None else value_at_start(inner, starts)
        case Node():
            value = _at_start(expression, [value_at_start(operand, starts) for operand in expression.operands])
    return None if value is None or numbers.isinf(value) else value


def _at_start(node: Node, operands: list[float | None]) -> float | None:
    if any(operand is None for operand in operands):
        return None
    given = [operand for operand in operands if operand is not None]
    match node.kind:
        case arith.AddfOp:
            return given[0] + given[1]
        case arith.SubfOp:
            return given[0] - given[1]
        case arith.MulfOp:
            return given[0] * given[1]
        case arith.NegfOp:
            return -given[0]
        case arith.MaximumfOp:
            return max(given)
        case arith.DivfOp:
            return given[0] / given[1] if is_positive(node.operands[1]) and given[1] else None
        case math.SqrtOp | math.RsqrtOp | math.LogOp:
            known = is_positive(node.operands[0]) and given[0] > 0
            return _FUNCTIONS[node.kind](given[0]) if known else numbers.nan if is_positive(node.operands[0]) else None
        case math.ExpOp | math.TanhOp | math.AbsFOp:
            return _FUNCTIONS[node.kind](given[0])
        case arith.ExtFOp | arith.SIToFPOp | arith.UIToFPOp:
            return given[0]
        case _:
            return None


def is_distance_from(expression: Expression, extremum: ReduceOp) -> bool:
    """Whether an extremum stands in an expression only as what a multiple of its own array is compared with, as in
    `s - max s`: where it is neutral, so is every element, and the expression is no finite number whatever stands for
    the extremum."""
    wanted = key_of(Leaf(extremum.result))

    def visit(part: Expression) -> bool:
        if not _has(part, wanted) or _is_distance(part, extremum):
            return True
        if isinstance(part, Leaf):
            inner = None if part.version else inner_expression(part.value)
            return inner is not None and visit(inner)
        return isinstance(part, Node) and all(visit(operand) for operand in part.operands)

    return visit(expression)


def _is_distance(part: Expression, extremum: ReduceOp) -> bool:
    """Whether an expression is `c (s - max s)` and terms that are told from neither."""
    form, own = unscaled(linear_form(part)), linear_form(Leaf(extremum.operand))
    slope = -form.get(extremum.result, 0.0)
    others = [atom.atom if isinstance(atom, Scaled) else atom for atom in form if atom is not extremum.result]
    if (
        extremum.init is not None
        or not slope
        or any(isinstance(atom, int) or _is_told_from(atom, extremum) for atom in others)
    ):
        return False
    return all(numbers.isclose(form.get(atom, 0.0), slope * size) for atom, size in own.items() if atom is not None)


def _is_told_from(atom: Atom, extremum: ReduceOp) -> bool:
    leaf = Leaf(atom) if isinstance(atom, SSAValue) else atom
    return isinstance(leaf, Leaf) and _has(leaf, key_of(Leaf(extremum.result)))
