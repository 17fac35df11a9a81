"""The first few of an order, each an extremum of what those before it leave, and their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.elements import CastOp, IndexOp
from treadle.dialects.diagram.formats import holds
from treadle.dialects.diagram.law import LawOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.reduce import ReduceOp

EQUAL, DIFFERENT = "eq", "ne"
NOWHERE = 2**31 - 1
"""The place of what is not there."""

NO_NUMBERS = 2**30
"""What places of NaNs are beyond, where these come last: more than an axis has."""

_LAST = {"max": -inf, "min": inf}
"""What no number comes behind."""


@dataclass(frozen=True)
class Order:
    """One element of an array along an axis, or its place: the one that `rank` others come before."""

    array: SSAValue
    axis: str
    kind: str
    """`max` where the largest comes first, `min` where the smallest does."""
    rank: int
    is_place: bool


def order_of(op: ReduceOp) -> Order | None:
    """What a reduction of a whole axis finds, if that is an element of an order behind the first, or its place."""
    if not isinstance(op.parent_op(), func.FuncOp | LawOp):
        return None
    found = Orders().of(op)
    return found if found is not None and found.rank else None


@dataclass
class Orders:
    """What reductions find, each asked once."""

    known: dict[Operation, Order | None] = field(default_factory=dict[Operation, "Order | None"])

    def of(self, op: Operation) -> Order | None:
        if op not in self.known:
            self.known[op] = None
            self.known[op] = self._read(op)
        return self.known[op]

    def _read(self, op: Operation) -> Order | None:
        if not isinstance(op, ReduceOp) or op.init is not None or len(op.over_axes) != 1:
            return None
        if str(format_of(op.result.type)) == "i32":
            return self._place(op)
        if op.kind.data not in ("max", "min"):
            return None
        (axis,) = op.over_axes
        array, rank = self._left(op.operand, op.kind.data, axis)
        return Order(array, axis, op.kind.data, rank, False)

    def _left(self, value: SSAValue, kind: str, axis: str) -> tuple[SSAValue, int]:
        """The array that some places were taken from, and how many: the first of the order, all of them."""
        value = _widened(value)
        chosen = _chosen(value)
        if chosen is None:
            return value, 0
        map, (test, nothing, rest) = chosen
        if not isinstance(rest, BlockArgument) or _number(nothing) != _LAST[kind]:
            return value, 0
        taken = self._taken(test, map, axis)
        array, before = self._left(map.inputs[rest.index], kind, axis)
        if taken is None or not self._are_next(taken, before, array, axis, kind):
            return value, 0
        return array, before + len(taken)

    def _are_next(self, taken: Sequence[Order], before: int, array: SSAValue, axis: str, kind: str) -> bool:
        """Whether these are the next of the order behind so many."""
        own = all(each.array is array and each.axis == axis and each.kind == kind for each in taken)
        return own and sorted(each.rank for each in taken) == [*range(before, before + len(taken))]

    def _taken(self, test: SSAValue, map: MapOp, axis: str) -> list[Order] | None:
        """The places, if the test is whether a position is one of them."""
        found: list[Order] = []
        for each in _joined(test, arith.OrIOp):
            place = self._asked(each, EQUAL, map, axis)
            if place is None:
                return None
            found.append(place)
        return found

    def _asked(self, test: SSAValue, predicate: str, map: MapOp, axis: str) -> Order | None:
        """The place, if the test compares it with positions along the axis."""
        op = test.owner
        if not isinstance(op, arith.CmpiOp) or _predicate(op) != predicate:
            return None
        sides = [map.inputs[each.index] for each in (op.lhs, op.rhs) if isinstance(each, BlockArgument)]
        places = [each for each in sides if not _is_place(each, axis)]
        if len(sides) != 2 or len(places) != 1 or not isinstance(places[0].owner, ReduceOp):
            return None
        order = self.of(places[0].owner)
        return order if order is not None and order.is_place else None

    def _place(self, op: ReduceOp) -> Order | None:
        """The first position at which an element of what is left is its extremum, and is not taken."""
        (axis,), chosen = op.over_axes, _chosen(op.operand)
        if op.kind.data != "min" or chosen is None:
            return None
        map, (test, position, nowhere) = chosen
        if not isinstance(position, BlockArgument) or not _is_place(map.inputs[position.index], axis):
            return None
        if _number(nowhere) != NOWHERE:
            return None
        left: list[Order] = []
        others: list[SSAValue] = []
        behind = False
        for each in _joined(test, arith.AndIOp):
            if (places := self._not_taken(each, map, axis)) is not None:
                left.extend(places)
            elif (last := self._behind(each, map, axis)) is not None:
                left.extend(replace(last, rank=rank) for rank in range(last.rank + 1))
                behind = True
            else:
                others.append(each)
        found = self._is_extreme(others, map, axis)
        if found is None or (behind and not found[1]):
            return None
        equal, _ = found
        if not self._are_next(left, 0, equal.array, axis, equal.kind) or len(left) != equal.rank:
            return None
        return Order(equal.array, axis, equal.kind, equal.rank, True)

    def _not_taken(self, test: SSAValue, map: MapOp, axis: str) -> list[Order] | None:
        """The places that a test leaves out by name."""
        if (place := self._asked(test, DIFFERENT, map, axis)) is not None:
            return [place]
        op = test.owner
        if isinstance(op, arith.XOrIOp) and abs(_number(op.rhs) or 0) == 1:
            return self._taken(op.lhs, map, axis)
        return None

    def _behind(self, test: SSAValue, map: MapOp, axis: str) -> Order | None:
        """The place up to which a test leaves out what comes last of all."""
        op = test.owner
        if not isinstance(op, arith.CmpiOp) or _predicate(op) != "sgt":
            return None
        position, behind = _input(op.lhs, map), _input(op.rhs, map)
        if position is None or behind is None or not _is_place(position, axis):
            return None
        return self._if_last(behind)

    def _if_last(self, value: SSAValue) -> Order | None:
        """The place of an element, chosen where the element is what no other comes behind; else none."""
        chosen = _chosen(value)
        if chosen is None:
            return None
        map, (test, place, none) = chosen
        op, found = test.owner, _input(place, map)
        if not isinstance(op, arith.CmpfOp) or _predicate(op) != "oeq" or found is None or _number(none) != -1:
            return None
        element, order = _input(op.lhs, map), self._found(found)
        value_of = None if element is None else self._found(element)
        if order is None or value_of is None or value_of != replace(order, is_place=False) or not order.is_place:
            return None
        return order if _number(op.rhs) == _LAST[order.kind] else None

    def _found(self, value: SSAValue) -> Order | None:
        return self.of(value.owner) if isinstance(value.owner, ReduceOp) else None

    def _is_extreme(self, tests: Sequence[SSAValue], map: MapOp, axis: str) -> tuple[Order, bool] | None:
        """The extremum that elements are compared with, of which they are, and whether it is asked that they are what
        they were in the array of the order, which those that were taken are not. A NaN may be asked for as well."""
        if len(tests) != 1:
            return self._is_one(tests, map, axis)
        numbers = [each for each in _joined(tests[0], arith.OrIOp) if not _is_of_nan(each, map)]
        return self._is_one([*_joined(numbers[0], arith.AndIOp)], map, axis) if len(numbers) == 1 else None

    def _is_one(self, tests: Sequence[SSAValue], map: MapOp, axis: str) -> tuple[Order, bool] | None:
        compared = [_equal(each, map) for each in tests]
        pairs = [pair for pair in compared if pair is not None]
        if len(pairs) != len(compared) or len(pairs) > 2:
            return None
        orders = [self._found(extreme) for _, extreme in pairs]
        found = next((order for order in orders if order is not None), None)
        if found is None or found.is_place or found.axis != axis:
            return None
        element, extreme = next(pair for pair, order in zip(pairs, orders, strict=True) if order is found)
        reduction = extreme.owner
        if not isinstance(reduction, ReduceOp) or _widened(reduction.operand) is not element:
            return None
        others = [pair for pair, order in zip(pairs, orders, strict=True) if order is not found]
        return (found, bool(others)) if all(pair == (found.array, element) for pair in others) else None


def _widened(value: SSAValue) -> SSAValue:
    """What is only held in another format, exactly."""
    while isinstance(op := value.owner, CastOp) and holds(format_of(value.type), format_of(op.operand.type)):
        value = op.operand
    return value


def _chosen(value: SSAValue) -> tuple[MapOp, tuple[SSAValue, SSAValue, SSAValue]] | None:
    """The choice that a map makes for each element: a test, and what is chosen by it."""
    map = value.owner
    if not isinstance(map, MapOp):
        return None
    terminator = map.body.block.last_op
    choice = terminator.operands[0].owner if terminator is not None else None
    return (map, (choice.cond, choice.lhs, choice.rhs)) if isinstance(choice, arith.SelectOp) else None


def _joined(test: SSAValue, by: type[arith.OrIOp | arith.AndIOp]) -> Iterator[SSAValue]:
    op = test.owner
    if not isinstance(op, by):
        yield test
        return
    yield from _joined(op.lhs, by)
    yield from _joined(op.rhs, by)


def _is_of_nan(test: SSAValue, map: MapOp, array: SSAValue | None = None) -> bool:
    """Whether it is asked if an element (of this array) is no number."""
    op = test.owner
    if not isinstance(op, arith.CmpfOp) or _predicate(op) != "une" or not _same(op.lhs, op.rhs, map):
        return False
    return array is None or _input(op.lhs, map) is array


def _same(one: SSAValue, other: SSAValue, map: MapOp) -> bool:
    return one is other or ((found := _input(one, map)) is not None and found is _input(other, map))


def _equal(test: SSAValue, map: MapOp) -> tuple[SSAValue, SSAValue] | None:
    """The two that are compared, if it is asked whether they are equal."""
    op = test.owner
    if not isinstance(op, arith.CmpfOp) or _predicate(op) != "oeq":
        return None
    one, other = _input(op.lhs, map), _input(op.rhs, map)
    return None if one is None or other is None else (one, other)


def _input(value: SSAValue, map: MapOp) -> SSAValue | None:
    return _widened(map.inputs[value.index]) if isinstance(value, BlockArgument) else None


def before_numbers(value: SSAValue) -> SSAValue:
    """The array that an infinity stands for NaNs of, so that they come last; else the array itself."""
    chosen = _chosen(value)
    if chosen is None:
        return value
    map, (test, nothing, rest) = chosen
    array = _input(rest, map)
    return array if array is not None and _number(nothing) == inf and _is_of_nan(test, map, array) else value


def _is_place(value: SSAValue, axis: str) -> bool:
    """Whether each element along an axis has a place of its own there, in their order: positions, or those of NaNs
    beyond all others."""
    return is_position(value, axis) or _is_behind_numbers(value, axis)


def is_position(value: SSAValue, axis: str) -> bool:
    """Whether an array has the positions along an axis."""
    return isinstance(value.owner, IndexOp) and axes_of(value.type) == (axis,)


def _is_behind_numbers(value: SSAValue, axis: str) -> bool:
    """Whether it has positions along an axis, and those of NaNs come behind: further on by more than the axis has."""
    chosen = _chosen(value)
    if chosen is None:
        return False
    map, (test, beyond, place) = chosen
    position = _input(place, map)
    if position is None or not is_position(position, axis) or not _is_of_nan(test, map):
        return False
    return _is_beyond(beyond, map, position)


def _is_beyond(value: SSAValue, map: MapOp, position: SSAValue) -> bool:
    """Whether a scalar of a map is a position and `NO_NUMBERS`, added there or in a map before."""
    if (before := _input(value, map)) is not None:
        if not isinstance(before.owner, MapOp) or (terminator := before.owner.body.block.last_op) is None:
            return False
        return _is_beyond(terminator.operands[0], before.owner, position)
    op = value.owner
    return isinstance(op, arith.AddiOp) and _input(op.lhs, map) is position and _number(op.rhs) == NO_NUMBERS


def _number(value: SSAValue) -> float | None:
    constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    return constant.value.data if isinstance(constant, FloatAttr | IntegerAttr) else None


def _predicate(op: arith.CmpiOp | arith.CmpfOp) -> str:
    names = arith.CMPI_COMPARISON_OPERATIONS if isinstance(op, arith.CmpiOp) else arith.CMPF_COMPARISON_OPERATIONS
    return names[op.predicate.value.data]


__all__ = ["NOWHERE", "NO_NUMBERS", "Order", "Orders", "before_numbers", "is_position", "order_of"]
