"""Expressions as sums of multiples, over the reals."""

from __future__ import annotations

import math as numbers
from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import is_array
from treadle.passes.expressions.inner import inner_expression, is_rounding, is_saturating, stood_for
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    leaves,
)
from treadle.passes.expressions.signs import least

LEAST = 2.0**-100
"""What a factor of a program must reach for what it scales not to vanish."""


@dataclass(frozen=True)
class Scaled:
    """A summand times a number above zero that is known only when the program runs: what computes it, and the
    summand."""

    by: Hashable
    atom: SSAValue | Leaf | None


Atom = SSAValue | Leaf | Scaled | int | None
"""A summand of a linear form: an array, an array at another moment, either times a number of the program, another
expression (by identity), or `None` for the constant."""


def linear_form(expression: Expression, exactly: bool = False) -> dict[Atom, float]:
    """An expression as a sum of constant multiples, over the reals: `0.5 * (a - b)` is {a: 0.5, b: -0.5}. `exactly`
    says that what is rounded to fewer bits than f32 has is an atom, and not what it is rounded from.

    Maps that are linear themselves are looked through; anything else is one atom. An extremum for which a number stands
    while it is neutral is that extremum, for over the reals it is one."""
    form: dict[Atom, float] = {}
    _add_form(expression, 1.0, form, exactly)
    return {atom: factor for atom, factor in form.items() if factor}


def _add_form(expression: Expression, scale: float, form: dict[Atom, float], exactly: bool) -> None:
    if is_saturating(expression) or (exactly and is_rounding(expression)):
        return _count(form, _atom(expression), scale)
    if isinstance(expression, Node) and expression.kind in CASTS:
        return _add_form(expression.operands[0], scale, form, exactly)
    if isinstance(expression, Node) and (r := stood_for(expression)) is not None:
        return _count(form, r, scale)
    match expression:
        case Constant():
            _count(form, None, scale * expression.number)
        case Leaf():
            _add_leaf(expression, scale, form, exactly)
        case Node(kind=arith.AddfOp, operands=(left, right)):
            _add_form(left, scale, form, exactly)
            _add_form(right, scale, form, exactly)
        case Node(kind=arith.SubfOp, operands=(left, right)):
            _add_form(left, scale, form, exactly)
            _add_form(right, -scale, form, exactly)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            _add_form(operand, -scale, form, exactly)
        case Node(kind=arith.MulfOp, operands=(Constant() as factor, other)):
            _add_form(other, scale * factor.number, form, exactly)
        case Node(kind=arith.MulfOp, operands=(other, Constant() as factor)):
            _add_form(other, scale * factor.number, form, exactly)
        case Node(kind=arith.DivfOp, operands=(other, Constant() as divisor)) if divisor.number:
            _add_form(other, scale / divisor.number, form, exactly)
        case Node(kind=arith.MulfOp, operands=(other, factor)) if is_positive_scalar(factor):
            _add_scaled(expression, other, factor, scale, form, exactly)
        case Node(kind=arith.MulfOp, operands=(factor, other)) if is_positive_scalar(factor):
            _add_scaled(expression, other, factor, scale, form, exactly)
        case _:
            _count(form, id(expression), scale)


def _add_scaled(
    whole: Expression, other: Expression, factor: Expression, scale: float, form: dict[Atom, float], exactly: bool
) -> None:
    """Each summand of `other` times a number of the program; the whole is one atom if that is none of them."""
    inner = linear_form(other, exactly)
    if any(isinstance(atom, int | Scaled) for atom in inner):
        return _count(form, id(whole), scale)
    by = _spelled(factor)
    for atom, size in inner.items():
        assert not isinstance(atom, int | Scaled)
        _count(form, Scaled(by, atom), scale * size)


def _spelled(expression: Expression) -> Hashable:
    """Equal for expressions of numbers that compute the same in the same way."""
    if isinstance(expression, Leaf):
        return (expression.value, expression.version)
    if isinstance(expression, Constant):
        return expression.number
    return (expression.kind, *(_spelled(operand) for operand in expression.operands))


def unscaled(form: dict[Atom, float]) -> dict[Atom, float]:
    """A form without the number above zero by which all of it is multiplied, if there is one: its sign is the same."""
    scales = {atom.by if isinstance(atom, Scaled) else None for atom in form}
    if len(scales) != 1 or None in scales:
        return form
    return {atom.atom if isinstance(atom, Scaled) else atom: size for atom, size in form.items()}


def is_positive_scalar(expression: Expression) -> bool:
    """Whether an expression is a number of the program, the same for all elements, that is not near zero either."""
    if isinstance(expression, Constant) or any(is_array(leaf.value.type) for leaf in leaves(expression)):
        return False
    return least(expression) >= LEAST


def _atom(expression: Expression) -> Atom:
    """A part that is not taken apart."""
    if not isinstance(expression, Leaf):
        return id(expression)
    return expression if expression.version else expression.value


def _add_leaf(leaf: Leaf, scale: float, form: dict[Atom, float], exactly: bool) -> None:
    if leaf.version:
        _count(form, leaf, scale)
        return
    inner = inner_expression(leaf.value)
    if inner is not None:
        expanded = linear_form(inner, exactly)
        if not any(isinstance(atom, int) for atom in expanded):
            for atom, factor in expanded.items():
                _count(form, atom, scale * factor)
            return
    _count(form, leaf.value, scale)


def _count(form: dict[Atom, float], atom: Atom, factor: float) -> None:
    form[atom] = form.get(atom, 0.0) + factor


def same_form(left: dict[Atom, float], right: dict[Atom, float]) -> bool:
    return left.keys() == right.keys() and all(numbers.isclose(left[atom], right[atom]) for atom in left)
