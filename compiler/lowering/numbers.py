"""Neutral elements of reductions, as attributes."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, IntegerType

from treadle.compiler.lowering.absent import INTEGER_NEUTRAL, NEUTRAL
from treadle.dialects.diagram.array import Format, Number


def neutral_of(kind: str, format: Format) -> Number:
    """The neutral element of a reduction, in a format."""
    return number_in(format, (INTEGER_NEUTRAL if str(format) == "i32" else NEUTRAL)[kind])


def number_in(format: Format, number: float) -> Number:
    if isinstance(format, IntegerType):
        return IntegerAttr(int(number), format)
    return FloatAttr(float(number), cast(AnyFloat, format))
