"""Bounds of numbers, and what rounding them adds."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute

from treadle.dialects.diagram.formats import holds
from treadle.runtime.formats import rounded as to_format
from treadle.runtime.interpreter.arrays import AnyArray, FloatArray, Numbers, is_float
from treadle.runtime.interpreter.bounds.units import LARGEST, SATURATING, SLACK, SMALLEST, UNIT


def error_of(numbers: Numbers) -> FloatArray:
    assert numbers.error is not None, "a value without a bound in a run with bounds"
    return numbers.error


def times(a: FloatArray, b: FloatArray) -> FloatArray:
    """A product in which nothing times infinity is nothing."""
    with np.errstate(all="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b)


def finite_size(value: AnyArray) -> FloatArray:
    """|v|, and nothing for what is infinite or NaN."""
    return np.where(np.isfinite(value), np.abs(value.astype(np.float64)), 0.0)


def settled(value: AnyArray, error: FloatArray) -> FloatArray:
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
    size, largest = np.abs(value.astype(np.float64)) + error, LARGEST.get(name, np.inf)  # -128 of i8 is 128 here
    if name in SATURATING:
        # A value is rounded to 8 bits once, whatever is reassociated: SLACK must not count that again, but for what
        # products of two such roundings leave.
        once = (1 + 2 * UNIT[name]) / SLACK
        return np.where(np.isnan(value), 0.0, once * (UNIT[name] * np.minimum(size, largest) + SMALLEST[name]))
    added = UNIT[name] * size + SMALLEST[name]
    added = np.where(size > largest, np.inf, added)
    return np.where(np.isfinite(value), added, 0.0)


def rounded(value: AnyArray, error: FloatArray, format: Attribute) -> FloatArray:
    with np.errstate(all="ignore"):
        return settled(value, error + rounding(value, error, format))


def cast_error(numbers: Numbers, given: Attribute, wanted: Attribute) -> FloatArray:
    """A cast to a wider format is exact; 32-bit integers are exact up to the unit of the float format."""
    error = error_of(numbers)
    if not is_float(wanted) or _holds(wanted, given):
        return error
    return rounded(numbers.value, error, wanted)


def fixed_cast_error(numbers: Numbers, format: Attribute) -> FloatArray:
    """Of a value that is rounded in the reference too: rounding is monotone, so it lies where the ends of its interval
    are rounded to, which may be an interval of what reassociation makes of it."""
    value, error = numbers.value, error_of(numbers)
    if value.dtype.kind != "f":
        value = value.astype(np.float64)
    with np.errstate(all="ignore"):
        here, *ends = (
            to_format(each, format).astype(np.float64) for each in (value, value - SLACK * error, value + SLACK * error)
        )
        apart = np.maximum(*(np.where(end == here, 0.0, np.abs(end - here)) for end in ends))
        return settled(here, np.where(np.isinf(error), np.inf, np.where(np.isnan(value), 0.0, apart)))


def _holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether every number of one format is one of another."""
    return str(wide) == "f64" or holds(wide, narrow)
