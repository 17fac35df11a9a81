"""Factors of products of whose rows a condition leaves a range, another one at each position of another axis.

`first[i] <= t and t < end[i]` keeps rows `t` of a factor `t, i, k` that is summed over `i` and `k`. Where a stream is
fed one position of `i` at a time, it says between which rows the factor is there, and a copy to shared memory brings
zeros in the place of all others: no element is tested in registers, and what is multiplied is as it was copied. It is
alike of a factor `t, i, n` that is summed over `t`, of which a group has one position of `i`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition
from treadle.dialects.diagram.contract import ContractOp, is_multiplied
from treadle.dialects.diagram.linear import ONE, Linear
from treadle.dialects.diagram.where import WhereOp
from treadle.dialects.hierarchy.pieces import LoadOp


@dataclass
class Bounds:
    """The rows that a condition leaves: from the largest of some beginnings to before the least of some ends."""

    row: str
    along: str
    """The axis that data are along: it is summed, or the rows are."""
    begins: list[Linear] = field(default_factory=list[Linear])
    ends: list[Linear] = field(default_factory=list[Linear])


def bounds_of(op: WhereOp) -> Bounds | None:
    """What a copy can test of a condition on a factor that is loaded; None if elements must be tested."""
    products = [use.operation for use in op.result.uses if isinstance(use.operation, ContractOp) and use.index < 2]
    if not products or len(products) < len(list(op.result.uses)) or not _is_loaded(op.operand):
        return None
    return bounds_along(op, axes_of(op.operand.type), products)


def bounds_along(op: WhereOp, axes: Sequence[str], products: Sequence[ContractOp]) -> Bounds | None:
    """What a copy could test of a condition on a factor of some products that has these axes, were it loaded."""
    over = {axis for product in products for axis in product.over_axes}
    data = {axis for value in op.asked.values() if is_array(value.type) for axis in axes_of(value.type)}
    if len(data) != 1:
        return None
    (along,) = data
    if along in over:  # of which a stream is fed one position at a time
        rows = [axis for axis in axes[:-1] if axis not in over]
        rows = [] if any(len(product.over_axes) < 2 for product in products) else rows
    else:  # of which a group has one position
        rows = [axis for axis in axes[:-1] if all(axis in product.over_axes for product in products)]
    return next((found for row in rows if (found := _bounds(op.holds, row, along)) is not None), None)


def loaded_factor(value: SSAValue) -> SSAValue:
    """What is loaded of a factor: itself, or that of which a copy brings the rows that a condition leaves."""
    op = value.owner
    return op.operand if isinstance(op, WhereOp) and bounds_of(op) is not None else value


def is_factor(value: SSAValue) -> bool:
    """Whether products read a value as a factor, or the rows of it that a copy brings."""
    return is_multiplied(value) or any(_is_bounded(value, use.operation) for use in value.uses)


def users_of_factor(value: SSAValue) -> Sequence[Operation]:
    """What uses a value, and what uses the rows of it that a copy brings in the place of the condition that says so."""
    found: list[Operation] = []
    for use in value.uses:
        op = use.operation
        found += [each.operation for each in op.results[0].uses] if _is_bounded(value, op) else [op]
    return found


def only_bounds(value: SSAValue) -> bool:
    """Whether data say between which rows copies bring factors, and no more."""
    uses = [use.operation for use in value.uses]
    return bool(uses) and all(isinstance(op, WhereOp) and op.operand is not value and bounds_of(op) for op in uses)


def _is_bounded(value: SSAValue, op: Operation) -> bool:
    return isinstance(op, WhereOp) and op.operand is value and bounds_of(op) is not None


def _is_loaded(value: SSAValue) -> bool:
    """Whether a value is an argument of a kernel, or a piece of one, that nothing else uses."""
    return isinstance(value.owner, Block | LoadOp) and len(list(value.uses)) == 1


def _bounds(condition: Condition, row: str, along: str) -> Bounds | None:
    found = Bounds(row, along)
    for part in condition.parts if isinstance(condition, Both) else (condition,):
        if not isinstance(part, AtLeastZero) or abs(part.form.terms.get(row, 0)) != 1:
            return None
        factor = part.form.terms[row]
        other = part.form.plus(Linear({row: 1}), -factor)
        if any(not isinstance(term, SSAValue) for term in other.atoms):
            return None
        if factor > 0:
            found.begins.append(other.times(-1))
        else:
            found.ends.append(other.plus(ONE))
    return found


__all__ = ["Bounds", "bounds_along", "bounds_of", "is_factor", "loaded_factor", "only_bounds", "users_of_factor"]
