"""What upstream's named operations compute of one element from each operand.

As the operation definitions of MLIR say it: elementwise ones compute in the type of their operands; those that sum
products first convert both factors to the type of the result, signed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, linalg, math
from xdsl.dialects.builtin import AnyFloat, ContainerType, FloatAttr, IntegerType
from xdsl.ir import Attribute, Block, Region, SSAValue

Elements = Sequence[SSAValue]
Function = Callable[[Elements], SSAValue]


def is_float(value: SSAValue) -> bool:
    return isinstance(value.type, AnyFloat)


def _one(value: SSAValue) -> SSAValue:
    return arith.ConstantOp(FloatAttr(1.0, value.type)).result  # pyright: ignore[reportArgumentType, reportCallIssue]


UNARY: dict[str, Function] = {
    "abs": lambda a: (math.AbsFOp if is_float(a[0]) else math.AbsIOp)(a[0]).result,
    "ceil": lambda a: math.CeilOp(a[0]).result,
    "erf": lambda a: math.ErfOp(a[0]).result,
    "exp": lambda a: math.ExpOp(a[0]).result,
    "floor": lambda a: math.FloorOp(a[0]).result,
    "log": lambda a: math.LogOp(a[0]).result,
    "negf": lambda a: arith.NegfOp(a[0]).result,
    "reciprocal": lambda a: arith.DivfOp(_one(a[0]), a[0]).result,
    "round": lambda a: math.RoundOp(a[0]).result,
    "rsqrt": lambda a: math.RsqrtOp(a[0]).result,
    "sqrt": lambda a: math.SqrtOp(a[0]).result,
    "square": lambda a: (arith.MulfOp if is_float(a[0]) else arith.MuliOp)(a[0], a[0]).result,
    "tanh": lambda a: math.TanhOp(a[0]).result,
}

BINARY: dict[str, Function] = {
    "add": lambda a: (arith.AddfOp if is_float(a[0]) else arith.AddiOp)(a[0], a[1]).result,
    "div": lambda a: (arith.DivfOp if is_float(a[0]) else arith.DivSIOp)(a[0], a[1]).result,
    "max_signed": lambda a: (arith.MaximumfOp if is_float(a[0]) else arith.MaxSIOp)(a[0], a[1]).result,
    "min_signed": lambda a: (arith.MinimumfOp if is_float(a[0]) else arith.MinSIOp)(a[0], a[1]).result,
    "mul": lambda a: (arith.MulfOp if is_float(a[0]) else arith.MuliOp)(a[0], a[1]).result,
    "powf": lambda a: math.PowFOp(a[0], a[1]).result,
    "sub": lambda a: (arith.SubfOp if is_float(a[0]) else arith.SubiOp)(a[0], a[1]).result,
}

ELEMENTWISE: dict[str, Function] = {
    **UNARY,
    **BINARY,
    "select": lambda a: arith.SelectOp(a[0], a[1], a[2]).result,
}
"""By the names of `#linalg.elementwise_kind`."""

NAMED_ELEMENTWISE: dict[str, Function] = {**ELEMENTWISE, "max": BINARY["max_signed"], "min": BINARY["min_signed"]}
"""By the names of operations."""


def sum_of_products(elements: Elements) -> SSAValue:
    left, right, so_far = elements
    factors = converted(left, so_far.type), converted(right, so_far.type)
    product = (arith.MulfOp if is_float(so_far) else arith.MuliOp)(*factors).result
    return (arith.AddfOp if is_float(so_far) else arith.AddiOp)(so_far, product).result


def converted(value: SSAValue, wanted: Attribute) -> SSAValue:
    """The number in another type, as upstream's `cast_signed` makes it."""
    given = value.type
    if given == wanted:
        return value
    if isinstance(given, AnyFloat) and isinstance(wanted, AnyFloat):
        return (arith.ExtFOp if given.bitwidth < wanted.bitwidth else arith.TruncFOp)(value, wanted).result
    if _is_integer(given) and _is_integer(wanted):
        return (arith.ExtSIOp if given.bitwidth < wanted.bitwidth else arith.TruncIOp)(value, wanted).result
    if _is_integer(given) and isinstance(wanted, AnyFloat):
        return arith.SIToFPOp(value, wanted).result
    if isinstance(given, AnyFloat) and _is_integer(wanted):
        return arith.FPToSIOp(value, wanted).result
    raise ValueError(f"a number of type {given} has no counterpart of type {wanted}")


def _is_integer(type: Attribute) -> TypeGuard[IntegerType]:
    return isinstance(type, IntegerType)


def body_of(operands: Sequence[SSAValue], function: Function) -> Region:
    """A region whose arguments are elements of the operands, named as upstream's printer names them."""
    block = Block(arg_types=[element_type(operand.type) for operand in operands])
    for i, argument in enumerate(block.args):
        argument.name_hint = "out" if i == len(operands) - 1 else "in"
    with ImplicitBuilder(block) as elements:
        linalg.ops.YieldOp(function(elements))
    return Region(block)


def element_type(type: Attribute) -> Attribute:
    return cast("ContainerType[Attribute]", type).get_element_type() if isinstance(type, ContainerType) else type
