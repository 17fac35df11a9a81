"""Which reductions of a function find the first few of an order, and what lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.orders import Order, Orders, before_numbers, is_position


@dataclass(frozen=True)
class First:
    """The first few elements of an order along an axis, and their places: the reductions that find them, each by rank,
    and all operations on the way from the array, in their order."""

    array: SSAValue
    axis: str
    values: tuple[ReduceOp, ...]
    places: tuple[ReduceOp, ...]
    ops: tuple[Operation, ...]

    @property
    def name(self) -> str:
        return self.values[0].result.name_hint or ""

    @property
    def length(self) -> int:
        """Elements along the axis; DYNAMIC where only the launch tells."""
        return sizes_of(self.array.type)[self.axis]


def firsts_in(block: Block) -> list[First]:
    """Those of a block of which more than one is looked for, along the last axis of an array, and of which nothing but
    the elements and their places is used. Which elements conditions leave is asked on the way."""
    orders = Orders()
    found: dict[tuple[SSAValue, str, str], dict[tuple[bool, int], ReduceOp]] = {}
    for op in block.ops:
        if isinstance(op, ReduceOp) and (order := orders.of(op)) is not None:
            found.setdefault((order.array, order.axis, order.kind), {}).setdefault(_which(order), op)
    firsts = (_first(array, axis, ranked, block) for (array, axis, _), ranked in found.items())
    return [each for each in firsts if each is not None]


def _which(order: Order) -> tuple[bool, int]:
    return order.is_place, order.rank


def _first(numbers: SSAValue, axis: str, ranked: dict[tuple[bool, int], ReduceOp], block: Block) -> First | None:
    array, count = _before_conditions(before_numbers(numbers)), len(ranked) // 2
    if axes_of(array.type)[-1:] != (axis,) or absences(array):
        return None
    if count < 2 or ranked.keys() != {(is_place, rank) for is_place in (False, True) for rank in range(count)}:
        return None
    values, places = (tuple(ranked[is_place, rank] for rank in range(count)) for is_place in (False, True))
    inside = _between(array, axis, (*values, *places))
    if inside is None or any(format_of(each.result.type) != format_of(values[0].result.type) for each in values):
        return None
    ends = {each.result for each in (*values, *places)}
    kept = (result for op in inside for result in op.results if result not in ends)
    if any(use.operation not in inside for value in kept for use in value.uses):
        return None
    return First(array, axis, values, places, tuple(op for op in block.ops if op in inside))


def _before_conditions(array: SSAValue) -> SSAValue:
    while isinstance(array.owner, WhereOp):
        array = array.owner.operand
    return array


def _between(array: SSAValue, axis: str, ends: tuple[ReduceOp, ...]) -> set[Operation] | None:
    """What these are made of, as far as an array and positions along its axis; None if of anything else."""
    inside: set[Operation] = set()
    left: list[Operation] = [*ends]
    while left:
        op = left.pop()
        if op in inside:
            continue
        if not isinstance(op, MapOp | CastOp | WhereOp | ReduceOp):
            return None
        if isinstance(op, ReduceOp) and op.over_axes != (axis,):
            return None
        inside.add(op)
        for value in _arrays(op):
            if value is not array and not is_position(value, axis):
                if not isinstance(value.owner, Operation):
                    return None
                left.append(value.owner)
    return inside


def _arrays(op: Operation) -> Iterator[SSAValue]:
    """What an operation is made of, without what a condition is about."""
    return iter([op.operand] if isinstance(op, WhereOp) else [each for each in op.operands if is_array(each.type)])


__all__ = ["First", "firsts_in"]
