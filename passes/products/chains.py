"""Products of products: `sum_x (sum_d A B) C`, between which stands nothing that is not linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.condition import Read, axis_in, terms_of
from treadle.dialects.diagram.operation import quote
from treadle.passes._functions import label
from treadle.passes.expressions.inner import is_saturating
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    axes_in,
    expression_of,
    is_plain,
    leaves,
    number,
    quotient,
)
from treadle.passes.products.weights import Weights, weights_of

FORMATS = ("f16", "bf16", "f32")
"""Of what is multiplied: numbers of 8 bits lose too much of a sum, and integers none of it."""

Outer: TypeAlias = ContractOp | ReduceOp


@dataclass(frozen=True)
class Chain:
    """A product, what is made of it element by element, and a sum of that, perhaps times another factor."""

    inner: ContractOp
    between: tuple[Operation, ...]
    """Casts, maps that multiply, and conditions."""
    factors: tuple[Expression, ...]
    """By which maps multiply it."""
    outer: Outer

    @property
    def over(self) -> tuple[str, ...]:
        """The axes along which the outer sum goes."""
        return self.outer.over_axes

    @property
    def far(self) -> SSAValue:
        """The factor of the inner product that the outer sum sums."""
        return self._is_far[0]

    @property
    def near(self) -> SSAValue:
        """Its other factor, which is the same throughout the outer sum."""
        return self._is_far[1]

    @property
    def _is_far(self) -> tuple[SSAValue, SSAValue]:
        left, right = self.inner.lhs, self.inner.rhs
        return (left, right) if {*self.over} & {*axes_of(left.type)} else (right, left)

    @property
    def carried(self) -> SSAValue:
        """What the outer sum is given of the inner product."""
        return (self.between[-1] if self.between else self.inner).results[0]

    @property
    def other(self) -> SSAValue | None:
        """What the outer sum multiplies it by; None where it only adds up."""
        if isinstance(self.outer, ReduceOp):
            return None
        return self.outer.rhs if self.outer.lhs is self.carried else self.outer.lhs

    @property
    def summed(self) -> list[SSAValue]:
        """The factors that have the axes of the outer sum."""
        return [self.far, *([] if self.other is None else [self.other])]

    @property
    def conditions(self) -> list[WhereOp]:
        return [op for op in self.between if isinstance(op, WhereOp)]

    @cached_property
    def rows(self) -> set[str]:
        """The axes along which the outer sum is of something else: those that a condition names, or without any all
        that the far factor lacks."""
        lacking = {*axes_of(self.near.type)} - {*axes_of(self.far.type)}
        named = {axis_in(term) for op in self.conditions for term in terms_of(op.holds) if not isinstance(term, Read)}
        return lacking & named if self.conditions else lacking

    @cached_property
    def weights(self) -> Weights:
        """What the outer sum sums, but for the inner product and the other factor."""
        return weights_of(self.factors, self.over, self.rows)

    def why_not(self) -> str | None:
        """Why its factors cannot be multiplied in another order; None if they can."""
        inner, over, other = {*self.inner.over_axes}, {*self.over}, self.other
        far, near = {*axes_of(self.far.type)}, {*axes_of(self.near.type)}
        others = set[str]() if other is None else {*axes_of(other.type)}
        if not over <= far or over & near:
            return f"{quote(self.over)} is not in one factor of {label(self.inner.result)} alone"
        if not inner <= far & near:
            return f"{quote(self.inner.over_axes)} is not in both factors of {label(self.inner.result)}"
        if inner & others:
            return f"'{min(inner & others)}' is another axis in {label(other or self.far)}: give it a name of its own"
        if (others - over) & self.rows:
            return f"every row of {label(self.near)} is multiplied by numbers of its own"
        if (mixed := self.weights.mixed) is not None:
            others = quote(sorted({*axes_in(mixed)} & self.rows))
            return f"a factor of {label(self.carried)} varies along {others} as well as {quote(self.over)}"
        arrays = [self.near, *self.summed]
        arrays += [leaf.value for factor in self.factors for leaf in leaves(factor)]
        if absences_of(arrays):
            return "elements of a factor may be absent"
        return next((reason for reason in map(_why_no_format, arrays) if reason), self._why_no_sum())

    def _why_no_sum(self) -> str | None:
        """Why one of the sums is not made in f32."""
        for op in (self.inner, self.outer):
            kept = op.accumulate if isinstance(op, ContractOp) else format_of(op.result.type)
            if str(kept) != "f32":
                return f"{label(op.result)} is a sum in {kept}"
        return None


def _why_no_format(value: SSAValue) -> str | None:
    format = str(format_of(value.type))
    return None if format in FORMATS else f"{label(value)} has numbers of {format}"


def chains_from(inner: ContractOp) -> list[Chain] | None:
    """The sums of multiples of a product, in program order; None where something else is made of it, too."""
    if inner.init is not None:
        return None
    found: list[Chain] = []
    stack: list[tuple[SSAValue, tuple[Operation, ...], tuple[Expression, ...]]] = [(inner.result, (), ())]
    while stack:
        value, between, factors = stack.pop()
        users = list(dict.fromkeys(use.operation for use in value.uses))
        if not users:
            return None
        for op in users:
            if _is_sum(op, value):
                assert isinstance(op, ContractOp | ReduceOp)
                found.append(Chain(inner, between, factors, op))
            elif (more := _multiplied(op, value)) is not None:
                stack.append((op.results[0], (*between, op), (*factors, *more)))
            else:
                return None
    return sorted(found, key=lambda chain: _place(chain.outer))


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


__all__ = ["Chain", "Outer", "chains_from"]
