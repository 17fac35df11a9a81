"""What wgmma.mma_async computes, without any machine: a product of two small matrices, added to a third."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.hopper.matrix_descriptors import DescriptorFault, decode

DEPTH_BYTES = 32
"""Bytes of k that one product takes (PTX ISA 9.7.15.2, shapes)."""

FORMATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
"""Of the elements, by the qualifiers .atype and .btype."""


INTEGERS = ("s8", "u8")

Sums: TypeAlias = NDArray[np.float32] | NDArray[np.int32]


@dataclass(frozen=True)
class Product:
    """One wgmma.mma_async of f32 accumulators, or of s32 where it multiplies integers, by its qualifiers and immediate
    operands."""

    columns: int
    left: str
    right: str
    left_sign: int = 1
    right_sign: int = 1
    left_k_major: bool = True
    right_k_major: bool = True

    @property
    def sum_type(self) -> str:
        return "s32" if self.left in INTEGERS else "f32"

    @property
    def element_bytes(self) -> int:
        return np.dtype(FORMATS[self.left]).itemsize

    @property
    def depth(self) -> int:
        return DEPTH_BYTES // self.element_bytes

    def of(self, left: NDArray[np.float64], right: NDArray[np.float64], sums: Sums | None) -> Sums:
        """left (rows, depth) times right (columns, depth), added to sums (rows, columns) if there are any. Products are
        exact (their significands have at most 22 bits); they and the sum are added in float64 and rounded to f32 once,
        which is nearer to the real numbers than what the ISA asks of a device: single precision at least, order and
        rounding unspecified (9.7.15.5.2). Sums of integers are exact, and wrap in 32 bits."""
        with np.errstate(invalid="ignore", over="ignore"):
            result = (left * (self.left_sign * self.right_sign)) @ right.T
            result = result if sums is None else result + sums
        if self.sum_type == "s32":  # which float64 holds before it wraps
            return result.astype(np.int64).astype(np.int32)
        with np.errstate(invalid="ignore", over="ignore"):
            return result.astype(np.float32)


def values(bits: NDArray[Any], format: str) -> NDArray[np.float64]:
    """The numbers that elements stand for, given as unsigned integers of their size."""
    return _table(format)[bits]


def matrix(
    shared: NDArray[np.uint8], descriptor: int, lines: int, product: Product, usable: range, *, is_left: bool
) -> Any:
    """The elements, (lines, depth), that a descriptor finds in the shared memory of a block, as float64
    (DescriptorFault, also where it reaches out of the bytes that a kernel may use)."""
    k_major = product.left_k_major if is_left else product.right_k_major
    nbytes = product.element_bytes
    at, begin, end = _elements(descriptor, lines, product.depth, nbytes, k_major)
    if begin < usable.start or end > usable.stop:
        raise DescriptorFault(f"a matrix at bytes {begin} to {end} of shared memory, of which it has {usable}")
    return values(shared.view(f"u{nbytes}")[at], product.left if is_left else product.right)


@lru_cache(maxsize=1024)
def _elements(
    descriptor: int, lines: int, depth: int, nbytes: int, k_major: bool
) -> tuple[NDArray[np.int64], int, int]:
    """Where the elements lie, counted in elements; the first byte of them all, and behind the last."""
    at = decode(descriptor).addresses(lines, depth, nbytes, k_major=k_major) // nbytes
    return at, int(at.min()) * nbytes, (int(at.max()) + 1) * nbytes


@cache
def _table(format: str) -> NDArray[np.float64]:
    """The number that each pattern of bits is."""
    dtype = np.dtype(FORMATS[format])
    patterns = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        return patterns.view(dtype).astype(np.float64)
