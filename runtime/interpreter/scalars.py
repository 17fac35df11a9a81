"""`arith`, `math` and `diagram.random` on whole arrays at once: what each scalar operation of a map computes, in
float64.

One line an operation. What they lack is named by the interpreter when it meets it."""

from __future__ import annotations

import math as libm
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation

from treadle.dialects.diagram.random import RandomOp
from treadle.runtime.formats import saturated
from treadle.runtime.interpreter.arrays import AnyArray, CannotRun, dtype_of
from treadle.runtime.interpreter.random_bits import random_of

Unary: TypeAlias = Callable[[AnyArray], AnyArray]
Binary: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
"""Values of the operands to the value of the result."""

COMPARE_FLOATS: tuple[Binary, ...] = (
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    lambda a, b: a == b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: (a < b) | (a > b),
    lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    lambda a, b: (a == b) | np.isnan(a) | np.isnan(b),
    lambda a, b: ~(a <= b),
    lambda a, b: ~(a < b),
    lambda a, b: ~(a >= b),
    lambda a, b: ~(a > b),
    lambda a, b: a != b,
    lambda a, b: np.isnan(a) | np.isnan(b),
    lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_),
)
"""By the predicate of `arith.cmpf`: false, oeq, ogt, oge, olt, ole, one, ord, ueq, ugt, ... true."""

COMPARE_INTEGERS: tuple[Binary, ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: unsigned(a) < unsigned(b),
    lambda a, b: unsigned(a) <= unsigned(b),
    lambda a, b: unsigned(a) > unsigned(b),
    lambda a, b: unsigned(a) >= unsigned(b),
)
"""By the predicate of `arith.cmpi`: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge."""


def unsigned(a: AnyArray) -> AnyArray:
    """The same bits as unsigned integers."""
    return a if a.dtype.kind in "bu" else a.astype(f"uint{8 * a.dtype.itemsize}")


def _on_unsigned(rule: Binary) -> Binary:
    return lambda a, b: rule(unsigned(a), unsigned(b)).astype(a.dtype)


def _divide(a: AnyArray, b: AnyArray) -> AnyArray:
    """Integer division towards zero, as on the machine; by zero it is zero, and the remainder too."""
    # In a wider format, since the lowest number has no opposite in its own.
    quotient = np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64))
    return np.where((a < 0) == (b < 0), quotient, -quotient).astype(a.dtype)


def to_integer(a: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Without the fraction; the nearest integer of the format where `a` is beyond, zero where it is NaN."""
    if dtype.kind == "b":
        return a.astype(dtype)
    limits = np.iinfo(dtype)
    inside = np.clip(np.trunc(np.nan_to_num(a, nan=0.0, posinf=np.inf, neginf=-np.inf)), limits.min, limits.max)
    return np.where(a >= limits.max, limits.max, np.where(a <= limits.min, limits.min, inside)).astype(dtype)


def _signed(a: AnyArray) -> AnyArray:
    """A single bit that is set means -1 where it is signed."""
    return -a.astype(np.int8) if a.dtype.kind == "b" else a


def _constant(op: arith.ConstantOp) -> AnyArray:
    attribute = op.value
    if isinstance(attribute, FloatAttr):
        return np.asarray(cast("FloatAttr[Any]", attribute).value.data, np.float64)
    if isinstance(attribute, IntegerAttr):
        number = cast("IntegerAttr[Any]", attribute).value.data
        return np.asarray(number).astype(dtype_of(op.result.type))
    raise CannotRun(f"the interpreter knows no constant such as {attribute}")


def _round_half_away(a: AnyArray) -> AnyArray:
    return np.trunc(a + np.copysign(0.5, a))


_erf = np.frompyfunc(libm.erf, 1, 1)
"""numpy has no erf, and the interpreter needs no more than numpy."""


UNARY: dict[type[Operation], Unary] = {
    math.AbsIOp: np.abs,
    arith.NegfOp: np.negative,
    arith.ExtFOp: lambda a: a,
    arith.TruncFOp: lambda a: a,
    math.AbsFOp: np.abs,
    math.CeilOp: np.ceil,
    math.FloorOp: np.floor,
    math.TruncOp: np.trunc,
    math.RoundOp: _round_half_away,
    math.RoundEvenOp: np.rint,
    math.ExpOp: np.exp,
    math.Exp2Op: np.exp2,
    math.ExpM1Op: np.expm1,
    math.LogOp: np.log,
    math.Log2Op: np.log2,
    math.Log10Op: np.log10,
    math.Log1pOp: np.log1p,
    math.SqrtOp: np.sqrt,
    math.RsqrtOp: lambda a: 1.0 / np.sqrt(a),
    math.CbrtOp: np.cbrt,
    math.SinOp: np.sin,
    math.CosOp: np.cos,
    math.TanOp: np.tan,
    math.AsinOp: np.arcsin,
    math.AcosOp: np.arccos,
    math.AtanOp: np.arctan,
    math.SinhOp: np.sinh,
    math.CoshOp: np.cosh,
    math.TanhOp: np.tanh,
    math.AsinhOp: np.arcsinh,
    math.AcoshOp: np.arccosh,
    math.AtanhOp: np.arctanh,
    math.ErfOp: lambda a: np.asarray(_erf(a)).astype(np.float64),
}


def _power(a: AnyArray, b: AnyArray) -> AnyArray:
    """As C and CUDA have it. Where one exponent of 0.5 serves all elements numpy takes the root, which is NaN of -inf
    and -0 of -0."""
    without_sign = (b == 0.5) & (np.isinf(a) | (a == 0))
    return np.power(np.where(without_sign, np.abs(a), a), b)


BINARY: dict[type[Operation], Binary] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.DivSIOp: _divide,
    arith.DivUIOp: _on_unsigned(lambda a, b: a // b),
    arith.FloorDivSIOp: lambda a, b: a // b,
    arith.CeilDivSIOp: lambda a, b: -(-a // b),
    arith.CeilDivUIOp: _on_unsigned(lambda a, b: a // b + (a % b != 0)),
    arith.RemSIOp: np.fmod,
    arith.RemUIOp: _on_unsigned(lambda a, b: a % b),
    arith.MinSIOp: np.minimum,
    arith.MaxSIOp: np.maximum,
    arith.MinUIOp: _on_unsigned(np.minimum),
    arith.MaxUIOp: _on_unsigned(np.maximum),
    arith.AndIOp: lambda a, b: a & b,
    arith.OrIOp: lambda a, b: a | b,
    arith.XOrIOp: lambda a, b: a ^ b,
    arith.ShLIOp: np.left_shift,
    arith.ShRSIOp: np.right_shift,
    arith.ShRUIOp: _on_unsigned(np.right_shift),
    arith.AddfOp: lambda a, b: a + b,
    arith.SubfOp: lambda a, b: a - b,
    arith.MulfOp: lambda a, b: a * b,
    arith.DivfOp: lambda a, b: a / b,
    arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum,
    arith.MaxnumfOp: np.fmax,
    arith.MinnumfOp: np.fmin,
    math.CopySignOp: np.copysign,
    math.PowFOp: _power,
    math.FPowIOp: lambda a, b: _power(a, b.astype(np.float64)),
    math.Atan2Op: np.arctan2,
}

TERNARY: dict[type[Operation], Callable[[AnyArray, AnyArray, AnyArray], AnyArray]] = {
    arith.SelectOp: np.where,
    math.FmaOp: lambda a, b, c: a * b + c,
}

CONVERSIONS: dict[type[Operation], Callable[[AnyArray, np.dtype[Any]], AnyArray]] = {
    arith.SIToFPOp: lambda a, dtype: _signed(a).astype(dtype),
    arith.UIToFPOp: lambda a, dtype: unsigned(a).astype(dtype),
    arith.FPToSIOp: lambda a, dtype: to_integer(a, dtype),
    arith.FPToUIOp: lambda a, dtype: a.astype(np.int64).astype(dtype),
    arith.IndexCastOp: lambda a, dtype: a.astype(dtype),
    arith.ExtSIOp: lambda a, dtype: _signed(a).astype(dtype),
    arith.ExtUIOp: lambda a, dtype: unsigned(a).astype(dtype),
    arith.TruncIOp: lambda a, dtype: (a & 1).astype(dtype) if dtype == np.bool_ else a.astype(dtype),
}
"""From the operand, and what the result is held in."""

SCALAR_OPERATIONS: tuple[type[Operation], ...] = (
    arith.ConstantOp,
    arith.CmpfOp,
    arith.CmpiOp,
    RandomOp,
    *UNARY,
    *BINARY,
    *TERNARY,
    *CONVERSIONS,
)


def value_of(op: Operation, values: tuple[AnyArray, ...]) -> AnyArray:
    """The value of a scalar operation, elementwise."""
    with np.errstate(all="ignore"):
        return np.asarray(_value_of(op, values))


def _value_of(op: Operation, values: tuple[AnyArray, ...]) -> AnyArray:
    kind = type(op)
    match op:
        case arith.ConstantOp():
            return _constant(op)
        case arith.CmpfOp():
            return COMPARE_FLOATS[op.predicate.value.data](*values)
        case arith.CmpiOp():
            return COMPARE_INTEGERS[op.predicate.value.data](*values)
        case RandomOp():
            return random_of(op, *values)
        case arith.TruncFOp():
            return saturated(values[0], op.result.type)
        case _ if kind in UNARY:
            return UNARY[kind](*values)
        case _ if kind in BINARY:
            return BINARY[kind](*values)
        case _ if kind in TERNARY:
            return TERNARY[kind](*values)
        case _:
            return CONVERSIONS[kind](values[0], dtype_of(op.results[0].type))
