"""Tensor maps: how a tensor in global memory is cut into boxes for tensor copies, and what makes one legal.

A map is made on the host for each launch. The driver encodes it (`cuTensorMapEncodeTiled`) into 128 opaque bytes, so
what is tested are its arguments and the rules that it must keep (PTX ISA 5.5.8; CUDA driver API, tensor map object
management). The emulator has a record of its own, `TensorMap` in emulator_hopper.h."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

MAX_RANK = 5
MAX_BOX = 256
MAX_SIZE = 2**32
MAX_STRIDE = 2**40
UNIT = 16
"""Bytes that addresses, strides and the inner side of a box are multiples of."""

SWIZZLES = (0, 32, 64, 128)
BYTES = 128
_MAGIC = 0x7D3A
_RECORD = struct.Struct("<Q5Q4Q5IHHHH20x")


class NoTensorMap(ValueError):
    """No tensor map takes this array; the message says why."""


@dataclass(frozen=True)
class TensorMap:
    """The arguments of an encoding, innermost dimension first, as the driver takes them."""

    format: str
    element_bytes: int
    sizes: tuple[int, ...]
    """Elements."""
    strides: tuple[int, ...]
    """Bytes, of all dimensions but the innermost."""
    box: tuple[int, ...]
    """Elements."""
    swizzle_bytes: int

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def box_bytes(self) -> int:
        """What one copy writes to shared memory and counts on its barrier, edges included."""
        return prod(self.box) * self.element_bytes

    def record(self, address: int) -> bytes:
        """The map as the emulator reads it."""
        sizes, strides, box = (
            _filled(each, room) for each, room in ((self.sizes, 5), (self.strides, 4), (self.box, 5))
        )
        return _RECORD.pack(address, *sizes, *strides, *box, self.rank, self.element_bytes, self.swizzle_bytes, _MAGIC)


def tensor_map(
    shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], address: int, box: Sequence[int], swizzle: int
) -> TensorMap:
    """The map of an array (strides in bytes), in boxes of so many elements a dimension, both outermost first as in
    numpy; NoTensorMap if there is none. An array of one dimension gets a second one of size 1."""
    problem = why_no_map(shape, strides, dtype.itemsize, address, box, swizzle)
    if problem is not None:
        raise NoTensorMap(problem)
    if len(shape) == 1:
        shape, strides, box = (
            (1, *shape),
            (max(UNIT, -(-shape[0] * dtype.itemsize // UNIT) * UNIT), *strides),
            (1, *box),
        )
    outward = list(zip(shape, strides, strict=True))[-2::-1]
    # The stride of a dimension of one element is never used, but must keep the rules.
    kept = tuple(UNIT if size == 1 else stride for size, stride in outward)
    return TensorMap(str(dtype), dtype.itemsize, tuple(reversed(shape)), kept, tuple(reversed(box)), swizzle)


def why_no_map(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, address: int, box: Sequence[int], swizzle: int
) -> str | None:
    """The first rule that an array or its box breaks; None if it breaks none."""
    if not 1 <= len(shape) <= MAX_RANK:
        return f"a tensor map has 1 to {MAX_RANK} dimensions, the array {len(shape)}"
    if len(box) != len(shape) or len(strides) != len(shape):
        return f"a box of {len(box)} dimensions does not fit an array of {len(shape)}"
    if any(not 0 < size <= MAX_SIZE for size in shape):
        return f"sizes of a tensor map are 1 to 2^32, the array's are {list(shape)}"
    if any(not 0 < side <= MAX_BOX for side in box):
        return f"sides of a box are 1 to {MAX_BOX} elements, here {list(box)}"
    if swizzle not in SWIZZLES:
        return f"a swizzle spans 32, 64 or 128 bytes or is 0, not {swizzle}"
    inner = box[-1] * itemsize
    if inner % UNIT:
        return f"the inner side of a box is a multiple of {UNIT} bytes, here {inner}"
    if swizzle and inner != swizzle:
        # The driver takes narrower ones; what then lies behind a row in shared memory nobody says.
        return f"the inner side of a box is the {swizzle} bytes of its swizzle, here {inner}"
    if address % UNIT:
        return f"the address is {address % UNIT} past a multiple of {UNIT} bytes"
    if strides[-1] != itemsize and shape[-1] > 1:
        return f"neighbours along the last axis lie {strides[-1]} bytes apart, not {itemsize}"
    for size, stride in list(zip(shape, strides, strict=True))[:-1]:
        if size > 1 and (stride % UNIT or not 0 < stride < MAX_STRIDE):
            return f"strides are multiples of {UNIT} bytes between 0 and 2^40, here one is {stride}"
    return None


def _filled(numbers: Sequence[int], room: int) -> list[int]:
    return [*numbers, *(1 for _ in range(room - len(numbers)))]
