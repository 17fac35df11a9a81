"""The work of an operation, by the unit of an SM that does it, and the registers and tiles it needs.

Units: `tensor f16` ... (FLOP of products), `float` (f32 results), `special` (exp2 and its kind), `shared`
(bytes read from or written to shared memory)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from xdsl.dialects import arith
from xdsl.ir import Attribute, Operation

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, format_of

SLOW_FUNCTIONS = {"math.sin": 20, "math.cos": 20, "math.tan": 30, "math.erf": 20, "math.powf": 12}
"""f32 operations that a function takes which no special-function unit computes to full accuracy."""


def width_of(type: Attribute) -> int:
    """Bytes of a value."""
    return format_of(type).size


def axes_touched(op: Operation) -> tuple[str, ...]:
    """Every axis of an operation's arrays, reduced ones included."""
    values = (*op.operands, *op.results)
    return tuple(dict.fromkeys(axis for value in values for axis in axes_of(value.type)))


def multiply_format(op: ContractOp) -> str:
    """The format that a product multiplies in; `f32` is for the CUDA cores."""
    return "tf32" if op.is_tf32 else str(format_of(op.lhs.type))


def is_tensor_product(op: ContractOp) -> bool:
    return multiply_format(op) in ("f16", "bf16", "tf32")


def scalar_work(op: MapOp) -> dict[str, int]:
    """Results of each unit for one element of a map."""
    work = {"float": 0, "special": 0}
    for scalar in op.body.block.ops:
        if isinstance(scalar, arith.ConstantOp) or scalar.name == "diagram.yield":
            continue
        if scalar.name == "arith.divf":
            # A reciprocal and its refinement.
            work["special"] += 1
            work["float"] += 4
        elif scalar.name.startswith("math.") and scalar.name not in ("math.fma", "math.absf"):
            work["special"] += scalar.name not in SLOW_FUNCTIONS
            work["float"] += SLOW_FUNCTIONS.get(scalar.name, 1)
        else:
            work["float"] += 1
    return {unit: amount for unit, amount in work.items() if amount}


def unit_work(op: Operation) -> dict[str, int]:
    """Work of one element of the space of `axes_touched`."""
    if isinstance(op, ContractOp):
        if is_tensor_product(op):
            return {f"tensor {multiply_format(op)}": 2}
        return {"float": 1}
    if isinstance(op, MapOp):
        return scalar_work(op)
    if isinstance(op, ReduceOp | CastOp):
        return {"float": 1}
    return {}


def shared_reads(axes: Iterable[str], width: int, tiles: Mapping[str, int], warps: Mapping[str, int]) -> int:
    """Bytes that the warps read of a shared operand: those that lie along an axis which it lacks all read
    the same part."""
    axes = tuple(axes)
    copies = prod(count for axis, count in warps.items() if axis not in axes)
    return width * copies * prod(tiles[axis] for axis in axes)
