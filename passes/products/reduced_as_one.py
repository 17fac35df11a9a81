"""One axis in the place of several that are reduced together, in all that is made with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CollapseOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of, sizes_of
from treadle.dialects.diagram.condition import resolved
from treadle.passes._functions import derived_hint, erase_unused, note, replace
from treadle.passes._parts import Reducing
from treadle.passes.axes.merge import name_of
from treadle.passes.expressions.conditions import at_places, where_holds
from treadle.passes.products.digits import places_along, positions_along
from treadle.passes.products.read_at import read_at
from treadle.passes.products.reduced import Reduced, along, lies_within

LAW = "a reduction over several axes is one over the axis that they are"


def reduce_as_one(function: func.FuncOp, each: Reduced, rewrite: str, why: str) -> None:
    """Give what is made with several axes one axis in their place."""
    whole = name_of(each.axes, function.body.block)
    before = [operand for op in each.steps for operand in op.operands]
    making = _Making(each, whole)
    for op in each.steps:
        making.make(op)
    erase_unused(before)
    note(function, rewrite, f"[{', '.join(each.axes)}] as {whole}", LAW, why)


@dataclass
class _Making:
    each: Reduced
    whole: str
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def make(self, op: Operation) -> None:
        """Make what an operation gives with the one axis, right before it, or in its place if it reduces that."""
        new = self._kept(op) if isinstance(op, WhereOp) else self._copied(op)
        outer, *inner = self.each.axes
        if isinstance(new, Reducing) and outer in new.over_axes:
            over = [axis for axis in new.over_axes if axis not in inner]
            over[over.index(outer)] = self.whole
            new.properties["over"] = ArrayAttr(StringAttr(axis) for axis in over)
            replace(op, [new], new.results[0])
            return
        new.results[0].name_hint = derived_hint(op.results[0], "flat")
        self.made[op.results[0]] = self._put(new, op)

    def _copied(self, op: Operation) -> Operation:
        new = op.clone({operand: self._given(operand, op) for operand in op.operands})
        if along(op.results[0], self.each.axes):
            Rewriter.replace_value_with_new_type(new.results[0], self._type(op.results[0].type))
        return new

    def _kept(self, op: WhereOp) -> WhereOp:
        given = {value: self._given(value, op) for value in (op.operand, *op.inputs)}
        places = dict(zip(self.each.axes, positions_along(self.whole, self.each.sizes), strict=True))
        holds = resolved(
            at_places(op.holds, places), lambda term: given.get(term) if isinstance(term, SSAValue) else None
        )
        return where_holds(given[op.operand], holds)

    def _given(self, value: SSAValue, op: Operation) -> SSAValue:
        """What an operation is given in the place of an array."""
        if not along(value, self.each.axes):
            return value
        if value not in self.made:
            view = self._flat(value) if lies_within(value, self.each.axes) else self._read(value, op)
            view.results[0].name_hint = derived_hint(value, self.whole)
            self.made[value] = self._put(view, op)
        return self.made[value]

    def _flat(self, value: SSAValue) -> Operation:
        return CollapseOp(value, self.each.axes, self.whole, self._type(value.type))

    def _read(self, value: SSAValue, op: Operation) -> Operation:
        places = dict(zip(self.each.axes, places_along(self.whole, self.each.sizes), strict=True))
        return read_at(value, places, self._type(value.type), op)

    def _put(self, op: Operation, before: Operation) -> SSAValue:
        op.location = before.location
        Rewriter.insert_op(op, InsertPoint.before(before))
        return op.results[0]

    def _type(self, type: Attribute) -> Attribute:
        """Of an array that has the one axis where the first of them was."""
        length = DYNAMIC if DYNAMIC in self.each.sizes else prod(self.each.sizes)
        found = dict[str, int]()
        for axis, size in sizes_of(type).items():
            found |= {self.whole: length} if axis in self.each.axes else {axis: size}
        return array_type(format_of(type), found)


__all__ = ["LAW", "reduce_as_one"]
