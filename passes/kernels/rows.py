"""Along which axis of its groups a kernel has the rows of its products."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects import func
from xdsl.ir import Operation

from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of

FILLED = 64
"""Rows of a product that a warpgroup makes, or four warps, at least."""


def row_axis(products: Sequence[ContractOp], group_axes: Sequence[str], singly: Sequence[str] = ()) -> str | None:
    """An axis of the groups that is in the result of every product and in one operand of each, if there is one.

    Columns that no group cuts are of the other operand, but for axes of which steps take one index (`singly`); else a
    product would have both along one of them. Rows are by preference an axis of a left operand, and of those a long
    one."""
    rows = [axis for axis in group_axes if products and all(is_free(axis, op) for op in products)]
    rows = [axis for axis in rows if all(_faces_columns(axis, (*group_axes, *singly), op) for op in products)] or rows
    left = [axis for axis in rows if axis in axes_of(products[0].lhs.type)]
    return _filled(left or rows, products)


def is_free(axis: str, op: ContractOp) -> bool:
    """Whether one operand of a product has an axis, and its result."""
    left, right = axis in axes_of(op.lhs.type), axis in axes_of(op.rhs.type)
    return axis in axes_of(op.result.type) and left != right


def is_batch(axis: str | None, op: ContractOp) -> bool:
    """Whether both operands of a product have an axis."""
    return axis in axes_of(op.lhs.type) and axis in axes_of(op.rhs.type)


def is_column(axis: str, row: str, op: ContractOp) -> bool:
    """Whether the operand of a product that lacks its rows has an axis, and its result."""
    rows = axes_of(op.lhs.type) if row in axes_of(op.lhs.type) else axes_of(op.rhs.type)
    return is_free(axis, op) and axis not in rows


def rows_and_columns(products: Sequence[ContractOp], group_axes: Sequence[str]) -> frozenset[str]:
    """The axes of the groups along which products have rows or columns; of others a group has one index each."""
    row = row_axis(products, group_axes)
    if row is None:
        return frozenset()
    return frozenset({row, *(axis for axis in group_axes if axis != row and _has_columns_along(axis, row, products))})


def _has_columns_along(axis: str, row: str, products: Sequence[ContractOp]) -> bool:
    return any(is_column(axis, row, op) for op in products) and not any(is_batch(axis, op) for op in products)


def _filled(axes: Sequence[str], products: Sequence[ContractOp]) -> str | None:
    """The axis nearest to the contiguous end, unless its size says that it fills no tile, and that of another one that
    it does: a tile is as high for a few heads that share keys as for many queries. What only the launch tells may be
    long, whatever size is stated. Of axes that are all short, the longest."""
    if len(axes) < 2:
        return next(iter(axes), None)
    nearest = axes[-1]
    sizes = {axis: size for op in products for axis, size in sizes_of(op.result.type).items()}
    if sizes[nearest] == DYNAMIC or sizes[nearest] >= FILLED:
        return nearest
    told = {axis for axis in axes if sizes[axis] != DYNAMIC}
    if len(told) < len(axes):
        stated = _stated_sizes(products[0])
        sizes |= {axis: stated.get(axis, UNKNOWN_SIZE) for axis in axes if axis not in told}
    long = [axis for axis in axes if sizes[axis] >= FILLED]
    if long or len(told) < len(axes):
        return long[-1] if long else nearest
    return max(reversed(axes), key=lambda axis: sizes[axis])


def fills_tile(axes: Sequence[str], products: Sequence[ContractOp]) -> bool:
    """Whether one of these axes has as many elements as a tile of a product has rows. What nothing states is long."""
    sizes = {axis: size for op in products for axis, size in sizes_of(op.result.type).items()}
    if any(sizes.get(axis) == DYNAMIC for axis in axes):
        stated = _stated_sizes(products[0])
        sizes |= {axis: stated.get(axis, UNKNOWN_SIZE) for axis in axes if sizes.get(axis) == DYNAMIC}
    return any(sizes.get(axis, 1) >= FILLED for axis in axes)


def _stated_sizes(op: Operation | None) -> Mapping[str, int]:
    """What the function around an operation says of lengths that the launch tells."""
    while op is not None and not isinstance(op, func.FuncOp):
        op = op.parent_op()
    return {} if op is None else default_sizes(op)


def _faces_columns(axis: str, group_axes: Collection[str], op: ContractOp) -> bool:
    """Whether the operand of a product that has this axis has no free one that no group cuts."""
    own = axes_of(op.lhs.type) if axis in axes_of(op.lhs.type) else axes_of(op.rhs.type)
    sizes = sizes_of(op.result.type)
    return not any(
        sizes[other] != 1 and other not in group_axes for other in own if other in sizes and is_free(other, op)
    )


__all__ = ["fills_tile", "is_batch", "is_column", "is_free", "row_axis", "rows_and_columns"]
