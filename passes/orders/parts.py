"""The first few of an order, found part by part: those of each part of an axis, and then of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, ExtentOp, IndexOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, sizes_of, with_format
from treadle.dialects.diagram.condition import Linear, spelled
from treadle.dialects.diagram.orders import NOWHERE, is_position
from treadle.dialects.diagram.yields import YieldOp
from treadle.passes._functions import erase_unused, fresh_hint, label, note
from treadle.passes.axes.merge import merged, name_of
from treadle.passes.orders.found import First
from treadle.passes.products.positions import count_of
from treadle.passes.reads.bubble import moved_conditions, read_again
from treadle.passes.reads.found import may_move_alone

LAW = "the first of an order are among the first of its parts"


def split(function: func.FuncOp, first: First, length: int, rewrite: str, why: str) -> None:
    """Find the first few of each `length` elements along the axis, the last of which may be fewer, then of these."""
    names = label(first.values[0].result)
    _Parts(function, first, length).replace()
    note(function, rewrite, f"{names} along {first.axis} in parts of {length}", LAW, why)


class _Parts:
    def __init__(self, function: func.FuncOp, first: First, length: int):
        block = function.body.block
        self.first, self.length, self.count = first, length, count_of(first.length, length)
        self.point = InsertPoint.before(first.ops[0])
        axis = first.axis
        self.part, self.inner, self.rank = (name_of((axis, each), block) for each in ("part", "in", "rank"))
        self.found = name_of((axis, "found"), block)

    def replace(self) -> None:
        first = self.first
        apart = {self.part: self.count, self.inner: self.length}
        read = self._there(self._read(apart))
        positions = self._put(IndexOp(array_type(i32, {self.inner: self.length})))
        made = self._again(read, positions, self.inner, apart, self._along())
        values = [made[each.result] for each in first.values]
        places = [self._in_all(made[each.result], each.result) for each in first.places]
        values = self._side_by_side(values, first.values[0].result)
        places = self._side_by_side(places, first.places[0].result)
        values = self._as(values, format_of(first.array.type))
        found = DYNAMIC if self.count == DYNAMIC else self.count * len(first.values)
        last = self._again(values, places, self.found, {self.found: found})
        for each in (*first.values, *first.places):
            new = last[each.result]
            new.name_hint, each.result.name_hint = each.result.name_hint, None
            each.result.replace_all_uses_with(new)
        for op in reversed(first.ops):
            Rewriter.erase_op(op)
        erase_unused([first.array])

    def _read(self, apart: Mapping[str, int]) -> SSAValue:
        """The array in parts: where nothing else uses it, computed of parts of what it is made of."""
        type = self._type(self.first.array.type, apart)
        read = ReadOp(self.first.array, self._place(), type, padded=self._is_padded)
        value = self._put(read, self.first.array)
        return read_again(read) if may_move_alone(read, self.first.ops) else value

    @property
    def _is_padded(self) -> bool:
        """Whether the last part may be longer than what is left of the axis."""
        return DYNAMIC in (self.first.length, self.count) or self.count * self.length > self.first.length

    def _there(self, value: SSAValue) -> SSAValue:
        """An array in parts without what is past the end of the axis, which is nothing that a part could find."""
        if not self._is_padded:
            return value
        axis, length = self.first.axis, self.first.length
        known = length != DYNAMIC
        inputs = {} if known else {axis: self._put(ExtentOp(axis))}
        return self._put(WhereOp(value, f"{spelled(self._along())} < {length if known else axis}", inputs), value)

    def _place(self) -> str:
        along = spelled(self._along())
        return ", ".join(along if axis == self.first.axis else axis for axis in axes_of(self.first.array.type))

    def _along(self) -> Linear:
        return Linear({self.part: self.length, self.inner: 1})

    def _type(self, type: Attribute, instead: Mapping[str, int]) -> Attribute:
        """Of an array that has other axes in the place of the one of the order; of what lacks that one, those which it
        was reduced to stay."""
        own, kept = sizes_of(type), {axis: size for axis, size in instead.items() if axis == self.part}
        sizes: dict[str, int] = {}
        for axis, size in own.items():
            sizes |= instead if axis == self.first.axis else {axis: size}
        return array_type(format_of(type), sizes if self.first.axis in own else sizes | kept)

    def _again(
        self, array: SSAValue, places: SSAValue, axis: str, instead: Mapping[str, int], along: Linear | None = None
    ) -> dict[SSAValue, SSAValue]:
        """All that finds the first few, of another array along an axis of its own, whose elements have these places.
        Conditions are asked where they lie in the array of the order; all that was found is there."""
        made: dict[SSAValue, SSAValue] = {self.first.array: array}
        of_places: set[SSAValue] = set()
        for op in self.first.ops:
            positions = [each for each in op.operands if is_position(each, self.first.axis)]
            made |= dict.fromkeys(positions, places)
            of_places.update(positions)
            old = op.results[0]
            if isinstance(op, WhereOp) and along is None:
                made[old] = made[op.operand]
                continue
            new = op.clone(made)
            if isinstance(new, ReduceOp):
                new.properties["over"] = ArrayAttr([StringAttr(axis)])
            if isinstance(new, WhereOp) and along is not None:
                new.properties |= moved_conditions(new, {self.first.axis: along})
            type = self._type(old.type, instead)
            if of_places.issuperset(op.operands):
                of_places.add(old)
                type = with_format(places.type, format_of(old.type))
            made[old] = Rewriter.replace_value_with_new_type(self._put(new, old), type)
        return made

    def _in_all(self, place: SSAValue, like: SSAValue) -> SSAValue:
        """A place in a part, as one in the array."""
        number = self._put(IndexOp(array_type(i32, {self.part: sizes_of(place.type)[self.part]})))
        body = _body(partial(_begun, self.length), [place, number], place.type)
        return self._put(body, like)

    def _side_by_side(self, values: Sequence[SSAValue], like: SSAValue) -> SSAValue:
        """What each part has found, one after the other along one axis."""
        rank = self._put(IndexOp(array_type(i32, {self.rank: len(values)})))
        sizes: dict[str, int] = {}
        for axis, size in sizes_of(values[0].type).items():
            sizes |= {axis: size, self.rank: len(values)} if axis == self.part else {axis: size}
        type = array_type(format_of(values[0].type), sizes)
        beside = self._put(_body(_chosen, [*values, rank], type), like, "_of_parts")
        axes = (self.part, self.rank)
        return self._put(CollapseOp(beside, axes, self.found, merged(type, axes, self.found)), like, "_of_all")

    def _as(self, value: SSAValue, format: Attribute) -> SSAValue:
        """In the format of the array, of which all are elements."""
        if format_of(value.type) == format:
            return value
        return self._put(CastOp(value, with_format(value.type, format)), value)

    def _put(self, op: Operation, like: SSAValue | None = None, suffix: str = "") -> SSAValue:
        op.location = self.first.values[0].location
        Rewriter.insert_op(op, self.point)
        if like is not None and like.name_hint:
            op.results[0].name_hint = fresh_hint(self.first.array, like.name_hint + suffix)
        return op.results[0]


def _body(make: Callable[[Sequence[SSAValue]], SSAValue], inputs: Sequence[SSAValue], type: Attribute) -> MapOp:
    block = Block(arg_types=[format_of(value.type) for value in inputs])
    with ImplicitBuilder(block):
        YieldOp(make(block.args))
    return MapOp(inputs, type, Region(block))


def _begun(length: int, scalars: Sequence[SSAValue]) -> SSAValue:
    """Where what has a place in a part of this number lies in all, if it is there."""
    place, number = scalars
    size, nowhere = _number(length), _number(NOWHERE)
    begin = arith.MuliOp(number, size).result
    inside = arith.AddiOp(begin, place).result
    is_none = arith.CmpiOp(place, nowhere, "eq").result
    return arith.SelectOp(is_none, place, inside).result


def _chosen(scalars: Sequence[SSAValue]) -> SSAValue:
    """The one whose number the last one is."""
    *values, place = scalars
    whole = values[-1]
    for number, each in reversed([*enumerate(values[:-1])]):
        whole = arith.SelectOp(arith.CmpiOp(place, _number(number), "eq").result, each, whole).result
    return whole


def _number(number: int) -> SSAValue:
    return arith.ConstantOp(IntegerAttr(number, i32)).result


__all__ = ["LAW", "split"]
