"""References of powers: `exp(u + v) = exp(u + r) exp(v - r)`, where `r` is the largest `v` of what is summed.

No power is beyond f32 then that the program does not have: the second is at most 1, and the first is the largest power
of the row. What is too small to be a number of f32 is too small beside that one. Of nothing but -inf zero takes the
place of the reference, so that its powers are 0 as in the program."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, sizes_of
from treadle.passes.expressions.reductions import is_neutral
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    difference,
    number,
    power_of,
    select,
    total,
)
from treadle.passes.products.factors import Writer

LAW = "exp(a + b) = exp(a) exp(b)"


def exponents(expression: Expression, writer: Writer) -> SSAValue:
    """What elements of the far factor add to exponents, as an array."""
    return writer.array(expression, "exponent")


def reference(exponent: SSAValue, over: Iterable[str], writer: Writer) -> SSAValue:
    """The largest of some exponents along the axes that they have."""
    along = [axis for axis in over if axis in axes_of(exponent.type)]
    axes = {axis: size for axis, size in sizes_of(exponent.type).items() if axis not in along}
    return writer.add(ReduceOp("max", exponent, along, array_type(f32, axes)), "reference")


def below(exponent: Expression, reference: SSAValue, some: bool = False) -> Expression:
    """A power told from a reference: at most 1. Where the reference is the largest of `some` exponents only, so that
    others are above it, those count for nothing, and their powers are 1."""
    largest = Leaf(reference)
    told = difference(exponent, select(is_neutral(reference, largest), number(0), largest))
    return power_of(math.ExpOp, Node(arith.MinimumfOp, (told, number(0)), f32) if some else told)


def at(row: Expression, reference: SSAValue) -> Expression:
    """The largest power of a row."""
    return power_of(math.ExpOp, total(row, Leaf(reference)))


__all__ = ["LAW", "at", "below", "exponents", "reference"]
