"""The first few of an order, each an extremum of what those before it leave: how far they may be from the reference,
and whether another may be in their place.

Passed on step by step, a bound says nothing of what follows two elements that roundings may exchange, for either may be
left then. But the n-th largest of some numbers moves no further than they do, whichever it is; and what has n numbers
certainly before it, and all others certainly behind, is in its place wherever those n are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.dialects.diagram.orders import Order, order_of
from treadle.runtime.interpreter.arrays import NEUTRAL, AnyArray, Array, FloatArray
from treadle.runtime.interpreter.bounds.numbers import error_of, settled
from treadle.runtime.interpreter.bounds.units import SLACK


def order_error(order: Order, array: Array, axes: Sequence[str], value: AnyArray, error: FloatArray) -> FloatArray:
    """A bound of what is found, over `axes`, that is `error` where a row has a NaN."""
    numbers = array.filled(NEUTRAL[order.kind]).aligned((*axes, order.axis))
    sign = 1.0 if order.kind == "max" else -1.0
    known = ~np.isnan(numbers.value).any(axis=-1)
    if order.rank >= numbers.value.shape[-1]:
        return error
    with np.errstate(all="ignore"):
        ends = _places if order.is_place else _values
        found = ends(order.rank, sign * numbers.value, error_of(numbers), value if order.is_place else sign * value)
        return settled(value, np.where(known, np.fmin(found, error), error))


def _values(rank: int, numbers: FloatArray, error: FloatArray, value: FloatArray) -> FloatArray:
    least, most = (-np.partition(-each, rank, axis=-1)[..., rank] for each in _ends(numbers, error))
    return np.where(least == most, 0.0, np.maximum(most - value, value - least))


def _places(rank: int, numbers: FloatArray, error: FloatArray, place: AnyArray) -> FloatArray:
    least, most = _ends(numbers, SLACK * error)
    at = np.clip(place, 0, numbers.shape[-1] - 1)[..., None]
    own_least, own_most = (np.take_along_axis(each, at, -1) for each in (least, most))
    before, not_behind = (least > own_most).sum(-1), (most >= own_least).sum(-1)  # which it is itself
    return np.where((before == rank) & (not_behind == rank + 1), 0.0, np.inf)


def _ends(numbers: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    unknown = np.isinf(error)
    return np.where(unknown, -np.inf, numbers - error), np.where(unknown, np.inf, numbers + error)


__all__ = ["Order", "order_error", "order_of"]
