"""Exact values: arrays whose floats are fractions, for laws that need no more than the operations of a field.

Where a run is exact (`Session.exact`), an array of floats is an object array of `Fraction`s; what is infinite or
NaN in it stays a float. What has no exact rule raises `NotRational`."""

from __future__ import annotations

from fractions import Fraction
from math import copysign, inf, isfinite, nan
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Operation

from treadle.dialects.diagram.random import RandomOp
from treadle.runtime.interpreter.arrays import AnyArray
from treadle.runtime.interpreter.scalars import value_of


class NotRational(Exception):
    """An operation leaves the rational numbers."""


RATIONAL: frozenset[type[Operation]] = frozenset(
    (
        arith.ConstantOp,
        arith.CmpfOp,
        arith.CmpiOp,
        arith.SelectOp,
        arith.NegfOp,
        arith.ExtFOp,
        arith.TruncFOp,
        arith.AddfOp,
        arith.SubfOp,
        arith.MulfOp,
        arith.DivfOp,
        arith.MaximumfOp,
        arith.MinimumfOp,
        arith.SIToFPOp,
        arith.UIToFPOp,
        arith.AddiOp,
        arith.SubiOp,
        arith.MuliOp,
        arith.MinSIOp,
        arith.MaxSIOp,
        arith.AndIOp,
        arith.OrIOp,
        arith.XOrIOp,
        math.AbsFOp,
        math.FmaOp,
        RandomOp,
    )
)
"""Scalar operations that give a fraction for fractions."""


def exact(value: AnyArray) -> AnyArray:
    """Floats as fractions."""
    if value.dtype.kind not in "fO":
        return value
    return np.asarray(_exact(value), object).reshape(value.shape)


def _number(value: Any) -> Any:
    return Fraction(value) if not isinstance(value, float) or isfinite(value) else value


_exact = np.frompyfunc(_number, 1, 1)


def _quotient(a: Any, b: Any) -> Any:
    """Division as floats do it where the divisor is zero or something is infinite."""
    if not isinstance(b, float):
        if b != 0:
            return a / b
        return nan if a == 0 or a != a else copysign(inf, float(a))
    return float(a) / b


_divide = np.frompyfunc(_quotient, 2, 1)


def exact_value_of(op: Operation, values: tuple[AnyArray, ...]) -> AnyArray:
    """The value of a scalar operation, elementwise (NotRational)."""
    if type(op) not in RATIONAL:
        raise NotRational(op.name)
    if isinstance(op, arith.DivfOp):
        return exact(np.asarray(_divide(*values), object))
    return exact(value_of(op, values))
