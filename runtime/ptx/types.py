"""The types of PTX (ISA section 5.2) as numpy has them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

Lanes = np.ndarray[Any, np.dtype[np.intp]]
"""Threads by their numbers in the batch: block after block, each warp's 32 side by side."""

Triple = tuple[int, int, int]
"""Along x, y, z."""

TYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
}

BITS: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""Raw bits, by bytes."""


def constant(text: str, type: str) -> Array:
    """An immediate as an array of one element (ISA section 4.5). ValueError if it is no number of the type."""
    dtype = TYPES[type]
    if text[:2] in ("0f", "0F", "0d", "0D"):
        if type[0] in "su":
            raise ValueError(f"{text} is no .{type}")
        bits = np.array([int(text[2:], 16)], np.uint32 if text[1] in "fF" else np.uint64)
        number = bits.view(np.float32 if text[1] in "fF" else np.float64)
        if dtype.kind == "f" and dtype.itemsize != number.itemsize:
            return number.astype(dtype)
        return number.view(dtype)
    if dtype.kind == "b":
        return np.array([int(text, 0) != 0])
    if dtype.kind not in "iu":
        if dtype.itemsize < 4 or "." not in text:
            raise ValueError(f"{text} is no .{type}")
        return np.array([float(text)], dtype)
    number = int(text.rstrip("U"), 0) if not _is_octal(text) else int(text.rstrip("U"), 8)
    return np.array([number & (1 << 8 * dtype.itemsize) - 1], BITS[dtype.itemsize]).view(dtype)


def _is_octal(text: str) -> bool:
    return len(text) > 1 and text.lstrip("-").isdigit() and text.lstrip("-").startswith("0")
