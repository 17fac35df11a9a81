"""Comparisons of elements with themselves, and with their own maximum or minimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.interpreter.arrays import FloatArray, Numbers
from treadle.runtime.interpreter.bounds.numbers import error_of
from treadle.runtime.interpreter.bounds.units import SLACK


def beside_own_extremum(op: Operation, operands: tuple[Numbers, ...], error: FloatArray) -> FloatArray:
    """The bound of a comparison of elements with themselves, which asks for a NaN: 0. And with the largest (or
    smallest) of them: 0 where only one may be that.

    An extremum is one of the elements, digit for digit, so the one that no other can reach equals it, and the others do
    not, though the intervals of that one and of the extremum overlap."""
    if not isinstance(op, arith.CmpfOp) or not error.any():
        return error
    if _compared(op.lhs) is _compared(op.rhs):
        return np.zeros(())
    for element, extremum, numbers in ((op.lhs, op.rhs, operands[0]), (op.rhs, op.lhs, operands[1])):
        found = _extremum_of(element, extremum)
        if found is not None:
            return np.where(_may_be_extremal(found, element, numbers), error, 0.0)
    return error


def _compared(value: SSAValue) -> SSAValue:
    """What a map reads a number from; the number itself if it makes it."""
    map = value.owner.parent_op() if isinstance(value, BlockArgument) else None
    return map.inputs[value.index] if isinstance(value, BlockArgument) and isinstance(map, MapOp) else value


def _extremum_of(element: SSAValue, extremum: SSAValue) -> ReduceOp | None:
    """The reduction that makes one argument of a map of another one."""
    if not isinstance(element, BlockArgument) or not isinstance(extremum, BlockArgument):
        return None
    map = element.owner.parent_op()
    if not isinstance(map, MapOp) or extremum.owner is not element.owner:
        return None
    elements, reduced = map.inputs[element.index], map.inputs[extremum.index]
    # Rounded alike, an extremum is that of what is rounded.
    while isinstance(elements.owner, CastOp) and isinstance(reduced.owner, CastOp):
        elements, reduced = elements.owner.operand, reduced.owner.operand
    reduction = reduced.owner
    if not isinstance(reduction, ReduceOp) or reduction.init is not None or reduction.kind.data not in ("max", "min"):
        return None
    return reduction if reduction.operand is elements else None


def _may_be_extremal(reduction: ReduceOp, element: SSAValue, numbers: Numbers) -> NDArray[np.bool_]:
    """The elements of which it is not known whether they are the extremum: those that may be it beside others, and all
    of a row with a NaN."""
    map = element.owner.parent_op()
    assert isinstance(map, MapOp)
    axes = axes_of(map.result.type)
    along = tuple(axes.index(axis) for axis in reduction.over_axes)
    absent = np.zeros((), np.bool_) if numbers.absent is None else numbers.absent
    value = numbers.value if reduction.kind.data == "max" else -numbers.value
    margin = SLACK * error_of(numbers)
    least, most = (np.where(absent, -np.inf, each) for each in (value - margin, value + margin))
    reached = np.max(least, axis=along, keepdims=True, initial=-np.inf)
    candidate = ~absent & (most >= reached)
    several = np.sum(candidate, axis=along, keepdims=True, dtype=np.int64) > 1
    unknown = np.isnan(least).any(axis=along, keepdims=True) | np.isnan(most).any(axis=along, keepdims=True)
    return (candidate & several) | unknown


__all__ = ["beside_own_extremum"]
