"""Number formats: the one place that knows how many bytes a value takes, what numpy and CUDA C call it, and how it
rounds.

A cast to a format rounds to nearest, ties to even. What is beyond the largest number of a format becomes infinite, but
for the 8-bit formats: they *saturate*, as the device's `cvt.rn.satfinite` does, which is the only conversion to them
that it has (PTX ISA 9.7.9, cvt): infinities and whatever is beyond the largest number become the largest number, with
its sign, and NaN stays NaN. `f8E5M2` has infinities all the same: they come with arguments, and widen to infinities.

Integers of 8 bits are stored and converted, as 8-bit floats are: what is computed of them is computed in `i32` or in a
float format, in all of which each of them is exact but in 8-bit floats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    IntegerType,
    Signedness,
    bf16,
    f16,
    f32,
    i8,
    i32,
)
from xdsl.ir import Attribute

Format: TypeAlias = Float8E4M3FNType | Float8E5M2Type | Float16Type | BFloat16Type | Float32Type | IntegerType
"""A number format that an array may have."""

f8E4M3FN = Float8E4M3FNType()
f8E5M2 = Float8E5M2Type()
ui8 = IntegerType(8, Signedness.UNSIGNED)


@dataclass(frozen=True)
class NumberFormat:
    """What is known of one format."""

    type: Format
    bytes: int
    """Of a value in memory."""
    dtype: str
    """What numpy calls it, with `ml_dtypes`."""
    c_type: str
    unit: float = 0.0
    """Relative error of rounding to nearest."""
    tiny: float = 0.0
    """The smallest number above zero."""
    largest: float = 0.0
    """The largest finite absolute value; 0 of integers that wrap."""
    saturates: bool = False
    """Whether what is beyond the largest number becomes it."""
    unsigned: bool = False
    """Whether no number is below zero."""

    @property
    def name(self) -> str:
        return str(self.type)

    @property
    def is_float(self) -> bool:
        return self.unit > 0

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number; (0, 0) of integers that wrap."""
        if self.is_float or not self.saturates:
            return -self.largest, self.largest
        return (0, self.largest) if self.unsigned else (-self.largest, self.largest - 1)

    @property
    def has_few_exponents(self) -> bool:
        """Whether numbers that are small beside 1 vanish: what is rounded to it should be near 1."""
        return self.tiny > 2.0**-64

    def holds(self, other: NumberFormat) -> bool:
        """Whether every finite number of another format is one of this, a float format."""
        if not other.is_float:
            return self.is_float and 0 < other.largest <= 1 / self.unit
        narrow = other.unit >= self.unit and other.tiny >= self.tiny and other.largest <= self.largest
        return self.is_float and narrow


NUMBER_FORMATS: dict[str, NumberFormat] = {
    each.name: each
    for each in (
        NumberFormat(f8E4M3FN, 1, "float8_e4m3fn", "__nv_fp8_e4m3", 2.0**-4, 2.0**-9, 448.0, saturates=True),
        NumberFormat(f8E5M2, 1, "float8_e5m2", "__nv_fp8_e5m2", 2.0**-3, 2.0**-16, 57344.0, saturates=True),
        NumberFormat(f16, 2, "float16", "__half", 2.0**-11, 2.0**-24, 65504.0),
        NumberFormat(bf16, 2, "bfloat16", "__nv_bfloat16", 2.0**-8, 2.0**-133, 3.3895313892515355e38),
        NumberFormat(f32, 4, "float32", "float", 2.0**-24, 2.0**-149, 3.4028234663852886e38),
        NumberFormat(i8, 1, "int8", "int8_t", largest=128.0, saturates=True),
        NumberFormat(ui8, 1, "uint8", "uint8_t", largest=255.0, saturates=True, unsigned=True),
        NumberFormat(i32, 4, "int32", "int32_t"),
    )
}
"""By name, as it is spelled in the IR."""

NARROW = tuple(name for name, each in NUMBER_FORMATS.items() if each.is_float and each.bytes < 4)
"""Float formats that are stored and multiplied; sums and other arithmetic on them are done in f32."""

EIGHT_BIT = tuple(name for name, each in NUMBER_FORMATS.items() if each.is_float and each.bytes == 1)
"""Float formats of 8 bits."""
STORED = tuple(name for name, each in NUMBER_FORMATS.items() if each.bytes == 1)
"""Formats that are stored, moved and converted, and in which no arithmetic is done."""
PACKED = tuple(name for name, each in NUMBER_FORMATS.items() if each.bytes < 4)
"""Formats of which a register holds several: tensor cores take them as they lie in memory."""
INTEGERS = tuple(name for name, each in NUMBER_FORMATS.items() if not each.is_float)
BYTES = tuple(name for name in INTEGERS if name in STORED)
"""Integers of 8 bits, with a sign and without; any two of them are multiplied."""
SIXTEEN_BIT = tuple(name for name, each in NUMBER_FORMATS.items() if each.bytes == 2)
FORMAT_BYTES = {name: each.bytes for name, each in NUMBER_FORMATS.items()}


def rated_as(format: str) -> str:
    """What a machine calls the rate of products of a format: it has one of 8-bit floats, and one of such integers."""
    return "f8" if format in EIGHT_BIT else "i8" if format in BYTES else format


def number_format(type: Attribute) -> NumberFormat:
    """What is known of the format of a scalar (KeyError for one that no array has)."""
    if (known := known_format(type)) is None:
        raise KeyError(str(type))
    return known


@lru_cache(maxsize=256)
def known_format(type: Attribute) -> NumberFormat | None:
    """What is known of the format of a scalar; None for one that no array has. Asked of few types, thousands of times:
    to print one takes longer than to find it."""
    return NUMBER_FORMATS.get(str(type))


def holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether every finite number of one format is one of another; false where either is no float of ours."""
    if wide == narrow:
        return True
    known = known_format(wide), known_format(narrow)
    return known[0] is not None and known[1] is not None and known[0].holds(known[1])
