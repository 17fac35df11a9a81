"""Which rows of a sum have elements, where conditions or sizes may leave none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, ExtentOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import (
    sizes_of,
)
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    compare,
    factors,
    is_same,
    leaves,
    number,
    select,
    strip_casts,
)
from treadle.passes.expressions.signs import is_nonnegative


def witness_of(
    divisor: Expression, sum: ContractOp | ReduceOp, rests: Sequence[Expression], operands: Sequence[SSAValue]
) -> Expression | None:
    """What is zero where every element of a row is absent, and tells that nothing is to be divided: the divisor itself,
    or a sum in it that is above zero in each row that has an element."""
    if _is_sum_of_what_counts(divisor, rests):
        return divisor
    return next((leaf for leaf in leaves(divisor) if _tells_of_each_row(leaf.value, sum, operands)), None)


def _tells_of_each_row(value: SSAValue, sum: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> bool:
    """Whether a value sums, over the very elements that `sum` has, powers of distances from their extremum: that of the
    extremum is one."""
    owner = value.owner
    if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.init is not None:
        return False
    distance = distance_of(Leaf(owner.operand))
    if distance is None or not distance.is_reached or distance.may_vanish or distance.peak < SMALLEST_PEAK:
        return False
    over = set(sum.over_axes)
    same_rows = set(owner.over_axes) == over and set(distance.extremum.over_axes) == over
    return same_rows and absences_of([owner.operand]) == absences_of(operands)


SMALLEST_PEAK = 2.0**-6
"""Of powers in a sum that tells whether a row has an element: no format rounds it to zero."""


def _is_sum_of_what_counts(divisor: Expression, rests: Sequence[Expression]) -> bool:
    """Whether a divisor is a sum of what is never negative and is a factor of all that it divides: it is zero only if
    nothing was there to sum, or all of it was zero, where the plain form divides zero by zero. (Of another factor, or
    other elements, something else than zero might be divided by zero.)"""
    if not isinstance(divisor, Leaf) or not isinstance(sum := divisor.value.owner, ReduceOp):
        return False
    if not is_nonnegative(divisor):
        return False
    return any(_is_array(factor, sum.operand) for rest in rests for factor in factors(strip_casts(rest))[0])


def _is_array(expression: Expression, value: SSAValue) -> bool:
    """Whether an expression is what an array holds, but for casts."""
    inner = inner_expression(value)
    return is_same(expression, Leaf(value)) or (inner is not None and is_same(expression, inner))


@dataclass(frozen=True)
class RowGuard:
    """What tells of a row that it has elements, so that what is scaled of one without stays 0."""

    extents: Sequence[ExtentOp]
    there: Expression | None
    witnesses: Sequence[Expression | None]
    """What is zero in rows without elements, for each divisor; None where `there` tells."""

    def safe(self, factor: Expression) -> Expression:
        """A factor; 1 where a row has no element. One choice a row, not one for each element, which becomes a branch
        around all of them with every result in registers twice."""
        for extent in self.extents:
            size = Leaf(extent.result)
            factor = select(compare(size, ">", number(0, size.type)), factor, number(1, factor.type))
        return factor if self.there is None else select(self.there, factor, number(1, factor.type))

    def of_all(self, scaled: Expression, *, everywhere: bool) -> Expression:
        """What is scaled by factors that were not made safe."""
        for witness in self.witnesses:
            if witness is not None:
                scaled = select(compare(witness, "!=", number(0, witness.type)), scaled, number(0, scaled.type))
        for extent in self.extents if everywhere else ():
            size = Leaf(extent.result)
            scaled = select(compare(size, ">", number(0, size.type)), scaled, number(0, scaled.type))
        return scaled


def may_be_empty(axis: str, operands: Sequence[SSAValue]) -> bool:
    """Whether an axis is symbolic or has no element."""
    return any(sizes_of(operand.type).get(axis, 1) < 1 for operand in operands)
