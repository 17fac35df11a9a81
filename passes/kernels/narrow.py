"""Products that one kernel could make, but only a few columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.passes._functions import label
from treadle.passes._parts import Part
from treadle.passes.kernels.roles import Roles
from treadle.passes.kernels.singly import may_step_over_matrices

FEW_COLUMNS = 32
"""Of fewer columns, reading the rows again for each index of another axis takes longer than saving the product."""


def narrow_product(part: Part, roles: Roles) -> str | None:
    """Why a product would have few columns, or None if none has: columns lie along an axis that groups do not cut, so
    that groups take one index at a time of the axis which they would lie along otherwise. Not along one of which steps
    may take one index."""
    singly = roles.stream if may_step_over_matrices(part.ops, roles.group, roles.stream) else None
    products = [op for op in part.reducing if isinstance(op, ContractOp)]
    for op in products:
        sizes = sizes_of(op.result.type)
        few = [axis for axis, size in sizes.items() if axis not in (*roles.group, singly) and _are_few(size)]
        others = [product for product in products if product is not op]
        left = _free(op, op.lhs, op.rhs, roles, others)
        right = _free(op, op.rhs, op.lhs, roles, others)
        if few and left and right:
            return (
                f"the product {label(op.result)} would have columns along '{few[0]}' alone, of which there are "
                f"{sizes[few[0]]}: groups may not cut it, and would take '{left[-1]}' or '{right[-1]}' index by index"
            )
    return None


def _are_few(size: int) -> bool:
    return size != DYNAMIC and 1 < size < FEW_COLUMNS


def _free(op: ContractOp, operand: SSAValue, other: SSAValue, roles: Roles, others: Sequence[ContractOp]) -> list[str]:
    """The axes of the groups that a product has in this operand alone; what is in both operands of one of the `others`
    is an axis of which groups take one index anyway."""
    batches = {axis for each in others for axis in axes_of(each.lhs.type) if axis in axes_of(each.rhs.type)}
    own = [axis for axis in axes_of(operand.type) if axis not in axes_of(other.type)]
    return [axis for axis in own if axis in roles.group and axis in axes_of(op.result.type) and axis not in batches]
