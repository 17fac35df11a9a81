"""How each kind of scalar operation passes the bounds of its operands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.presence import stretches
from treadle.runtime.interpreter.arrays import AnyArray, FloatArray, Numbers
from treadle.runtime.interpreter.bounds.numbers import error_of, times
from treadle.runtime.interpreter.scalars import value_of

Spread: TypeAlias = Callable[[Operation, tuple[Numbers, ...], AnyArray], FloatArray]
"""How an operation passes on the bounds of its operands: from them and its value to a bound."""

NO_OPERATION = arith.ConstantOp.from_int_and_width(0, 32)
"""Stands for the operation where a rule is used on its own."""


def corners(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Worst over the corners of the intervals: exact for what is monotone in each operand."""
    worst: FloatArray = np.zeros(())
    for signs in np.ndindex(*(2,) * len(operands)):
        moved = tuple(n.value + (2 * sign - 1) * error_of(n) for n, sign in zip(operands, signs, strict=True))
        worst = np.maximum(worst, _distance(value_of(op, moved), value))
    return worst


def _distance(a: AnyArray, b: AnyArray) -> FloatArray:
    """|a - b|; nothing between equal infinities or NaNs, and infinite between numbers of different kinds."""
    apart = np.abs(a.astype(np.float64) - b)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)


def corners_and(*turns: float) -> Spread:
    """As `corners`, for a function that turns, or whose domain ends, at certain arguments: those count where the
    interval holds them, so that an interval that touches the border of a domain has no bound."""

    def spread(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
        worst = corners(op, operands, value)
        for turn in turns:
            at_turn = value_of(op, (_clipped(turn, operands[0]), *(n.value for n in operands[1:])))
            worst = np.maximum(worst, _distance(at_turn, value))
        return worst

    return spread


def sum_of(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return error_of(operands[0]) + error_of(operands[1])


def difference(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """As a sum. Nothing is said of a row's distance from an extremum, both of which are the same infinity, where a
    condition on data along the row leaves elements out: a stream does not tell then whether it left any."""
    bound = sum_of(op, operands, value)
    map = op.parent_op()
    if not isinstance(map, MapOp) or not _has_untold_rows(map):
        return bound
    left, right = (operand.value for operand in operands)
    return np.where((left == right) & np.isinf(left), np.inf, bound)


def _has_untold_rows(map: MapOp) -> bool:
    wheres = absences_of(map.inputs)
    over = {axis for value in map.inputs for axis in _extremum_axes(value)} if wheres else set[str]()
    holds = [where.holds for where in wheres]
    return any(stretches(holds, axis, tuple(over)) is None for axis in over)


def _extremum_axes(value: SSAValue) -> set[str]:
    """The axes over which an extremum was found that a value is made of, element by element."""
    owner = value.owner
    if isinstance(owner, ReduceOp):
        return set(owner.over_axes) if owner.kind.data in ("max", "min") else set()
    if isinstance(owner, MapOp | CastOp | WhereOp):
        return {axis for operand in owner.operands for axis in _extremum_axes(operand)}
    return set()


def product(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    a, b = operands
    ea, eb = error_of(a), error_of(b)
    size_a, size_b = (np.abs(each.value.astype(np.float64)) for each in operands)  # -2^31 of i32 is 2^31 here
    bound = times(size_a, eb) + times(size_b, ea) + times(ea, eb)
    signed = np.isinf(value) & (size_a > ea) & (size_b > eb)  # infinite, whatever the other is
    return np.where(signed & (np.isinf(a.value) | np.isinf(b.value)), 0.0, bound)


def quotient(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """|a/b - a'/b'| is at most (ea + |a/b| eb) / (|b| - eb); unknown if b may be zero: even a zero that is exact has a
    sign that is not."""
    a, b = operands
    ea, eb = error_of(a), error_of(b)
    least = np.abs(b.value) - eb
    exact = ((ea == 0) & (eb == 0)) | np.isinf(a.value)
    bound = np.where(exact, 0.0, (ea + times(np.abs(value), eb)) / least)
    known = ((ea == 0) & (eb == 0)) | np.isnan(a.value) | np.isnan(b.value)
    return np.where(least > 0, bound, np.where(np.isnan(value) & known, 0.0, np.inf))


def reciprocal_root(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """As a quotient, unknown at zero, where the sign of the zero decides the sign of the infinity."""
    return np.where(operands[0].value == 0, np.inf, corners_and(0.0)(op, operands, value))


def sign_of(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """The size of one and the sign of the other, unknown where that may be zero."""
    size, sign = operands
    return np.where(np.abs(sign.value) > error_of(sign), error_of(size), np.where(np.isnan(value), 0.0, np.inf))


def fused(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return product(op, operands[:2], value) + error_of(operands[2])


def larger(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """max and min move no further than their operands; an operand that cannot win does not count."""
    a, b = operands
    sign = 1.0 if type(op) in (arith.MaximumfOp, arith.MaxnumfOp) or op is NO_OPERATION else -1.0
    both = np.maximum(error_of(a), error_of(b))
    if op is NO_OPERATION:
        return both
    gap = sign * (a.value.astype(np.float64) - b.value)
    only_a, only_b = gap > error_of(a) + error_of(b), -gap > error_of(a) + error_of(b)
    return np.where(only_a, error_of(a), np.where(only_b, error_of(b), both))


def as_first(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return error_of(operands[0])


def wave(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """sin and cos move no more than their argument, and no more than from -1 to 1."""
    return np.minimum(error_of(operands[0]), 2.0)


def tangent(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Monotone between poles; unknown where the interval holds one."""
    x, e = operands[0].value, error_of(operands[0])
    branch = np.floor((x - e) / np.pi + 0.5) == np.floor((x + e) / np.pi + 0.5)
    return np.where(branch, corners(op, operands, value), np.where(e == 0, 0.0, np.inf))


def power(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """x^p is monotone in each where x is positive; elsewhere p must be exact. The turn at x = 0 counts, and so do
    1^p and x^0, which are 1 whatever the other is, even NaN."""
    x, p = operands
    worst: FloatArray = np.where((x.value == 0) & (p.value < 0), np.inf, 0.0)  # by the sign of the zero
    for base in (x.value - error_of(x), x.value + error_of(x), _clipped(0.0, x), _clipped(1.0, x)):
        for exponent in (p.value - error_of(p), p.value + error_of(p), _clipped(0.0, p)):
            worst = np.maximum(worst, _distance(value_of(op, (base, exponent)), value))
    reaches_below = (x.value - error_of(x) < 0) | np.isnan(x.value)
    return np.where(reaches_below & (error_of(p) > 0), np.inf, worst)


def _clipped(point: float, numbers: Numbers) -> FloatArray:
    """A point where the interval holds it, else the middle of the interval."""
    inside = np.abs(numbers.value - point) <= error_of(numbers)
    return np.where(inside, point, numbers.value)


def choice(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Where the condition may go either way, either choice may come out."""
    condition, yes, no = operands
    chosen = np.where(condition.value, error_of(yes), error_of(no))
    other = np.where(condition.value, error_of(no), error_of(yes))
    apart = _distance(yes.value, no.value)
    return np.where(error_of(condition) > 0, np.maximum(chosen, apart + other), chosen)


def comparison(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """1 where the intervals overlap, so that the answer may be the other one."""
    a, b = operands
    reach = error_of(a) + error_of(b)
    gap = np.abs(a.value.astype(np.float64) - b.value)
    return np.where((reach > 0) & ~(gap > reach), 1.0, 0.0)


def all_or_nothing(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Exact operands give an exact result; of anything else nothing is known."""
    exact = np.ones((), np.bool_)
    for operand in operands:
        exact = exact & (error_of(operand) == 0)
    return np.where(exact, 0.0, np.inf)
