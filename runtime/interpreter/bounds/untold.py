"""What laws make of rows of which a stream does not tell whether a condition left it any element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from treadle.dialects.diagram import ApplyOp, LawOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.presence import stretches
from treadle.runtime.interpreter.arrays import Array, Numbers


def without_untold_rows(op: ApplyOp, law: LawOp, operands: Sequence[Array], result: Array) -> Array:
    """A result of a law over some axes, with no bound where it is NaN although no operand is in that row: the distance
    of an infinity from itself, of which nothing is said where a condition on data along the row leaves elements out
    (as `difference` does, which does not see the conditions from inside of a law)."""
    numbers = result.numbers
    if numbers.error is None or not _has_untold_rows(op, law):
        return result
    known = reduce(np.logical_or, [_rows_with_nan(each, op.over_axes).aligned(result.axes).value for each in operands])
    error = np.where(np.isnan(numbers.value) & ~known, np.inf, numbers.error)
    return Array(result.axes, Numbers(numbers.value, error, numbers.absent))


def _has_untold_rows(op: ApplyOp, law: LawOp) -> bool:
    holds = [where.holds for where in absences_of(op.inputs)]
    finds = any(isinstance(each, ReduceOp) and each.kind.data in ("max", "min") for each in law.walk())
    return bool(holds) and finds and any(stretches(holds, axis, op.over_axes) is None for axis in op.over_axes)


def _rows_with_nan(array: Array, over: Sequence[str]) -> Array:
    is_nan: NDArray[np.bool_] = np.isnan(array.filled(0).numbers.value)
    rows = np.asarray(is_nan.any(axis=tuple(array.axes.index(axis) for axis in over if axis in array.axes)))
    return Array(tuple(axis for axis in array.axes if axis not in over), Numbers(rows))
