"""A read of what is computed, as what is computed of reads: it bubbles up to arguments and views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import FillOp, IndexOp, ReadOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import ConditionAttr, Linear, placed, spelled
from treadle.passes._functions import erase_unused, fresh_hint, hints_around, label, note
from treadle.passes.reads.found import Computed, is_computed, is_number, made_of, may_move, moved_by

LAW = "naturality of reads"
"""What is weaved over an axis does not know where its elements lie."""


def bubble_up(function: func.FuncOp, found: Computed, rewrite: str, why: str = "") -> None:
    """Read what an array is made of in place of the array: as far as that may be once others are read so, of which it
    is made."""
    for read in filter(may_move, found.reads):
        subject = f"{label(found.value)} at '{read.place.text.data}'"
        read_again(read)
        note(function, rewrite, subject, LAW, why)
    erase_unused([found.value])


def read_again(read: ReadOp) -> SSAValue:
    """What a read gives, computed of what its operand is made of, which is read instead (`may_move`)."""
    return _Rereading(read, moved_by(read)).replace()


@dataclass
class _Rereading:
    """One read, and what it becomes."""

    read: ReadOp
    moved: Mapping[str, Linear]
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @cached_property
    def _taken(self) -> set[str | None]:
        return hints_around(self.read.result)

    def replace(self) -> SSAValue:
        before = self.read.operand
        for value in _operands_first(self.read, [*made_of(before, self.moved)]):
            self.made[value] = self._reread(value)
        last = self.made.get(before, before)
        if self.moved:
            last = Rewriter.replace_value_with_new_type(last, self.read.result.type)
            last.name_hint = self.read.result.name_hint or last.name_hint
        self.read.result.replace_all_uses_with(last)
        Rewriter.erase_op(self.read)
        return last

    def _reread(self, value: SSAValue) -> SSAValue:
        """What an array has at the new positions, all that it is made of being read there."""
        type, owner = self._type(value.type), value.owner
        if not is_computed(value):
            place = ", ".join(spelled(self._form(axis)) for axis in axes_of(value.type))
            return self._put(ReadOp(value, place, type, padded=self.read.is_padded), value)
        assert isinstance(owner, Operation)
        if isinstance(owner, IndexOp):
            form = self._form(owner.axis)
            number = FillOp(IntegerAttr(form.constant, i32), type)
            return self._put(number if is_number(form) else IndexOp(type), value)
        copy = owner.clone({operand: self.made.get(operand, operand) for operand in owner.operands})
        if isinstance(owner, WhereOp):
            copy.properties |= moved_conditions(owner, self.moved)
        return Rewriter.replace_value_with_new_type(self._put(copy, value), type)

    def _form(self, axis: str) -> Linear:
        return self.moved.get(axis, Linear({axis: 1}))

    def _type(self, type: Attribute) -> Attribute:
        """Of an array that is read."""
        sizes, own = sizes_of(self.read.result.type), sizes_of(type)
        axes = dict.fromkeys(str(term) for axis in own for term in self._form(axis).terms)
        return array_type(format_of(type), {axis: sizes[axis] if axis in sizes else own[axis] for axis in axes})

    def _put(self, op: Operation, of: SSAValue) -> SSAValue:
        op.location = self.read.location
        Rewriter.insert_op(op, InsertPoint.before(self.read))
        op.results[0].name_hint = fresh_hint(self.read.result, of.name_hint, self._taken)
        return op.results[0]


def moved_conditions(op: WhereOp, moved: Mapping[str, Linear]) -> dict[str, ConditionAttr]:
    """What is asked, at other positions along some axes."""
    return {name: ConditionAttr(placed(each.text.data, moved)) for name, each in op.told.items()}


def _operands_first(read: ReadOp, values: Collection[SSAValue]) -> list[SSAValue]:
    """Arrays in an order in which each stands behind what it is made of: that of the block, arguments first."""
    block, wanted = read.parent, {*values}
    assert block is not None
    made = [result for op in block.ops for result in op.results if result in wanted]
    return [*(value for value in values if not isinstance(value.owner, Operation)), *made]


__all__ = ["bubble_up", "moved_conditions", "read_again"]
