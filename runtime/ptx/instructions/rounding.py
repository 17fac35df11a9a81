"""Roundings that numpy has not."""

from __future__ import annotations

import numpy as np

from treadle.runtime.ptx.types import Array


def flushed(values: Array) -> Array:
    """Subnormal numbers of f32 as zeros of their sign (`.ftz`)."""
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), values), values) if tiny.any() else values


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of f32, rounded once: the product is exact in float64."""
    return _rounded_to_odd(a.astype(np.float64) * b, c.astype(np.float64)).astype(np.float32)


def added_towards_zero(a: Array, b: Array) -> Array:
    """a + b of f32, rounded towards zero: where finite numbers overflow, the largest finite one."""
    total = _rounded_to_odd(a.astype(np.float64), b.astype(np.float64))
    near = total.astype(np.float32)
    return np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near)


def _rounded_to_odd(a: Array, b: Array) -> Array:
    """a + b of float64, rounded to odd: where it is inexact (its error is exact, by Knuth's two-sum) the last bit is
    made odd. What is rounded to odd with more than 2 further bits rounds to f32, in any direction, as the exact number
    does (Boldo and Melquiond, 2008). Infinite and NaN sums have no error to look at."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64)
    even = (error != 0) & ((bits & 1) == 0) & np.isfinite(total) & np.isfinite(error)
    if not even.any():
        return total
    # One step towards the exact number: away from zero where the error has the sign of the total.
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)
