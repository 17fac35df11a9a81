"""Arrays that tell between which positions comparisons with data hold, for each row of what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import FillOp, IndexOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either
from treadle.dialects.diagram.linear import ONE, Linear
from treadle.passes._functions import fresh_hint, label, note, replace
from treadle.passes.conditions.sought import restated, searched_axes, searches_of
from treadle.passes.expressions.conditions import inputs_of, spelled
from treadle.passes.expressions.scalars import Expression, Leaf, Node, build_map, compare, number, select
from treadle.passes.streams.ranges import Search

LAW = "a condition holds between the first and the last position at which it does"


@dataclass(frozen=True)
class Ends:
    """For each row, the first position at which comparisons hold and one past the last, 0 and 0 where there is none
    (or all positions and 0: `EndsWriter.beyond`);
    and again one past the last where they hold at every position in between, else 0."""

    first: SSAValue
    end: SSAValue
    whole: SSAValue

    @property
    def arrays(self) -> tuple[SSAValue, ...]:
        return self.first, self.end, self.whole

    def may_hold(self, axis: str) -> Condition:
        return _between(axis, self.first, self.end)

    def surely_hold(self, axis: str) -> Condition:
        return _between(axis, self.first, self.whole)


def _between(axis: str, first: SSAValue, end: SSAValue) -> Condition:
    return Both((AtLeastZero(Linear({axis: 1, first: -1})), AtLeastZero(Linear({end: 1, axis: -1}).plus(ONE, -1))))


@dataclass
class EndsWriter:
    """Writes what conditions of a function leave of axes; what several ask, once."""

    function: func.FuncOp
    rewrite: str
    """Under whose name it is noted."""
    beyond: bool = False
    """Whether rows at which nothing holds begin past the last position, where its number is known: then they add
    nothing to what the rows of a group have together."""
    known: dict[tuple[str, Search], Ends] = field(default_factory=dict[tuple[str, Search], Ends])

    def tell(self, op: WhereOp, axes: Sequence[str], why: str) -> WhereOp:
        """Let a condition tell where it holds along some axes."""
        ends = {axis: {each: self._ends(each, axis, op) for each in searches_of(op.holds, axis)} for axis in axes}
        within = [restated(op.holds, axis, lambda each, axis=axis: ends[axis][each].may_hold(axis)) for axis in axes]
        throughout = [
            restated(op.holds, axis, lambda each, axis=axis: ends[axis][each].surely_hold(axis)) for axis in axes
        ]
        arrays = [array for each in ends.values() for found in each.values() for array in found.arrays]
        inputs = {**op.asked, **_named(dict.fromkeys(arrays), op)}
        names = {value: name for name, value in inputs.items()}
        every = throughout[0] if len(axes) == 1 else Either(tuple(throughout))
        texts = spelled(Both(tuple(within)), names), spelled(every, names)
        new = WhereOp(op.operand, op.condition, inputs, op.result.type, *texts)
        new.location = op.location
        replace(op, [new], new.result)
        subject = f"'{op.condition.text.data}' of {label(new.result)} along {' and '.join(axes)}"
        note(self.function, self.rewrite, subject, LAW, why)
        return new

    def _ends(self, search: Search, axis: str, before: WhereOp) -> Ends:
        if (axis, search) not in self.known:
            self.known[axis, search] = _RowsWriter(search, axis, before, self.beyond).write()
        return self.known[axis, search]


def _named(arrays: Mapping[SSAValue, None], op: WhereOp) -> dict[str, SSAValue]:
    """Names that neither inputs nor axes have."""
    taken = {*op.asked, *axes_of(op.result.type)}
    found: dict[str, SSAValue] = {}
    for array in arrays:
        wanted = array.name_hint or "end"
        name = next(each for each in (wanted, *(f"{wanted}_{i}" for i in range(len(taken) + 1))) if each not in taken)
        taken.add(name)
        found[name] = array
    return found


class _RowsWriter:
    """Writes the ends of one search, before the condition that asks for them first."""

    def __init__(self, search: Search, axis: str, before: WhereOp, beyond: bool):
        self.beyond = beyond
        self.axis = axis
        self.before = before
        self.names = inputs_of(search.condition)
        self.text = spelled(search.condition, self.names)
        sizes = sizes_of(before.result.type)
        rows = searched_axes(search, axis)
        self.rows = array_type(i32, {row: sizes[row] for row in sizes if row in rows})
        self.all = array_type(i32, {each: size for each, size in sizes.items() if each in rows or each == axis})

    def write(self) -> Ends:
        along = {self.axis: sizes_of(self.all)[self.axis]}
        places = self._add(IndexOp(array_type(i32, along)), f"at_{self.axis}")
        found = self._where(self._add(build_map(Leaf(places), self.all), "places"))
        ones = self._where(self._add(FillOp(IntegerAttr(1, i32), self.all), "ones"))
        least, most, count = (
            self._add(ReduceOp(kind, array, [self.axis], self.rows), name)
            for kind, array, name in (("min", found, "least"), ("max", found, "most"), ("add", ones, "count"))
        )
        after = _sum(Leaf(most), number(1, i32))
        end = self._map(Node(arith.MaxSIOp, (after, number(0, i32)), i32), "end")
        size = along[self.axis]
        none = number(size, i32) if self.beyond and size != DYNAMIC else Leaf(end)
        first = self._map(Node(arith.MinSIOp, (Leaf(least), none), i32), "first")
        is_whole = compare(_sum(Leaf(first), Leaf(count)), "==", Leaf(end))
        return Ends(first, end, self._map(select(is_whole, Leaf(end), number(0, i32)), "whole"))

    def _where(self, array: SSAValue) -> SSAValue:
        """What a search finds of an array."""
        inputs = {name: value for value, name in self.names.items()}
        return self._add(WhereOp(array, self.text, inputs), "found")

    def _map(self, expression: Expression, what: str) -> SSAValue:
        return self._add(build_map(expression, self.rows), what)

    def _add(self, op: Operation, what: str) -> SSAValue:
        (result,) = op.results
        result.name_hint = fresh_hint(self.before.result, what)
        op.location = self.before.location
        block = self.before.parent
        assert block is not None
        block.insert_op_before(op, self.before)
        return result


def _sum(left: Expression, right: Expression) -> Expression:
    return Node(arith.AddiOp, (left, right), i32)


__all__ = ["LAW", "Ends", "EndsWriter"]
