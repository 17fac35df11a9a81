"""The units of the analysis: what one rounding, and one instruction, may add."""

from __future__ import annotations

SLACK = 2.0
"""What reassociation may multiply the roundings by."""

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
"""Relative error of rounding to nearest."""

SMALLEST = {"f16": 2.0**-25, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}
"""Absolute error of rounding near zero."""

LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
"""The largest finite number."""

TF32 = 2.0**-11
TENSOR_CORE_F32 = 2.0**-23
TENSOR_CORE_F16 = 2.0**-9
APPROXIMATE = 2.0**-22
EXPONENTIAL = 2.0**-21
FUNCTION = 2.0**-20
