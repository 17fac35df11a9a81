"""Bounds of scalar operations, elementwise."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Attribute, Operation

from treadle.runtime.interpreter.arrays import AnyArray, FloatArray, Numbers, is_float
from treadle.runtime.interpreter.bounds.extrema import beside_own_extremum
from treadle.runtime.interpreter.bounds.numbers import error_of, rounding, settled, times
from treadle.runtime.interpreter.bounds.spreads import all_or_nothing
from treadle.runtime.interpreter.bounds.tables import ABSOLUTE, ARGUMENT, EXACT, RELATIVE, SPREAD
from treadle.runtime.interpreter.bounds.units import EXPONENTIAL, UNIT

LOGARITHMS: tuple[type[Operation], ...] = (math.LogOp, math.Log1pOp)


def scalar_error(op: Operation, operands: tuple[Numbers, ...], value: AnyArray) -> FloatArray:
    """The bound of a scalar operation, elementwise."""
    kind, format = type(op), op.results[0].type
    with np.errstate(all="ignore"):
        if kind is arith.ConstantOp:
            return np.zeros(())
        spread = SPREAD.get(kind, all_or_nothing)(op, operands, value)
        spread = beside_own_extremum(op, operands, spread)
        if kind is not arith.SelectOp:
            for operand in operands:  # what may be anything may be NaN
                spread = np.where(np.isinf(error_of(operand)), np.inf, spread)
        spread = np.where(np.isnan(spread) & np.isfinite(value), np.inf, spread)
        if kind in LOGARITHMS:  # of a power that float64 does not hold, and that a shorter form never makes
            spread = np.where(np.isposinf(value), np.inf, spread)
        if kind in EXACT or not is_float(format):
            return settled(value, spread)
        return settled(value, spread + _own_error(kind, operands, value, spread, format))


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
        argument = np.abs(operands[0].value) + error_of(operands[0])
        own = own + times(ARGUMENT[kind] * argument, size)
    if kind in (arith.AddfOp, arith.SubfOp):
        own = own + sum(np.minimum(UNIT["f32"] * (np.abs(n.value) + error_of(n)), error_of(n)) for n in operands)
    if kind is math.FmaOp:
        factors = (np.abs(n.value) + error_of(n) for n in operands[:2])
        own = own + UNIT[str(format)] * times(*factors)
    if kind is math.PowFOp:
        exponent = np.abs(operands[1].value) * np.abs(np.log2(np.abs(operands[0].value)))
        own = own + times(2 * EXPONENTIAL * np.nan_to_num(exponent, posinf=0.0, neginf=0.0), size)
    return np.where(np.isfinite(value), own, 0.0)
