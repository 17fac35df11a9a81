"""Products that are added up, which have one accumulator: each begins with the sum of those before it."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.contract import ContractOp
from treadle.dialects.diagram.map import MapOp


def begins_with_product(op: ContractOp) -> bool:
    """Whether a contraction adds to the result of another one, or to what a map makes of it: in the registers of that,
    for nothing else reads it."""
    return op.init is not None and _is_product_alone(op.init)


def _is_product_alone(value: SSAValue) -> bool:
    if len(list(value.uses)) != 1:
        return False
    if isinstance(value.owner, MapOp):
        return any(each.type == value.type and _is_product_alone(each) for each in value.owner.inputs)
    return isinstance(value.owner, ContractOp)


def goes_on(op: Operation, axis: str) -> bool:
    """Whether a contraction over an axis adds to the result of another one over it, so that each piece of the axis may
    be added to one sum by both."""
    if not isinstance(op, ContractOp) or axis not in op.over_axes or not begins_with_product(op):
        return False
    assert op.init is not None
    return isinstance(op.init.owner, ContractOp) and axis in op.init.owner.over_axes


def begins_before(op: Operation, axis: str) -> bool:
    """Whether a contraction over an axis adds to a product that is known before the first piece of it."""
    if not isinstance(op, ContractOp) or axis not in op.over_axes or not begins_with_product(op):
        return False
    return not _varies(op.init, axis)


def _varies(value: SSAValue | None, axis: str) -> bool:
    """Whether a value, or anything that it is made of, has an axis."""
    waiting, seen = [value], set[SSAValue]()
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        if is_array(each.type) and axis in axes_of(each.type):
            return True
        waiting += each.owner.operands if isinstance(each.owner, Operation) else ()
    return False
