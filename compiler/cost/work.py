"""The arithmetic of maps, reductions and casts, as instructions for each element.

A multiplication that only feeds an addition is part of it (FFMA), `exp` is one multiplication, which swallows such an
addition before it, and one `ex2`. What depends only on arrays with fewer axes is computed once for each of their
elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array
from treadle.dialects.diagram.formats import EIGHT_BIT, SIXTEEN_BIT

SLOW_FUNCTIONS = {
    **{"math.sin": 20, "math.cos": 20, "math.tan": 30, "math.erf": 20, "math.powf": 12},
    **{"math.expm1": 28, "math.log1p": 33, "math.log10": 29, "math.cbrt": 14},
    **{"math.asin": 24, "math.acos": 25, "math.atan": 18, "math.atan2": 60},
    **{"math.sinh": 23, "math.cosh": 14, "math.asinh": 44, "math.acosh": 45, "math.atanh": 41},
}
"""f32 operations that a function takes which no special-function unit computes to full accuracy; from `expm1` on as
ptxas 13.0 has them, less the one or two instructions of that unit."""

CHEAP_FUNCTIONS = ("math.fma", "math.absf", "math.copysign")
"""One instruction of the ordinary units."""

EXPONENTIALS = ("math.exp", "math.exp2")

CHOICES = (arith.SelectOp, arith.CmpfOp)

DIVISION = {"special": 1, "float": 4}
"""A reciprocal and its refinement."""


@dataclass(frozen=True)
class Labour:
    """So many instructions of a kind for each element that a lane has of an array with these axes."""

    kind: str
    factor: float
    axes: tuple[str, ...]


def width_of(type: Attribute) -> int:
    """Bytes of a value."""
    return format_of(type).size


def axes_touched(op: Operation) -> tuple[str, ...]:
    """Every axis of an operation's arrays, reduced ones included."""
    values = (*op.operands, *op.results)
    return tuple(dict.fromkeys(axis for value in values for axis in axes_of(value.type)))


def multiply_format(op: ContractOp) -> str:
    """The format that a product multiplies in; `f32` is for the CUDA cores."""
    format = str(format_of(op.lhs.type))
    return "tf32" if op.is_tf32 else "f8" if format in EIGHT_BIT else format


def is_tensor_product(op: ContractOp) -> bool:
    return multiply_format(op) in ("f8", *SIXTEEN_BIT, "tf32")


def keeps_left_operand(op: ContractOp) -> bool:
    """Whether what is computed becomes a left operand in registers; other operands go through shared memory."""
    return multiply_format(op) in ("f8", *SIXTEEN_BIT)


def labours_of(op: Operation) -> list[Labour]:
    """What an operation other than a product computes."""
    if isinstance(op, MapOp):
        return list(_of_map(op))
    if isinstance(op, ReduceOp):
        return [Labour("float", 1, axes_touched(op))]
    return [rounding_to(op.result.type)] if isinstance(op, CastOp) else []


def rounding_to(type: Attribute) -> Labour:
    """One conversion makes a pair of narrow numbers."""
    pairs = 2 if width_of(type) <= 2 else 1
    return Labour("convert", 1 / pairs, axes_of(type))


def _of_map(op: MapOp) -> Iterator[Labour]:
    axes: dict[SSAValue, tuple[str, ...]] = {
        arg: axes_of(operand.type) if is_array(operand.type) else ()
        for arg, operand in zip(op.body.block.args, op.inputs, strict=True)
    }
    for scalar in op.body.block.ops:
        found = dict.fromkeys(axis for operand in scalar.operands for axis in axes.get(operand, ()))
        for result in scalar.results:
            axes[result] = tuple(found)
        for kind, factor in _instructions(scalar, axes).items():
            if factor and found:
                yield Labour(kind, factor, tuple(found))


def _instructions(scalar: Operation, axes: dict[SSAValue, tuple[str, ...]]) -> dict[str, int]:
    if isinstance(scalar, arith.ConstantOp) or scalar.name == "diagram.yield" or _is_swallowed(scalar, axes):
        return {}
    if scalar.name == "arith.divf":
        return DIVISION
    if isinstance(scalar, CHOICES):
        return {"select": 1}
    if scalar.name in SLOW_FUNCTIONS:
        return {"float": SLOW_FUNCTIONS[scalar.name]}
    if scalar.name.startswith("math.") and scalar.name not in CHEAP_FUNCTIONS:
        return {"special": 1, "float": 0 if scalar.name == "math.exp2" and _argument_counts(scalar) else 1}
    return {"float": 1}


def _argument_counts(exponential: Operation) -> bool:
    """Whether the multiplication before an `ex2` stands there already."""
    return isinstance(exponential.operands[0].owner, Operation)


def _is_swallowed(scalar: Operation, axes: dict[SSAValue, tuple[str, ...]]) -> bool:
    """Whether an operation is part of the only one that uses it, which has the same axes."""
    uses = [use.operation for use in scalar.results[0].uses] if scalar.results else []
    if len(uses) != 1:
        return False
    (user,) = uses
    at = {axis for operand in user.operands for axis in axes.get(operand, ())}
    if at != set(axes[scalar.results[0]]):
        return False
    if scalar.name == "arith.mulf":
        return user.name in ("arith.addf", "arith.subf")
    if scalar.name not in ("arith.addf", "arith.subf"):
        return False
    return user.name == "math.exp" or _shifts_exponent(user)


def _shifts_exponent(op: Operation) -> bool:
    """Whether a constant is added to an exponent: it goes into what all elements subtract."""
    users = [use.operation.name for use in op.results[0].uses] if op.results else []
    is_sum = op.name == "arith.addf" and any(isinstance(each.owner, arith.ConstantOp) for each in op.operands)
    return is_sum and users == ["math.exp"]
