"""What values become where conditions fail: the constant that an excluded element leaves behind.

`value_where(array, failing)` follows an array to the selects whose condition fails and back: a score becomes -inf, its
exponential 0, and 0 times anything stays 0. Over the real numbers: inputs and finished states are finite numbers, as
the laws of streams have it (`_cascades`: a finite number stands for a state that is neutral)."""

from __future__ import annotations

import math as numbers
from collections.abc import Collection

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram.ops import CastOp, ContractOp, FillOp, MapOp, ReduceOp
from treadle.passes._reductions import neutral_of

INFINITY = numbers.inf


def leaves_neutral(reduction: ContractOp | ReduceOp, failing: Collection[arith.SelectOp]) -> bool:
    """Whether elements for which these selects' conditions fail change nothing in a reduction."""
    if isinstance(reduction, ContractOp):
        return any(value_where(operand, failing) == 0 for operand in (reduction.lhs, reduction.rhs))
    return value_where(reduction.operand, failing) == float(neutral_of(reduction.result).value.data)


def value_where(array: SSAValue, failing: Collection[arith.SelectOp]) -> float | None:
    """The constant that every element of an array is where the conditions of these selects fail; None if it is no
    constant."""
    return _Evaluation(failing).array(array)


class _Evaluation:
    def __init__(self, failing: Collection[arith.SelectOp]):
        self.failing = failing
        self.known: dict[SSAValue, float | None] = {}

    def array(self, value: SSAValue) -> float | None:
        if value not in self.known:
            self.known[value] = self._array(value)
        return self.known[value]

    def _array(self, value: SSAValue) -> float | None:
        match value.owner:
            case FillOp() as fill:
                return float(fill.number)
            case CastOp(operand=operand):
                return self.array(operand)
            case MapOp() as map:
                return self.scalar(map.yielded)
            case ContractOp(init=None) as product if 0 in (self.array(product.lhs), self.array(product.rhs)):
                return 0.0
            case _:
                return None

    def scalar(self, value: SSAValue) -> float | None:
        if isinstance(value, BlockArgument):
            map = value.block.parent_op()
            return self.array(map.inputs[value.index]) if isinstance(map, MapOp) else None
        if value not in self.known:
            owner = value.owner
            assert isinstance(owner, Operation)
            self.known[value] = self._scalar(owner)
        return self.known[value]

    def _scalar(self, op: Operation) -> float | None:
        match op:
            case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as number):
                return float(number.value.data)
            case arith.SelectOp():
                return self._select(op)
            case arith.ExtFOp() | arith.TruncFOp():
                return self.scalar(op.operands[0])
            case arith.NegfOp():
                operand = self.scalar(op.operands[0])
                return None if operand is None else -operand
            case math.ExpOp() | math.Exp2Op():
                return self._power(op)
            case arith.AddfOp() | arith.SubfOp():
                return self._sum(op)
            case arith.MulfOp():
                return self._product(*(self.scalar(operand) for operand in op.operands))
            case arith.DivfOp():
                return self._quotient(*(self.scalar(operand) for operand in op.operands))
            case _:
                return None

    def _select(self, op: arith.SelectOp) -> float | None:
        if op in self.failing:
            return self.scalar(op.rhs)
        left, right = self.scalar(op.lhs), self.scalar(op.rhs)
        return left if left == right else None

    def _power(self, op: Operation) -> float | None:
        exponent = self.scalar(op.operands[0])
        if exponent is None or exponent > 100:
            return None
        return numbers.exp(exponent) if isinstance(op, math.ExpOp) else 2.0**exponent

    def _sum(self, op: Operation) -> float | None:
        """An infinite summand decides, beside a finite one."""
        left, right = (self.scalar(operand) for operand in op.operands)
        if isinstance(op, arith.SubfOp) and right is not None:
            right = -right
        infinite = [value for value in (left, right) if value is not None and numbers.isinf(value)]
        if infinite:
            return infinite[0] if len(set(infinite)) == 1 else None
        return None if left is None or right is None else left + right

    def _product(self, left: float | None, right: float | None) -> float | None:
        if 0 in (left, right):
            return None if any(value is not None and numbers.isinf(value) for value in (left, right)) else 0.0
        return None if left is None or right is None else left * right

    def _quotient(self, upper: float | None, lower: float | None) -> float | None:
        if upper == 0 and lower != 0:
            return 0.0
        if upper is None or lower is None or lower == 0 or numbers.isinf(lower):
            return None
        return upper / lower
