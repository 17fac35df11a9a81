"""How many elements an axis has that stands for others, computed at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.diagram.collapse import Regrouping


def emit_size(op: Regrouping, sizes: dict[str, SSAValue], emit: Callable[[Operation], object]) -> None:
    """Add to `sizes`, of symbolic axes, the one that an operation tells: of the one axis, or of the only part of it
    that no array had before (Refusal where two have none)."""
    apart, together = sizes_of(op.apart.type), sizes_of(op.together.type)
    lacking = [axis for axis in op.unknown if axis not in sizes]
    if len(lacking) > 1 or (lacking and op.whole not in sizes):
        raise Refusal(op, f"nothing tells the sizes of {', '.join(map(repr, lacking))} at launch: make them static")
    factors = [axis for axis in op.unknown if axis not in lacking]
    length = prod(apart[axis] for axis in op.parts if apart[axis] != DYNAMIC)
    if lacking:
        sizes[lacking[0]] = _divided(sizes[op.whole], [sizes[axis] for axis in factors], length, emit)
        sizes[lacking[0]].name_hint = lacking[0]
    elif together[op.whole] == DYNAMIC and op.whole not in sizes:
        sizes[op.whole] = _product([sizes[axis] for axis in factors], length, emit)
        sizes[op.whole].name_hint = op.whole


def _product(factors: Sequence[SSAValue], length: int, emit: Callable[[Operation], object]) -> SSAValue:
    first, *others = factors
    for each in (*others, *([_constant(length, emit)] if length != 1 else [])):
        multiply = arith.MuliOp(first, each)
        emit(multiply)
        first = multiply.result
    return first


def _divided(
    whole: SSAValue, factors: Sequence[SSAValue], length: int, emit: Callable[[Operation], object]
) -> SSAValue:
    """None of an axis is none, whatever it is divided by."""
    for each in (*factors, *([_constant(length, emit)] if length != 1 else [])):
        least = arith.MaxSIOp(each, _constant(1, emit))
        divide = arith.DivUIOp(whole, least.result)
        emit(least)
        emit(divide)
        whole = divide.result
    return whole


def _constant(number: int, emit: Callable[[Operation], object]) -> SSAValue:
    constant = arith.ConstantOp.from_int_and_width(number, IndexType())
    emit(constant)
    return constant.result
