"""Flags of `fastmath` by which passes say that a shorter form is as exact as it has to be."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, f32
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Operation, SSAValue

EXACT = arith.FastMathFlagsAttr("none")
BY_RECIPROCAL = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_RECIP])
APPROXIMATE = arith.FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def is_by_reciprocal(op: Operation) -> bool:
    """Whether a quotient may be a product with a reciprocal: its divisor is a normal number, zero, or infinite."""
    return isinstance(op, arith.DivfOp) and op.fastmath == BY_RECIPROCAL


def is_approximate(op: Operation) -> bool:
    """Whether of a `tanh` an absolute error of 2^-21 is allowed."""
    return isinstance(op, math.TanhOp) and op.fastmath == APPROXIMATE


def softplus_of(op: Operation) -> SSAValue | None:
    """The `x` of what is `log(1 + exp(x))`, written with `log1p` or `log`, in f32; None of all else."""
    if not isinstance(op, math.Log1pOp | math.LogOp) or op.result.type != f32:
        return None
    power = op.operand
    if isinstance(op, math.LogOp):
        one_plus = power.owner
        if not isinstance(one_plus, arith.AddfOp) or not is_one_plus(one_plus):
            return None
        power = one_plus.lhs if constant_of(one_plus.rhs) == 1 else one_plus.rhs
    return power.owner.operand if isinstance(power.owner, math.ExpOp) else None


def is_by_polynomial(op: Operation) -> bool:
    """Whether of `log(1 + exp(x))` an error of 2^-22 of itself is allowed."""
    return isinstance(op, math.Log1pOp | math.LogOp) and op.fastmath == APPROXIMATE and softplus_of(op) is not None


def is_one_plus(op: Operation) -> bool:
    """Whether an operation adds 1 to a number that it reads once."""
    return isinstance(op, arith.AddfOp) and sorted(constant_of(each) == 1 for each in op.operands) == [False, True]


def constant_of(value: SSAValue) -> float | None:
    """The number that a value of a body is, if that is a float."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, FloatAttr):
        return None
    attribute: FloatAttr[AnyFloat] = owner.value
    return attribute.value.data
