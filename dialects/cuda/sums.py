"""Sums of products of 8-bit operands: what tensor cores keep of one, and how it is promoted to f32."""

from __future__ import annotations

from collections.abc import Iterator
from math import expm1, inf, log1p, sqrt

UNIT_OF_TENSOR_CORES = 2.0**-13
"""What each term may take from the largest partial sum of 8-bit products: they are aligned to the largest of a step,
and 14 bits of each are added up (DeepSeek-V3, arXiv 2412.19437, section 3.3.2; SageAttention2, arXiv 2411.10958, counts
as many in the accumulator)."""
UNIT_OF_F32 = 2.0**-24
EVERY = 128
"""Products that are added up before a sum is promoted, unless another number is asked for: four instructions deep, so
that an addition of f32 stands beside each of them (arXiv 2412.19437 takes as many)."""
MOST_COLUMNS = 128
"""Of a sum on its way to an accumulator: 64 registers of a thread. Two halves of 256 columns, one after the other,
leave room for the accumulator beside them."""


def parts_of(columns: int) -> Iterator[tuple[int, int]]:
    """The first column and the width of the parts in which a product's columns are promoted, multiples of 8."""
    width = width_of_part(columns)
    for start in range(0, columns, width):
        yield start, min(width, columns - start)


def width_of_part(columns: int) -> int:
    count = -(-columns // MOST_COLUMNS)
    return -(-columns // (8 * count)) * 8


def growth(count: float, unit: float) -> float:
    """Relative error of so many roundings one after another; infinite where nothing is left of the sum."""
    exponent = count * log1p(unit)
    return expm1(exponent) if exponent < 700 else inf


def promoted_growth(count: float, every: float, likely: bool = False) -> float:
    """Relative error of a sum of `count` products of which tensor cores add up `every` at most, and f32 the rest. If
    roundings are independent (`likely`), it grows with their square root."""
    if count <= every:
        return growth(sqrt(count) if likely else count, UNIT_OF_TENSOR_CORES)
    sums = -(-count // every)
    # Each of the sums has an error of its own, and together they are no larger than the whole.
    near = growth(sqrt(every) if likely else every, UNIT_OF_TENSOR_CORES)
    far = growth(sqrt(sums) if likely else sums, UNIT_OF_F32)
    return near + far + near * far


__all__ = [
    "EVERY",
    "MOST_COLUMNS",
    "UNIT_OF_F32",
    "UNIT_OF_TENSOR_CORES",
    "growth",
    "parts_of",
    "promoted_growth",
    "width_of_part",
]
