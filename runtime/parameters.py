"""What a kernel's parameter can be besides an array."""

from __future__ import annotations

import ctypes

Scalar = (
    ctypes.c_int32
    | ctypes.c_int64
    | ctypes.c_uint16
    | ctypes.c_uint32
    | ctypes.c_uint64
    | ctypes.c_float
    | ctypes.c_double
    | ctypes.c_bool
)
"""16 bits are of f16 or bf16."""
