"""Arguments of host functions and of launches: what numbers and arrays must be, how they are packed, and what can be
told of an array by its address and strides."""

from __future__ import annotations

import ctypes
from math import gcd
from typing import Any

import numpy as np
from xdsl.dialects.builtin import AnyFloat, MemRefType
from xdsl.ir import Attribute, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda import ANY_STRIDES, WHOLE_SECTORS
from treadle.dialects.cuda.accesses import WIDEST_VECTOR
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NARROW
from treadle.runtime.formats import DTYPES, FLOATS, held, rounded
from treadle.runtime.tensor_maps import UNIT, why_no_map

MAX_COORDINATE = 2**31 - 1


class HostError(Exception):
    """The host function cannot be executed on these arguments."""


def _is_number(dtype: np.dtype[Any], integer: bool) -> bool:
    return dtype.kind in "iu" or (not integer and (dtype.kind == "f" or dtype in FLOATS))


def scalar(arg: SSAValue, argument: Any) -> Any:
    """A number in the format of a scalar, or of an array without axes: rounded as the machine would, but a whole number
    that does not fit would be cut off in silence (HostError)."""
    value, format = np.asarray(argument), format_of(arg.type)
    integer = not isinstance(format, AnyFloat)
    # Of whole numbers beyond 64 bits numpy makes objects.
    if value.ndim or not (_is_number(value.dtype, integer) or type(argument) is int):
        wanted = "a whole number" if integer else "a number"
        raise HostError(f"argument '{arg.name_hint}' is {argument!r}: expected {wanted} ({format})")
    if str(format) not in DTYPES:
        return value.item()
    if (number := held(value.item(), format)) is None:
        raise HostError(f"argument '{arg.name_hint}' is {argument}, which {format} does not hold")
    return number.item()


def why_not_mappable(array: Any) -> str | None:
    """Why no tensor map takes an array, whatever its boxes; None if one does. `array` has `pointer`, `shape`,
    `strides`, `dtype`."""
    shape, itemsize = array.shape, array.dtype.itemsize
    if any(size > MAX_COORDINATE for size in shape):
        return f"coordinates of a tensor copy are 32-bit, the array's sizes {list(shape)}"
    return why_no_map(shape, array.strides, itemsize, array.pointer, (*(1 for _ in shape[1:]), UNIT // itemsize), 0)


_BITS = {1: ctypes.c_uint8, 2: ctypes.c_uint16}


def pack(value: Any, type: Attribute, any_strides: bool = False) -> list[Any]:
    """One argument of a launch as the printed kernel's parameters: a buffer is its address, then its strides in
    elements, that of the last axis only for the variant that takes any strides."""
    if isinstance(type, cuda.TensorMapType):
        return [value]
    if isinstance(type, MemRefType):
        itemsize = value.dtype.itemsize
        strides = value.strides if any_strides else value.strides[:-1]
        return [value, *(ctypes.c_int64(stride // itemsize) for stride in strides)]
    match str(type):
        case "f32":
            return [ctypes.c_float(value)]
        case name if name in NARROW:  # ctypes has no such number: its bits
            number = rounded(np.asarray(value), type)
            return [_BITS[number.itemsize](int(number.view(f"u{number.itemsize}")))]
        case "i8":
            return [ctypes.c_int8(value)]
        case "ui8":
            return [ctypes.c_uint8(value)]
        case "i32":
            return [ctypes.c_int32(value)]
        case "index":
            return [ctypes.c_int64(value)]
        case other:
            raise HostError(f"a kernel takes no argument of type {other}")


def alignment(array: Any) -> int:
    """The bytes, a power of two and at most 32, that divide an array's address and its strides, and up to 16, of which
    no vector has more, the size of its last axis; 0 if the elements along that are no neighbours. `array` has
    `pointer`, `shape`, `strides`, `dtype`."""
    if not array.shape:
        return int(array.dtype.itemsize)
    if 0 in array.shape:
        return WHOLE_SECTORS
    if array.shape[-1] > 1 and array.strides[-1] != array.dtype.itemsize:
        return ANY_STRIDES
    rows = [abs(stride) for stride, size in zip(array.strides[:-1], array.shape[:-1], strict=True) if size > 1]
    found = gcd(*(int(number) for number in (WHOLE_SECTORS, array.pointer, *rows)))
    length = gcd(array.shape[-1] * array.dtype.itemsize, WIDEST_VECTOR)
    return found if length == WIDEST_VECTOR else min(found, length)
