"""How far a computed element may be from the float64 reference: a running error analysis.

Beside each value stands a bound `e`, so that whatever a correct kernel computes lies in `[v - e, v + e]`.
Arguments are exact: they are already in their formats. Every operation passes its operands' bounds on,
worst case, and adds its own rounding, by the format that the IR states.

What the units are, and why they are not smaller:

- A rounding to nearest: `u |v|` with u = 2^-11 (f16), 2^-8 (bf16), 2^-24 (f32), plus half the smallest
  subnormal; for f32 and bf16 the smallest *normal* number, because `.ftz` instructions flush.
- A product on tensor cores: 2^-23 for each term in f32. They align the products of a step to the largest
  (with a bit to spare since sm_80) and truncate: for a step of 8, (9 2^-24 + 2^-23) / 8 a term. f32 operands
  multiply on the ordinary cores (2^-24), unless the IR says tf32, which rounds each operand to 2^-11 first.
- A sum of n elements, in any order: n roundings of a partial sum, which is at most the sum of the positive
  elements or of the negative ones. No order is assumed, so that splitting, streaming and shuffling need no
  bound of their own; it grows with n, where a lucky order would grow with its square root.
- Division, square root and reciprocal square root: 2^-22, for the approximate instructions.
- A sum or difference of two: a rounding of each term besides that of the result, if it was rounded already, because
  a factor may be moved over it: exp(a - b) becomes exp2(c a - c b) where a is a sum of products.
- exp: 2^-21 for ex2.approx, plus 2^-22 |v| because the argument is multiplied by log2 e first. log the
  like. Other functions: 2^-20, relative, or absolute where the function crosses zero (sin, cos, tan).
- A function passes a bound on by the worst it does on the interval, not by its slope in the middle.
- A comparison of intervals that overlap may go either way; `select` then allows either choice.
- An interval that touches the border of a function's domain has no bound. The sign of a zero is not known, so
  neither is that of what is divided by it.
- Of -inf less itself nothing is said: a row of scores that are all -inf has no shares in the formula, and in a kernel
  the sum of their powers is 0.
- A value that leaves its format's range has an infinite bound: nothing can be said about it, nor about
  what is computed from it.

Streaming rewrites a softmax as products of rescales, which round where the formula does not. `SLACK` pays
for that, once, when the bound is used as a tolerance (`run_with_bounds`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Attribute, Operation

from treadle.dialects import diagram
from treadle.dialects.diagram.array import format_of
from treadle.runtime.interpreter.arrays import AnyArray, Array, FloatArray, Numbers, contract, is_float
from treadle.runtime.interpreter.scalars import UNARY, value_of

SLACK = 2.0
"""What reassociation may multiply the roundings by."""

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
"""Relative error of rounding to nearest."""

SMALLEST = {"f16": 2.0**-25, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}
"""Absolute error of rounding near zero."""

LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
"""The largest finite number."""

TF32 = 2.0**-11
TENSOR_CORE_F32 = 2.0**-23
TENSOR_CORE_F16 = 2.0**-9
APPROXIMATE = 2.0**-22
EXPONENTIAL = 2.0**-21
FUNCTION = 2.0**-20

Spread: TypeAlias = Callable[[Operation, tuple[Numbers, ...], AnyArray], FloatArray]
"""How an operation passes on the bounds of its operands: from them and its value to a bound."""


def _error(numbers: Numbers) -> FloatArray:
    assert numbers.error is not None, "a value without a bound in a run with bounds"
    return numbers.error


def _times(a: FloatArray, b: FloatArray) -> FloatArray:
    """A product in which nothing times infinity is nothing."""
    with np.errstate(all="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b)


def _finite_size(value: AnyArray) -> FloatArray:
    """|v|, and nothing for what is infinite or NaN."""
    return np.where(np.isfinite(value), np.abs(value.astype(np.float64)), 0.0)


def _settled(value: AnyArray, error: FloatArray) -> FloatArray:
    """A bound that is a number: unknown becomes infinite; an element that is itself infinite or NaN has no
    distance, and is compared by its kind, unless it may be anything."""
    if value.dtype.kind != "f":
        return np.broadcast_to(np.nan_to_num(error, nan=np.inf, posinf=np.inf), value.shape)
    wild = np.where(np.isinf(error), np.inf, 0.0)
    known = np.where(np.isnan(error), np.inf, error)
    return np.broadcast_to(np.where(np.isfinite(value), known, wild), value.shape)


def rounding(value: AnyArray, error: FloatArray, format: Attribute) -> FloatArray:
    """What rounding a value to a format adds to its bound; infinite where it may leave the range."""
    if not is_float(format):
        return np.zeros(())
    name = str(format)
    size = np.abs(value) + error
    added = UNIT[name] * size + SMALLEST[name]
    added = np.where(size > LARGEST.get(name, np.inf), np.inf, added)
    return np.where(np.isfinite(value), added, 0.0)


def _rounded(value: AnyArray, error: FloatArray, format: Attribute) -> FloatArray:
    with np.errstate(all="ignore"):
        return _settled(value, error + rounding(value, error, format))


def cast_error(numbers: Numbers, given: Attribute, wanted: Attribute) -> FloatArray:
    """A cast to a wider format is exact; integers are exact up to the unit of the float format."""
    error = _error(numbers)
    if not is_float(wanted) or (is_float(given) and _holds(wanted, given)):
        return error
    return _rounded(numbers.value, error, wanted)


def _holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether every number of one float format is one of another."""
    return wide == narrow or str(wide) == "f64" or (str(wide) == "f32" and str(narrow) in ("f16", "bf16"))


# -- arrays ----------------------------------------------------------------------------------------


def _gamma(count: int, unit: float) -> float:
    """Relative error of `count` roundings one after another."""
    return float(np.expm1(count * np.log1p(unit)))


def _largest_partial(reach: FloatArray, value: AnyArray, error: FloatArray) -> FloatArray:
    """The largest partial sum in any order: all the positive elements, or all the negative ones. Their
    difference is the sum, and `reach` bounds their total."""
    return np.minimum(reach, (reach + _finite_size(value) + error) / 2)


def _unit_of_product(op: diagram.ContractOp) -> float:
    """Rounding of one step of a sum of products."""
    accumulate, operand = str(op.accumulate), str(format_of(op.lhs.type))
    if accumulate == "f32":
        return UNIT["f32"] if operand == "f32" and not op.is_tf32 else TENSOR_CORE_F32
    return {"f16": TENSOR_CORE_F16, "bf16": 2 * UNIT["bf16"]}.get(accumulate, 0.0)


def _length(op: diagram.ContractOp, left: Array, right: Array) -> int:
    return prod({**left.sizes, **right.sizes}[axis] for axis in op.over_axes)


def contract_error(
    op: diagram.ContractOp, left: Array, right: Array, value: AnyArray, axes: Sequence[str]
) -> FloatArray:
    """|a| eb + |b| ea + ea eb, summed; a unit of the accumulator for each term; the result's rounding."""
    accumulate, length = str(op.accumulate), _length(op, left, right)
    operand_unit = TF32 if op.is_tf32 else 0.0
    a, b = _size_and_reach(left, operand_unit), _size_and_reach(right, operand_unit)
    with np.errstate(all="ignore"):
        reach = contract(a[1], b[1], op.over_axes, axes)
        error = reach - contract(a[0], b[0], op.over_axes, axes)
        partial = _largest_partial(reach, value, error)
        error = error + _gamma(length, _unit_of_product(op)) * partial + length * SMALLEST.get(accumulate, 0.0)
        error = np.where(partial > LARGEST.get(accumulate, np.inf), np.inf, error)
        if op.accumulate == format_of(op.result.type):
            return _settled(value, error)
        return _rounded(value, error, format_of(op.result.type))


def contract_gamma(op: diagram.ContractOp, left: Array, right: Array) -> float:
    """What the steps of a sum of products may add to whatever the accumulator starts from."""
    return _gamma(_length(op, left, right), _unit_of_product(op))


def reduce_gamma(count: int, format: Attribute) -> float:
    """As `contract_gamma`, for a reduction of `count` elements."""
    return _gamma(count, UNIT[str(format)]) if is_float(format) else 0.0


def _size_and_reach(array: Array, unit: float) -> tuple[Array, Array]:
    """|a|, and the most that |a| may be; infinite elements count as none, since their products are
    compared by kind."""
    numbers = array.numbers
    size = _finite_size(numbers.value)
    reach = (1 + unit) * (size + _error(numbers))
    return Array(array.axes, Numbers(size)), Array(array.axes, Numbers(reach))


def reduce_error(
    kind: str, data: Numbers, value: AnyArray, dimensions: tuple[int, ...], format: Attribute
) -> FloatArray:
    """A sum or product adds a rounding for each element; max and min pass on the largest bound."""
    error = _error(data)
    count = prod(data.value.shape[i] for i in dimensions)
    size = _finite_size(data.value)
    reach, gamma = size + error, reduce_gamma(count, format)
    with np.errstate(all="ignore"):
        match kind:
            case "add":
                bound = np.sum(reach - size, axis=dimensions)
                most = _largest_partial(np.sum(reach, axis=dimensions), value, bound)
            case "mul":
                most = np.prod(reach, axis=dimensions)
                bound = most - np.prod(size, axis=dimensions)
                least = np.prod(np.where(np.isfinite(data.value), np.minimum(size, 1), 1), axis=dimensions)
                vanishes = (least < SMALLEST.get(str(format), 0.0)) & ~np.isfinite(value)  # zero times infinity
                bound = np.where(vanishes, np.inf, bound)
            case _:
                return _settled(value, np.max(error, axis=dimensions, initial=0.0))
        bound = np.where(most > LARGEST.get(str(format), np.inf), np.inf, bound + gamma * most)
        return _settled(value, bound + count * SMALLEST.get(str(format), 0.0))


def combine_error(
    kind: str, init: Numbers, result: Numbers, value: AnyArray, format: Attribute, gamma: float
) -> FloatArray:
    """A reduction or contraction that starts from `init`: each of its steps (`gamma`, together) rounds a
    partial result that `init` is a part of."""
    operation = {
        "add": arith.AddfOp,
        "mul": arith.MulfOp,
        "max": arith.MaximumfOp,
        "min": arith.MinimumfOp,
    }[kind]
    with np.errstate(all="ignore"):
        error = SPREAD[operation](_NO_OPERATION, (init, result), value)
        if kind in ("max", "min"):
            return _settled(value, error)
        start = np.abs(init.value if kind == "add" else value) + _error(init)
        error = error + gamma * np.where(np.isfinite(start), start, 0.0)
        return _rounded(value, error, format)


# -- scalars ---------------------------------------------------------------------------------------


def scalar_error(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """The bound of a scalar operation, elementwise."""
    kind, format = type(op), op.results[0].type
    with np.errstate(all="ignore"):
        if kind is arith.ConstantOp:
            return np.zeros(())
        spread = SPREAD.get(kind, _all_or_nothing)(op, operands, value)
        if kind is not arith.SelectOp:
            for operand in operands:  # what may be anything may be NaN
                spread = np.where(np.isinf(_error(operand)), np.inf, spread)
        spread = np.where(np.isnan(spread) & np.isfinite(value), np.inf, spread)
        if kind in EXACT or not is_float(format):
            return _settled(value, spread)
        return _settled(value, spread + _own_error(kind, operands, value, spread, format))


def _own_error(
    kind: type[Operation], operands: tuple[Numbers, ...], value: AnyArray, spread: FloatArray, format: Attribute
) -> FloatArray:
    """Rounding of the result, and what the machine's instructions lack in accuracy."""
    size = np.abs(value) + np.where(np.isnan(spread), 0.0, spread)
    own = rounding(value, np.where(np.isnan(spread), 0.0, spread), format)
    if kind in RELATIVE:
        own = own + RELATIVE[kind] * size
    if kind in ABSOLUTE:
        own = own + ABSOLUTE[kind]
    if kind in ARGUMENT:
        argument = np.abs(operands[0].value) + _error(operands[0])
        own = own + _times(ARGUMENT[kind] * argument, size)
    if kind in (arith.AddfOp, arith.SubfOp):
        own = own + sum(np.minimum(UNIT["f32"] * (np.abs(n.value) + _error(n)), _error(n)) for n in operands)
    if kind is math.FmaOp:
        factors = (np.abs(n.value) + _error(n) for n in operands[:2])
        own = own + UNIT[str(format)] * _times(*factors)
    if kind is math.PowFOp:
        exponent = np.abs(operands[1].value) * np.abs(np.log2(np.abs(operands[0].value)))
        own = own + _times(2 * EXPONENTIAL * np.nan_to_num(exponent, posinf=0.0, neginf=0.0), size)
    return np.where(np.isfinite(value), own, 0.0)


def _corners(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Worst over the corners of the intervals: exact for what is monotone in each operand."""
    worst: FloatArray = np.zeros(())
    for signs in np.ndindex(*(2,) * len(operands)):
        moved = tuple(n.value + (2 * sign - 1) * _error(n) for n, sign in zip(operands, signs, strict=True))
        worst = np.maximum(worst, _distance(value_of(op, moved), value))
    return worst


def _distance(a: AnyArray, b: AnyArray) -> FloatArray:
    """|a - b|; nothing between equal infinities or NaNs, and infinite between numbers of different kinds."""
    apart = np.abs(a.astype(np.float64) - b)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)


def _corners_and(*turns: float) -> Spread:
    """As `_corners`, for a function that turns, or whose domain ends, at certain arguments: those count where the
    interval holds them, so that an interval that touches the border of a domain has no bound."""

    def spread(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
        worst = _corners(op, operands, value)
        for turn in turns:
            at_turn = value_of(op, (_clipped(turn, operands[0]), *(n.value for n in operands[1:])))
            worst = np.maximum(worst, _distance(at_turn, value))
        return worst

    return spread


def _sum(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return _error(operands[0]) + _error(operands[1])


def _difference(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """As a sum. Nothing is said of -inf less itself, a row's distance from a maximum that is -inf: the formula has no
    number for it, and a stream, which begins with such a maximum and must go on, takes the limit."""
    bottom = (operands[0].value == -np.inf) & (operands[1].value == -np.inf)
    return np.where(bottom, np.inf, _sum(op, operands, value))


def _product(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    a, b = operands
    ea, eb = _error(a), _error(b)
    bound = _times(np.abs(a.value), eb) + _times(np.abs(b.value), ea) + _times(ea, eb)
    signed = np.isinf(value) & (np.abs(a.value) > ea) & (np.abs(b.value) > eb)  # infinite, whatever the other is
    return np.where(signed & (np.isinf(a.value) | np.isinf(b.value)), 0.0, bound)


def _quotient(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """|a/b - a'/b'| is at most (ea + |a/b| eb) / (|b| - eb); unknown if b may be zero: even a zero that is exact has a
    sign that is not."""
    a, b = operands
    ea, eb = _error(a), _error(b)
    least = np.abs(b.value) - eb
    exact = ((ea == 0) & (eb == 0)) | np.isinf(a.value)
    bound = np.where(exact, 0.0, (ea + _times(np.abs(value), eb)) / least)
    return np.where(least > 0, bound, np.where(np.isnan(value) & (ea == 0) & (eb == 0), 0.0, np.inf))


def _reciprocal_root(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """As a quotient, unknown at zero, where the sign of the zero decides the sign of the infinity."""
    return np.where(operands[0].value == 0, np.inf, _corners_and(0.0)(op, operands, value))


def _sign_of(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """The size of one and the sign of the other, unknown where that may be zero."""
    size, sign = operands
    return np.where(np.abs(sign.value) > _error(sign), _error(size), np.where(np.isnan(value), 0.0, np.inf))


def _fused(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return _product(op, operands[:2], value) + _error(operands[2])


def _largest(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """max and min move no further than their operands; an operand that cannot win does not count."""
    a, b = operands
    sign = 1.0 if type(op) in (arith.MaximumfOp, arith.MaxnumfOp) or op is _NO_OPERATION else -1.0
    both = np.maximum(_error(a), _error(b))
    if op is _NO_OPERATION:
        return both
    gap = sign * (a.value.astype(np.float64) - b.value)
    only_a, only_b = gap > _error(a) + _error(b), -gap > _error(a) + _error(b)
    return np.where(only_a, _error(a), np.where(only_b, _error(b), both))


def _first(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    return _error(operands[0])


def _wave(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """sin and cos move no more than their argument, and no more than from -1 to 1."""
    return np.minimum(_error(operands[0]), 2.0)


def _tangent(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Monotone between poles; unknown where the interval holds one."""
    x, e = operands[0].value, _error(operands[0])
    branch = np.floor((x - e) / np.pi + 0.5) == np.floor((x + e) / np.pi + 0.5)
    return np.where(branch, _corners(op, operands, value), np.where(e == 0, 0.0, np.inf))


def _power(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """x^p is monotone in each where x is positive; elsewhere p must be exact. The turn at x = 0 counts, and so do
    1^p and x^0, which are 1 whatever the other is, even NaN."""
    x, p = operands
    worst: FloatArray = np.where((x.value == 0) & (p.value < 0), np.inf, 0.0)  # by the sign of the zero
    for base in (x.value - _error(x), x.value + _error(x), _clipped(0.0, x), _clipped(1.0, x)):
        for exponent in (p.value - _error(p), p.value + _error(p), _clipped(0.0, p)):
            worst = np.maximum(worst, _distance(value_of(op, (base, exponent)), value))
    reaches_below = (x.value - _error(x) < 0) | np.isnan(x.value)
    return np.where(reaches_below & (_error(p) > 0), np.inf, worst)


def _clipped(point: float, numbers: Numbers) -> FloatArray:
    """A point where the interval holds it, else the middle of the interval."""
    inside = np.abs(numbers.value - point) <= _error(numbers)
    return np.where(inside, point, numbers.value)


def _choice(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Where the condition may go either way, either choice may come out."""
    condition, yes, no = operands
    chosen = np.where(condition.value, _error(yes), _error(no))
    other = np.where(condition.value, _error(no), _error(yes))
    apart = _distance(yes.value, no.value)
    return np.where(_error(condition) > 0, np.maximum(chosen, apart + other), chosen)


def _comparison(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """1 where the intervals overlap, so that the answer may be the other one."""
    a, b = operands
    reach = _error(a) + _error(b)
    gap = np.abs(a.value.astype(np.float64) - b.value)
    return np.where((reach > 0) & ~(gap > reach), 1.0, 0.0)


def _all_or_nothing(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """Exact operands give an exact result; of anything else nothing is known."""
    exact = np.ones((), np.bool_)
    for operand in operands:
        exact = exact & (_error(operand) == 0)
    return np.where(exact, 0.0, np.inf)


_NO_OPERATION = arith.ConstantOp.from_int_and_width(0, 32)
"""Stands for the operation where a rule is used on its own."""

_MONOTONE = (
    math.ExpOp,
    math.Exp2Op,
    math.ExpM1Op,
    math.CbrtOp,
    math.AtanOp,
    math.SinhOp,
    math.TanhOp,
    math.AsinhOp,
    math.ErfOp,
    math.CeilOp,
    math.FloorOp,
    math.TruncOp,
    math.RoundOp,
    math.RoundEvenOp,
    arith.FPToSIOp,
    arith.FPToUIOp,
)

SPREAD: dict[type[Operation], Spread] = {
    **dict.fromkeys(_MONOTONE, _corners),
    **dict.fromkeys((math.LogOp, math.Log2Op, math.Log10Op, math.SqrtOp), _corners_and(0.0)),
    math.RsqrtOp: _reciprocal_root,
    **dict.fromkeys((math.AsinOp, math.AcosOp, math.AtanhOp), _corners_and(-1.0, 1.0)),
    math.Log1pOp: _corners_and(-1.0),
    math.AcoshOp: _corners_and(1.0),
    math.CoshOp: _corners_and(0.0),
    math.AbsFOp: _corners_and(0.0),
    math.SinOp: _wave,
    math.CosOp: _wave,
    math.TanOp: _tangent,
    math.CopySignOp: _sign_of,
    math.PowFOp: _power,
    math.FPowIOp: _power,
    math.FmaOp: _fused,
    arith.AddfOp: _sum,
    arith.SubfOp: _difference,
    arith.MulfOp: _product,
    arith.DivfOp: _quotient,
    arith.NegfOp: _first,
    arith.ExtFOp: _first,
    arith.TruncFOp: _first,
    arith.SIToFPOp: _first,
    arith.UIToFPOp: _first,
    arith.MaximumfOp: _largest,
    arith.MinimumfOp: _largest,
    arith.MaxnumfOp: _largest,
    arith.MinnumfOp: _largest,
    arith.SelectOp: _choice,
    arith.CmpfOp: _comparison,
    arith.CmpiOp: _comparison,
    arith.AddiOp: _sum,
    arith.SubiOp: _sum,
    arith.MuliOp: _product,
    arith.IndexCastOp: _first,
    arith.ExtSIOp: _first,
}
"""How each operation passes bounds on; for others see `_all_or_nothing`."""

EXACT: frozenset[type[Operation]] = frozenset(
    {
        arith.NegfOp,
        arith.ExtFOp,
        arith.MaximumfOp,
        arith.MinimumfOp,
        arith.MaxnumfOp,
        arith.MinnumfOp,
        arith.SelectOp,
        math.AbsFOp,
        math.CopySignOp,
        math.CeilOp,
        math.FloorOp,
        math.TruncOp,
        math.RoundOp,
        math.RoundEvenOp,
    }
)
"""Operations that do not round."""

_ARITHMETIC = frozenset(
    {
        arith.AddfOp,
        arith.SubfOp,
        arith.MulfOp,
        arith.TruncFOp,
        arith.SIToFPOp,
        arith.UIToFPOp,
        math.FmaOp,
    }
)

RELATIVE: dict[type[Operation], float] = {
    **{kind: FUNCTION for kind in UNARY if kind.name.startswith("math.") and kind not in EXACT | _ARITHMETIC},
    arith.DivfOp: APPROXIMATE,
    **dict.fromkeys((math.PowFOp, math.FPowIOp, math.Atan2Op), FUNCTION),
    math.SqrtOp: APPROXIMATE,
    math.RsqrtOp: APPROXIMATE,
    math.ExpOp: EXPONENTIAL,
    math.Exp2Op: EXPONENTIAL,
    math.LogOp: EXPONENTIAL,
    math.Log2Op: EXPONENTIAL,
}
"""Relative error of an instruction beyond the rounding of its result."""

ABSOLUTE: dict[type[Operation], float] = {
    math.SinOp: FUNCTION,
    math.CosOp: FUNCTION,
    math.LogOp: EXPONENTIAL,
    math.Log2Op: EXPONENTIAL,
    math.Log10Op: EXPONENTIAL,
    math.Log1pOp: EXPONENTIAL,
    math.ExpM1Op: EXPONENTIAL,
    math.ErfOp: FUNCTION,
    math.TanhOp: FUNCTION,
    math.SinhOp: FUNCTION,
}
"""Absolute error, for what crosses zero and is computed from something that does not."""

ARGUMENT: dict[type[Operation], float] = {
    math.ExpOp: APPROXIMATE,
    math.ExpM1Op: APPROXIMATE,
    math.SinhOp: APPROXIMATE,
    math.CoshOp: APPROXIMATE,
}
"""Error relative to argument and result, for what scales its argument first."""
