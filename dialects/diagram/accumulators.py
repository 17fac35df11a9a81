"""Products that are added up, which have one accumulator: each begins with the sum of those before it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.contract import ContractOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.reduce import ReduceOp


def begins_with_product(op: ContractOp) -> bool:
    """Whether a contraction adds to the result of another one, or to what a map makes of it: in the registers of that,
    for nothing else reads it."""
    return op.init is not None and _is_product_alone(op.init)


def _is_product_alone(value: SSAValue) -> bool:
    if len(list(value.uses)) != 1:
        return False
    if isinstance(value.owner, MapOp):
        first = sum_within(value.owner)
        return first is not None and _is_product_alone(first)
    return isinstance(value.owner, ContractOp)


def sum_within(map: MapOp) -> SSAValue | None:
    """The product, or what is made of one, in whose registers a map makes its result: of several the first."""
    made = (each for each in map.inputs if isinstance(each.owner, ContractOp | MapOp))
    return next((each for each in made if each.type == map.result.type), None)


def goes_on(op: Operation, axis: str) -> bool:
    """Whether a contraction over an axis adds to the result of another one over it, so that each piece of the axis may
    be added to one sum by both: of which neither follows what is reduced along it."""
    if not isinstance(op, ContractOp) or axis not in op.over_axes or not begins_with_product(op):
        return False
    assert op.init is not None
    first = op.init.owner
    if not isinstance(first, ContractOp) or axis not in first.over_axes:
        return False
    return not any(map(partial(_is_reduced, axis=axis), (op.lhs, op.rhs, first.lhs, first.rhs)))


def begins_before(op: Operation, axis: str) -> bool:
    """Whether a contraction over an axis adds to a product that is known before the first piece of it."""
    if not isinstance(op, ContractOp) or axis not in op.over_axes or not begins_with_product(op):
        return False
    assert op.init is not None
    if any(axis in axes_of(each.type) for each in _made_of(op.init)):
        return False
    return not any(map(partial(_is_reduced, axis=axis), (op.lhs, op.rhs)))


def _is_reduced(value: SSAValue, axis: str) -> bool:
    """Whether a value is made of what is reduced along an axis."""
    owners = (each.owner for each in _made_of(value))
    return any(isinstance(op, ContractOp | ReduceOp) and axis in op.over_axes for op in owners)


def _made_of(value: SSAValue) -> Iterator[SSAValue]:
    """An array, and those that it is made of."""
    waiting, seen = [value], set[SSAValue]()
    while waiting:
        each = waiting.pop()
        if each in seen or not is_array(each.type):
            continue
        seen.add(each)
        yield each
        waiting += each.owner.operands if isinstance(each.owner, Operation) else ()
