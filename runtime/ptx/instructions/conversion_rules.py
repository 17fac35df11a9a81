"""What conversions compute (PTX ISA, section "cvt")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from treadle.runtime.ptx.types import TYPES, Array

INTEGER_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}

_HALVES: dict[str, np.dtype[Any]] = {"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)}
_BYTES: dict[str, np.dtype[Any]] = {
    "e4m3x2": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2x2": np.dtype(ml_dtypes.float8_e5m2),
}
_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_NAN = 0x7F
"""Of an 8-bit float that is made of a NaN, with .satfinite."""


def converted(values: Array, to: str) -> Array:
    """A number in another format, to nearest even (tf32: to nearest, ties away from zero)."""
    with np.errstate(all="ignore"):
        return to_tf32(values) if to == "tf32" else values.astype(TYPES[to])


def to_tf32(values: Array) -> Array:
    """An f32 of which the low 13 bits are 0, rounded to nearest, ties away from zero (.rna)."""
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + np.uint64(0x1000)) & np.uint64(0xFFFFE000)).astype(np.uint32)
    return np.where(
        np.isfinite(values), rounded, bits & np.uint32(0xFFFFE000) | (np.isnan(values) * np.uint32(0x400000))
    )


def converted_to_integer(values: Array, rounding: str, to: str) -> Array:
    """Clamped to the range; a NaN is 0, or of 64 bits, in or out, the highest bit alone."""
    dtype = TYPES[to]
    limits = np.iinfo(dtype)
    wide = values.itemsize == 8 or dtype.itemsize == 8
    with np.errstate(all="ignore"):
        rounded = INTEGER_ROUNDINGS[rounding](values.astype(np.float64))
        made = np.where(rounded >= float(limits.max), limits.max, 0).astype(dtype)
        low = rounded <= float(limits.min)
        made[low] = limits.min
        inside = (rounded > float(limits.min)) & (rounded < float(limits.max))
        made[inside] = rounded[inside].astype(dtype)
    made[np.isnan(values)] = np.array([1 << 8 * dtype.itemsize - 1], f"u{dtype.itemsize}").view(dtype)[0] if wide else 0
    return made


def packed(lower: Array, upper: Array, to: str) -> Array:
    """Two f32 as two numbers of 16 or 8 bits, the lower one in the low half."""
    both = np.stack([lower, upper], axis=-1)
    with np.errstate(all="ignore"):
        if to in _HALVES:
            return both.astype(_HALVES[to]).view(np.uint32)[:, 0]
        made = np.clip(both, -_LARGEST[to], _LARGEST[to]).astype(_BYTES[to]).view(np.uint8)
    return np.ascontiguousarray(np.where(np.isnan(both), np.uint8(_NAN), made)).view(np.uint16)[:, 0]


def unpacked(values: Array, source: str) -> Array:
    """Two 8-bit floats as two of f16, which hold all of them."""
    halves = np.ascontiguousarray(values).view(_BYTES[source]).astype(np.float16)
    return halves.view(np.uint32)
