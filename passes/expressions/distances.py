"""Exponentials of a distance from an extremum, and what they are at most."""

from __future__ import annotations

import math as numbers
from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.passes.expressions.forms import LEAST, linear_form, same_form, unscaled
from treadle.passes.expressions.inner import inner_expression, look_through, stood_for
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    leaves,
    walk,
)

FAR_FROM_OVERFLOW = 2.0**90
"""A bound of elements of which as many as there may be have a finite sum in f32."""

ROUNDED = 4.0
"""By how much a power of zero may be off where its exponent is the difference of two large numbers."""


@dataclass(frozen=True)
class Distance:
    """An expression of the form `exp(k * (a - max a) + c)`, `k > 0`: at most `peak`, which it is where a is largest; or
    of a minimum, with `k < 0`. Each element that it has counts in the extremum."""

    extremum: ReduceOp
    peak: float = 1.0
    is_reached: bool = True
    """Whether it has all the elements of the extremum, so that one of a row is at the peak."""
    may_vanish: bool = False
    """Whether a number stands for the extremum while it is neutral, so that all of such a row is zero instead."""


def distance_of(expression: Expression, exactly: bool = False) -> Distance | None:
    """The maximum, or the minimum, that an expression is an exponential distance from, over the reals; `exactly` says
    that neither of the two is rounded to another format without the other."""
    arrays = [leaf.value for leaf in leaves(expression)]
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind not in (math.ExpOp, math.Exp2Op):
        return None
    form = linear_form(expression.operands[0], exactly)
    raised = form.pop(None, 0.0)
    raised *= numbers.log2(numbers.e) if expression.kind is math.ExpOp else 1.0
    if not numbers.log2(LEAST) <= raised <= numbers.log2(FAR_FROM_OVERFLOW):
        return None  # f32 may have no number for it, or for sums of it
    peak = 2.0**raised
    form = unscaled(form)
    for atom, factor in form.items():
        if not isinstance(atom, SSAValue):
            continue
        extremum = atom.owner
        if not isinstance(extremum, ReduceOp) or extremum.init is not None:
            continue
        if extremum.kind.data != ("max" if factor < 0 else "min"):
            continue
        rest = {other: size for other, size in form.items() if other is not atom}
        operand = {o: -factor * s for o, s in linear_form(Leaf(extremum.operand), exactly).items()}
        if same_form(rest, operand):
            stands = _has_stand_in(expression)
            return _compared(extremum, peak, arrays, stands)
    return None


def least_of_sum(expression: Expression) -> float:
    """What a sum of exponential distances is at least, unless it is of nothing, and zero, or NaN: one of its elements
    is at the extremum, unless one of the two is rounded. Also of a sum told from an older maximum, which was lower.
    Zero where no such bound is known."""
    expression = look_through(expression)
    owner = expression.value.owner if isinstance(expression, Leaf) else None
    if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.init is not None:
        return 0.0
    distance = distance_of(Leaf(owner.operand), exactly=True)
    if distance is None or not distance.is_reached or not set(distance.extremum.over_axes) <= set(owner.over_axes):
        return 0.0
    return distance.peak / ROUNDED


def _has_stand_in(expression: Expression) -> bool:
    """Whether a number stands for an extremum somewhere in an expression."""
    for part in walk(expression):
        inner = inner_expression(part.value) if isinstance(part, Leaf) and not part.version else None
        if stood_for(part) is not None or (inner is not None and _has_stand_in(inner)):
            return True
    return False


def is_beyond(power: Expression) -> bool:
    """Whether a power is raised by a constant so large that sums of it may overflow in f32."""
    if not isinstance(power, Node) or power.kind not in (math.ExpOp, math.Exp2Op):
        return False
    raised = linear_form(power.operands[0]).get(None, 0.0)
    binary = raised * (numbers.log2(numbers.e) if power.kind is math.ExpOp else 1.0)
    return binary > numbers.log2(FAR_FROM_OVERFLOW)


def _compared(extremum: ReduceOp, peak: float, arrays: Iterable[SSAValue], stands: bool) -> Distance | None:
    """The distance of what is made of some arrays; None if it has elements that the extremum leaves out, which may be
    beyond it."""
    left_out, absent = absences_of([extremum.operand]), absences_of(arrays)
    if not left_out <= absent:
        return None
    return Distance(extremum, peak, is_reached=absent <= left_out, may_vanish=stands)


def peak_of(expression: Expression) -> float | None:
    """An upper bound of a power `exp(u)` with `u` at most a constant, whatever its arrays are, as in `exp(m - max(m,
    k))`; None if there is none, or f32 has no number for it."""
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind not in (math.ExpOp, math.Exp2Op):
        return None
    most = _most_of_form(expression.operands[0])
    if most is None:
        return None
    binary = most * (numbers.log2(numbers.e) if expression.kind is math.ExpOp else 1.0)
    return 2.0**binary if binary < numbers.log2(NUMBER_FORMATS["f32"].largest) else None


def _most_of_form(exponent: Expression) -> float | None:
    """A constant that an expression is at most, since a maximum is taken off of which the rest is a part, or a minimum
    added."""
    form = linear_form(exponent)
    nodes = {id(part): part for part in walk(exponent)}
    for atom, factor in form.items():
        whole = Leaf(atom) if isinstance(atom, SSAValue) else nodes.get(atom) if isinstance(atom, int) else None
        if whole is None:
            continue
        for part in _parts(look_through(whole), arith.MaximumfOp if factor < 0 else arith.MinimumfOp):
            rest = {other: size for other, size in form.items() if other != atom}
            for other, size in linear_form(part).items():
                rest[other] = rest.get(other, 0.0) + factor * size
            if not any(size for other, size in rest.items() if other is not None):
                return rest.get(None, 0.0)
    return None


def _parts(expression: Expression, kind: type[Operation]) -> list[Expression]:
    """Of what an extremum is the extremum; nothing where an expression is none."""
    if not isinstance(expression, Node) or expression.kind is not kind:
        return []
    return [each for part in expression.operands for each in _parts(look_through(part), kind) or [part]]
