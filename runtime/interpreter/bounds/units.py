"""The units of the analysis: what one rounding, and one instruction, may add."""

from __future__ import annotations

from treadle.dialects.diagram.formats import NUMBER_FORMATS

CONFIDENCE = 4.0
"""So many times what independent roundings add up to is a likely bound: of normal errors, four standard deviations."""
SLACK = 2.0
"""What reassociation may multiply the roundings by."""

UNIT = {**{name: each.unit for name, each in NUMBER_FORMATS.items() if each.is_float}, "f64": 2.0**-53}
"""Relative error of rounding to nearest."""

SMALLEST = {
    **{name: NUMBER_FORMATS[name].tiny / 2 for name in ("f8E4M3FN", "f8E5M2", "f16")},
    **{"bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022},
}
"""Absolute error of rounding near zero."""

LARGEST = {name: each.largest for name, each in NUMBER_FORMATS.items() if each.is_float}
"""The largest finite number."""

SATURATING = frozenset(name for name, each in NUMBER_FORMATS.items() if each.saturates)
"""Formats that no number is beyond: two numbers that are clipped are no further apart than before."""

TF32 = 2.0**-11
TENSOR_CORE_F32 = 2.0**-23
TENSOR_CORE_F16 = 2.0**-9
APPROXIMATE = 2.0**-22
QUOTIENT = 7 * 2.0**-24
"""1 ulp of a reciprocal, and five roundings where four elements share it."""
EXPONENTIAL = 2.0**-21
FUNCTION = 2.0**-20
