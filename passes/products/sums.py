"""Sums of multiples: what is made of an array element by element, by casts, conditions and maps that multiply, and what
adds that up, perhaps times another factor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes.expressions.inner import is_saturating
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    expression_of,
    is_plain,
    leaves,
    number,
    quotient,
)
from treadle.passes.products.weights import Weights

FORMATS = ("f16", "bf16", "f32")
"""Of what is multiplied: numbers of 8 bits lose too much of a sum, and integers none of it."""

Outer: TypeAlias = ContractOp | ReduceOp


@dataclass(frozen=True)
class Sum:
    """What is made of something element by element, and a sum of that, perhaps times another factor."""

    between: tuple[Operation, ...]
    """Casts, maps that multiply, and conditions."""
    factors: tuple[Expression, ...]
    """By which maps multiply it."""
    outer: Outer

    @property
    @abstractmethod
    def start(self) -> Operation:
        """The operation whose multiples are summed."""

    @property
    @abstractmethod
    def row_axes(self) -> set[str]:
        """The axes along which the sum may be of something else."""

    @property
    @abstractmethod
    def weights(self) -> Weights:
        """What is summed, but for what it is made of and the other factor."""

    @property
    @abstractmethod
    def summed(self) -> list[SSAValue]:
        """The factors that have the axes of the outer sum."""

    @property
    def over(self) -> tuple[str, ...]:
        """The axes along which the outer sum goes."""
        return self.outer.over_axes

    @property
    def carried(self) -> SSAValue:
        """What the outer sum is given."""
        return (self.between[-1] if self.between else self.start).results[0]

    @property
    def other(self) -> SSAValue | None:
        """What the outer sum multiplies it by; None where it only adds up."""
        if isinstance(self.outer, ReduceOp):
            return None
        return self.outer.rhs if self.outer.lhs is self.carried else self.outer.lhs

    @property
    def conditions(self) -> list[WhereOp]:
        return [op for op in self.between if isinstance(op, WhereOp)]


Multiple: TypeAlias = tuple[tuple[Operation, ...], tuple[Expression, ...], Outer]
"""What stands between, by what it multiplies, and the sum."""


def multiples(start: SSAValue) -> list[Multiple] | None:
    """The sums of multiples of an array, in program order; None where something else is made of it, too."""
    found: list[Multiple] = []
    stack: list[tuple[SSAValue, tuple[Operation, ...], tuple[Expression, ...]]] = [(start, (), ())]
    while stack:
        value, between, factors = stack.pop()
        users = list(dict.fromkeys(use.operation for use in value.uses))
        if not users:
            return None
        for op in users:
            if _is_sum(op, value):
                assert isinstance(op, ContractOp | ReduceOp)
                found.append((between, factors, op))
            elif (more := _multiplied(op, value)) is not None:
                stack.append((op.results[0], (*between, op), (*factors, *more)))
            else:
                return None
    return sorted(found, key=lambda each: _place(each[2]))


def _place(op: Operation) -> int:
    block = op.parent_block()
    assert block is not None
    return block.get_operation_index(op)


def _is_sum(op: Operation, value: SSAValue) -> bool:
    """Whether an operation sums a value, along axes that it has, perhaps times another one."""
    if not isinstance(op, ContractOp | ReduceOp) or op.init is not None:
        return False
    if isinstance(op, ReduceOp):
        return op.kind.data == "add"
    return (op.lhs is value) != (op.rhs is value) and {*op.over_axes} <= {*axes_of(value.type)}


def _multiplied(op: Operation, value: SSAValue) -> Sequence[Expression] | None:
    """What an operation multiplies a value by, element by element; None if it does something else."""
    if isinstance(op, CastOp):
        return () if op.fixed is None and str(format_of(op.result.type)) in FORMATS else None
    if isinstance(op, WhereOp):
        return () if op.operand is value and value not in op.inputs else None
    if not isinstance(op, MapOp) or not is_plain(op):
        return None
    above, below = _factors(expression_of(op))
    if [each for each in above if each == Leaf(value)] != [Leaf(value)] or value in _read(below):
        return None
    above.remove(Leaf(value))
    if value in _read(above):
        return None
    return [*above, *(quotient(number(1), divisor) for divisor in below)]


def _read(factors: Sequence[Expression]) -> set[SSAValue]:
    return {leaf.value for factor in factors for leaf in leaves(factor)}


def _factors(expression: Expression) -> tuple[list[Expression], list[Expression]]:
    """Multiply and divide taken apart, casts aside: `a * b / c` is ([a, b], [c])."""
    if not isinstance(expression, Node):
        return [expression], []
    if expression.kind in CASTS and not is_saturating(expression):
        return _factors(expression.operands[0])
    if expression.kind not in (arith.MulfOp, arith.DivfOp):
        return [expression], []
    (above, below), (more, less) = (_factors(operand) for operand in expression.operands)
    if expression.kind is arith.MulfOp:
        return [*above, *more], [*below, *less]
    return [*above, *less], [*below, *more]


__all__ = ["FORMATS", "Multiple", "Outer", "Sum", "multiples"]
