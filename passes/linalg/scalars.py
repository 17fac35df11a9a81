"""Scalars in the body of a `linalg.generic` under construction (`xdsl.builder.ImplicitBuilder`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from xdsl.dialects import arith, linalg
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, f32, i8, i32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram.formats import number_format

Combine: TypeAlias = Callable[[SSAValue, SSAValue], Operation]

COMBINE: dict[str, tuple[Combine, Combine]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
}
"""By the kind of a reduction: what combines floats and integers."""


def converted(value: SSAValue, format: Attribute) -> SSAValue:
    """A scalar in another format, in the body under construction."""
    if value.type == format:
        return value
    if value.type == i32 and format == i8:
        low, high = (arith.ConstantOp(IntegerAttr(bound, i32)).result for bound in (-128, 127))
        return arith.TruncIOp(arith.MinSIOp(arith.MaxSIOp(value, low).result, high).result, i8).result
    if value.type == i8 and format == i32:
        return arith.ExtSIOp(value, i32).result
    if value.type == i32 and number_format(format).saturates:  # arith.sitofp does not
        return converted(converted(value, f32), format)
    if value.type in (i8, i32):
        return arith.SIToFPOp(value, format).results[0]  # pyright: ignore
    narrow, wide = number_format(value.type), number_format(format)
    if narrow.bytes == wide.bytes:  # f16 and bf16: neither holds the other
        return converted(converted(value, f32), format)
    if narrow.bytes < wide.bytes:
        return arith.ExtFOp(value, format).results[0]  # pyright: ignore
    if wide.saturates:  # arith.truncf does not
        low, high = (
            arith.ConstantOp(FloatAttr(sign * wide.largest, cast(AnyFloat, value.type))).result for sign in (-1, 1)
        )
        value = arith.MinimumfOp(arith.MaximumfOp(value, low).result, high).result
    return arith.TruncFOp(value, format).results[0]  # pyright: ignore


def position(loop: int) -> SSAValue:
    """The position along a loop, in the body under construction."""
    return arith.IndexCastOp(linalg.ops.IndexOp(loop), i32).result
