"""Numbers that only exponents are made of: an absolute error of theirs is a relative one of powers."""

from __future__ import annotations

import math as numbers

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue, Use

from treadle.dialects.diagram import MapOp, ReduceOp, WhereOp, YieldOp
from treadle.dialects.diagram.approximations import constant_of
from treadle.dialects.diagram.array import format_of

Known = dict[SSAValue, float]
"""What was found of values already."""

_PASSED_ON = (arith.AddfOp, arith.SubfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp)
"""What an error of one operand passes as it is."""


def gain_in_exponents(value: SSAValue, known: Known | None = None) -> float:
    """By how much, at most, exponents of e are off in all if `value` is off by 1: a number of f32 in the body of a map,
    or an array. Infinite where something else is made of it, too, or where that cannot be told.

    An error passes sums and extrema as it is, products with constants enlarged; beside the logarithm of a sum of powers
    it is as large as that of the powers makes the logarithm's."""
    known = {} if known is None else known
    if format_of(value.type) != f32:
        return numbers.inf
    if value not in known:
        known[value] = numbers.inf  # where it leads to itself
        known[value] = sum(_gain_of_use(use, known) for use in value.uses)
    return known[value]


def _gain_of_use(use: Use, known: Known) -> float:
    op, index = use.operation, use.index
    match op:
        case math.ExpOp() | math.Exp2Op():
            return 1.0
        case arith.AddfOp() if _is_log_of_powers(op.operands[1 - index]):
            return 1.0
        case arith.MulfOp() if (factor := constant_of(op.operands[1 - index])) is not None:
            return _scaled(abs(factor), gain_in_exponents(op.result, known))
        case arith.DivfOp() if index == 0 and (divisor := constant_of(op.rhs)):
            return _scaled(1 / abs(divisor), gain_in_exponents(op.result, known))
        case arith.SelectOp() if index > 0:
            return gain_in_exponents(op.result, known)
        case YieldOp() if isinstance(map := op.parent_op(), MapOp):
            return gain_in_exponents(map.result, known)
        case MapOp():
            return gain_in_exponents(op.body.block.args[index], known)
        case ReduceOp() if op.kind.data in ("max", "min"):
            return gain_in_exponents(op.result, known)
        case WhereOp(operand=operand) if operand is op.operands[index] and op.operands.index(operand) == index:
            return gain_in_exponents(op.result, known)
        case _ if isinstance(op, _PASSED_ON):
            return gain_in_exponents(op.results[0], known)
        case _:
            return numbers.inf


def _scaled(factor: float, gain: float) -> float:
    return factor * gain if factor and numbers.isfinite(factor) else numbers.inf


def _is_log_of_powers(value: SSAValue) -> bool:
    """Whether a number in the body of a map is the logarithm of a sum of powers."""
    if not isinstance(value.owner, math.LogOp):
        return False
    summed = _given(value.owner.operand)
    if summed is None or not isinstance(summed.owner, ReduceOp) or summed.owner.kind.data != "add":
        return False
    made = summed.owner.operand.owner
    made = made.operand.owner if isinstance(made, WhereOp) else made
    return isinstance(made, MapOp) and isinstance(made.yielded.owner, math.ExpOp)


def _given(argument: SSAValue) -> SSAValue | None:
    """The array whose elements an argument of a body stands for."""
    block = argument.owner
    if isinstance(block, Operation) or not isinstance(map := block.parent_op(), MapOp):
        return None
    return next((given for given, each in zip(map.inputs, block.args, strict=True) if each is argument), None)
