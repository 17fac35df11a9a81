"""Contractions that walk an axis in pieces, as the schedule of an explicit kernel says."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dialects import diagram
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.interpreter.arrays import AnyArray, Array, Numbers, contract


def contract_in_pieces(op: diagram.ContractOp, left: Array, right: Array, axes: Sequence[str]) -> AnyArray:
    """The contraction with axes `axes`: at once, or the sum over the pieces of a subloop."""
    kernel = _explicit_kernel(op)
    walked = {} if kernel is None or kernel.schedule is None else kernel.schedule.subloop.as_dict()
    axis = next((axis for axis in op.over_axes if axis in walked), None)
    if axis is None:
        return contract(left, right, op.over_axes, axes)
    size, whole = walked[axis], {**left.sizes, **right.sizes}[axis]
    total = contract(_piece(left, axis, 0, size), _piece(right, axis, 0, size), op.over_axes, axes)
    for start in range(size, whole, size):
        one, other = _piece(left, axis, start, size), _piece(right, axis, start, size)
        total = total + contract(one, other, op.over_axes, axes)
    return total


def _explicit_kernel(op: diagram.ContractOp) -> KernelOp | None:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, KernelOp):
        parent = parent.parent_op()
    return parent if parent is not None and parent.is_expanded else None


def _piece(array: Array, axis: str, start: int, size: int) -> Array:
    place = tuple(slice(start, start + size) if each == axis else slice(None) for each in array.axes)
    return Array(array.axes, Numbers(array.numbers.value[place]))
