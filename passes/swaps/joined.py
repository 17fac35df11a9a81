"""Several axes as one, though some arrays have not all of them: these are read for each position along all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, FillOp, IndexOp, MapOp, ReadOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.operation import quote
from treadle.passes._functions import erase_unused, fresh_hint, label
from treadle.passes.axes.candidates import Candidates
from treadle.passes.axes.merge import merge, merged, name_of
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, Node, build_map

WHY = "of what has some of them alone each element is read where it is needed"


class Apart(Exception):
    """Axes are not one."""


def join(function: func.FuncOp, axes: Sequence[str], rewrite: str) -> None:
    """Let neighbours in what a product gave be one axis (Apart where an operation tells them apart)."""
    block = function.body.block
    joined = _Joined(function, tuple(axes), name_of(axes, block))
    alone: list[SSAValue] = []
    for op in list(block.ops):
        if not isinstance(op, MapOp) or not {*axes} <= {*axes_of(op.result.type)}:
            continue
        for index, operand in enumerate(op.operands):
            if 0 < len(joined.some_of(operand)) < len(axes):
                alone.append(operand)
                op.operands[index] = joined.of(operand, op)
    erase_unused(alone)
    found = Candidates(block, joined.read)
    for pair in pairwise(axes):
        if (reason := found.why_not(pair)) is not None:
            raise Apart(reason)
    merge(function, block, axes, rewrite, WHY, joined.whole)


@dataclass
class _Joined:
    """Arrays along some of several axes, as arrays along all of them as one."""

    function: func.FuncOp
    axes: tuple[str, ...]
    whole: str
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    read: set[SSAValue] = field(default_factory=set[SSAValue])
    """Those that are read at quotients or remainders of the position along all."""

    def some_of(self, value: SSAValue) -> tuple[str, ...]:
        """Those of the axes that an array has."""
        return tuple(axis for axis in self.axes if axis in axes_of(value.type))

    def of(self, value: SSAValue, before: Operation) -> SSAValue:
        """An array that has some of the axes along all of them."""
        if not self.some_of(value):
            return value
        if value not in self.known:
            self.known[value] = self._made(value, before)
            self.known[value].name_hint = fresh_hint(value, value.name_hint)
        return self.known[value]

    def _made(self, value: SSAValue, before: Operation) -> SSAValue:
        match value.owner:
            case Block():
                return self._read(value, before)
            case IndexOp():
                return self._positions(value.owner.axis, before)
            case MapOp() | CastOp() | FillOp():
                operands = {operand: self.of(operand, before) for operand in value.owner.operands}
                new = value.owner.clone(operands)
                Rewriter.replace_value_with_new_type(new.results[0], self._along_all(value.type, self.some_of(value)))
                return self._add(new, before)
            case _:
                raise Apart(f"what has {quote(self.some_of(value))} alone is made by {value.owner.name}")

    def _along_all(self, type: Attribute, some: Sequence[str]) -> Attribute:
        """The type of an array that has all of the axes as one in the place of some."""
        sizes = {some[0] if axis in some else axis: size for axis, size in sizes_of(type).items()}
        lengths = {axis: prod(self._lengths) if axis == some[0] else size for axis, size in sizes.items()}
        return array_type(format_of(type), {self.whole if axis == some[0] else axis: lengths[axis] for axis in sizes})

    @cached_property
    def _lengths(self) -> Sequence[int]:
        """Of the axes (Apart where a launch knows one alone)."""
        values = [*self.function.body.block.args, *(each for op in self.function.body.block.ops for each in op.results)]
        found = {axis: size for value in values for axis, size in sizes_of(value.type).items() if axis in self.axes}
        if DYNAMIC in found.values():
            raise Apart("how long they are together is known only at launch")
        return [found[axis] for axis in self.axes]

    def _read(self, value: SSAValue, before: Operation) -> SSAValue:
        """An argument, whose own of the axes are one, too, read along all."""
        some, given = self.some_of(value), value
        first = self.axes.index(some[0])
        span, inner = self._span_of(some)
        if some != self.axes[first : first + len(some)] or (first and inner > 1):
            raise Apart(f"{label(value)} has {quote(some)} alone, which are neither the first of them nor the last")
        self.read.add(value)
        name = some[0]
        if len(some) > 1:
            if {*pairwise(some)} - {*pairwise(axes_of(value.type))}:
                raise Apart(f"{quote(some)} do not lie within one another in {label(value)}")
            name = name_of(some, self.function.body.block)
            given = self._add(CollapseOp(value, some, name, merged(value.type, some, name)), before)
            given.name_hint = fresh_hint(value, f"{value.name_hint}_flat" if value.name_hint else None)
            self.read.add(given)
        place = f"{self.whole} % {span}" if first else f"{self.whole} // {inner}"
        places = [place if axis == name else axis for axis in axes_of(given.type)]
        return self._add(ReadOp(given, ", ".join(places), self._along_all(value.type, some), padded=True), before)

    def _span_of(self, some: Sequence[str]) -> tuple[int, int]:
        """How many elements some of the axes have together, and those within them."""
        last = self.axes.index(some[-1])
        inside = zip(self.axes, self._lengths, strict=True)
        return prod(size for axis, size in inside if axis in some), prod(self._lengths[last + 1 :])

    def _positions(self, axis: str, before: Operation) -> SSAValue:
        """Of one of the axes, by the position along all."""
        span, inner = self._span_of([axis])
        type = array_type(i32, {self.whole: prod(self._lengths)})
        at: Expression = Leaf(self._add(IndexOp(type), before))
        at = at if inner == 1 else Node(arith.FloorDivSIOp, (at, _number(inner)), i32)
        at = at if axis == self.axes[0] else Node(arith.RemSIOp, (at, _number(span)), i32)
        return self._add(build_map(at, type), before)

    def _add(self, op: Operation, before: Operation) -> SSAValue:
        op.location = before.location
        Rewriter.insert_op(op, InsertPoint.before(before))
        return op.results[0]


def _number(value: int) -> Constant:
    return Constant(IntegerAttr(value, i32))


__all__ = ["Apart", "join"]
