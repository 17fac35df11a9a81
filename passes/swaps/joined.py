"""Two axes as one, though some arrays have one of them alone: these are read for each position along both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, FillOp, IndexOp, MapOp, ReadOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, sizes_of
from treadle.passes._functions import erase_unused
from treadle.passes.axes.candidates import Candidates
from treadle.passes.axes.merge import merge, name_of
from treadle.passes.expressions.scalars import Constant, Leaf, Node, build_map

WHY = "of what has one of them alone each element is read where it is needed"


class Apart(Exception):
    """Two axes are not one."""


def join(function: func.FuncOp, pair: tuple[str, str], rewrite: str) -> str:
    """Let two axes, neighbours in what a product gave, be one, whose name is given (Apart where an operation tells them
    apart)."""
    block = function.body.block
    joined = _Joined(function, pair, name_of(pair, block))
    alone: list[SSAValue] = []
    for op in list(block.ops):
        if not isinstance(op, MapOp) or not {*pair} <= {*axes_of(op.result.type)}:
            continue
        for index, operand in enumerate(op.operands):
            if len({*pair} & {*axes_of(operand.type)}) == 1:
                alone.append(operand)
                op.operands[index] = joined.of(operand, op)
    erase_unused(alone)
    if (reason := Candidates(block).why_not(pair)) is not None:
        raise Apart(reason)
    merge(function, block, pair, rewrite, WHY, joined.whole)
    return joined.whole


@dataclass
class _Joined:
    """Arrays along one of two axes, as arrays along both as one."""

    function: func.FuncOp
    pair: tuple[str, str]
    whole: str
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def of(self, value: SSAValue, before: Operation) -> SSAValue:
        if {*self.pair}.isdisjoint(axes_of(value.type)):
            return value
        if value not in self.known:
            self.known[value] = self._made(value, before)
            self.known[value].name_hint = value.name_hint
        return self.known[value]

    def _made(self, value: SSAValue, before: Operation) -> SSAValue:
        op, sizes = value.owner, sizes_of(value.type)
        (axis,) = {*self.pair} & {*sizes}
        length = prod(self._lengths)
        names = {each: (self.whole, length) if each == axis else (each, size) for each, size in sizes.items()}
        type = array_type(format_of(value.type), dict(names.values()))
        match op:
            case Block() | CollapseOp():
                places = [self._place(axis) if each == axis else each for each in sizes]
                return self._add(ReadOp(value, ", ".join(places), type, padded=True), before)
            case IndexOp():
                return self._positions(axis, before)
            case MapOp() | CastOp() | FillOp():
                operands = {operand: self.of(operand, before) for operand in op.operands}
                new = op.clone(operands)
                Rewriter.replace_value_with_new_type(new.results[0], type)
                return self._add(new, before)
            case _:
                raise Apart(f"what has '{axis}' alone is made by {op.name}")

    @property
    def _lengths(self) -> Sequence[int]:
        """Of both axes (Apart where a launch knows one alone)."""
        found = {
            axis: size
            for op in self.function.body.block.ops
            for each in op.results
            for axis, size in sizes_of(each.type).items()
            if axis in self.pair
        }
        lengths = [found.get(axis, DYNAMIC) for axis in self.pair]
        if DYNAMIC in lengths:
            raise Apart("how long they are together is known only at launch")
        return lengths

    def _place(self, axis: str) -> str:
        inner = self._lengths[1]
        return f"{self.whole} // {inner}" if axis == self.pair[0] else f"{self.whole} % {inner}"

    def _positions(self, axis: str, before: Operation) -> SSAValue:
        """Of one of the axes, by the position along both."""
        inner = Constant(IntegerAttr(self._lengths[1], i32))
        type = array_type(i32, {self.whole: prod(self._lengths)})
        at = Leaf(self._add(IndexOp(type), before))
        kind = arith.FloorDivSIOp if axis == self.pair[0] else arith.RemSIOp
        return self._add(build_map(Node(kind, (at, inner), i32), type), before)

    def _add(self, op: Operation, before: Operation) -> SSAValue:
        op.location = before.location
        Rewriter.insert_op(op, InsertPoint.before(before))
        return op.results[0]


__all__ = ["Apart", "join"]
