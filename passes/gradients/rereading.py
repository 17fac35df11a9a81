"""Arrays read at other positions, where that costs least: a read passes what is weaved over the axes that it moves.

A sum of products, read at `j - k` and summed over k, is a sum over k too of products of factors that are read there:
nothing is saved for each k. So it is with a multiple of an array, and with an array that is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue

from treadle.dialects.diagram import ContractOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear, spelled
from treadle.dialects.diagram.operation import union
from treadle.passes.expressions.scalars import (
    Leaf,
    axes_in,
    convert,
    expression_of,
    factors,
    is_plain,
    strip_casts,
    substitute,
)
from treadle.passes.gradients.backward import Backward
from treadle.passes.gradients.presence import conditions


@dataclass(frozen=True)
class Move:
    """Where an axis is read: at a position over other axes, of which its own are the multiples of a step."""

    form: Linear
    step: int = 1
    along: str | None = None
    """The axis along which those multiples lie, where the step is not 1."""


@dataclass(frozen=True)
class Rereading:
    """Reads of arrays at moved axes; what lies outside is zero."""

    moves: Mapping[str, Move]
    sizes: Mapping[str, int]
    """Of the axes over which the positions are."""
    target: Sequence[str]
    """The axes that are read."""
    backward: Backward

    def of(self, value: SSAValue, over: Sequence[str]) -> SSAValue:
        """An array that has all moved axes, at its new positions, and summed over some axes if a product does that."""
        if not self.moves:
            return value
        return self._product(value, over) or self._read(value)

    # -- what a read passes --------------------------------------------------------------------------

    def _product(self, value: SSAValue, over: Sequence[str]) -> SSAValue | None:
        """A sum of products whose factors have the axes of another sum: then there are no more products than before."""
        op = value.owner
        if not over or not isinstance(op, ContractOp) or op.init is not None or self._is_used_again(value):
            return None
        domain = union(axes_of(op.lhs.type), axes_of(op.rhs.type))
        if not set(over) <= set(domain) or not self._is_free(domain):
            return None
        lhs, rhs = (self._read(factor) for factor in (op.lhs, op.rhs))
        whole, sizes = [*op.over_axes, *over], sizes_of(lhs.type) | sizes_of(rhs.type)
        kept = {axis: sizes[axis] for axis in self.sizes if axis in sizes and axis not in whole}
        multiply = None if op.multiply is None else op.multiply.data
        reason = f"over {', '.join(op.over_axes)} and {', '.join(over)}"
        self.backward.note(value, "a read of a product is the product of its factors, read", reason)
        new = ContractOp(lhs, rhs, whole, array_type(f32, kept), op.accumulate, multiply=multiply)
        return self.backward.write(new, value.name_hint)

    def _multiple(self, value: SSAValue) -> SSAValue | None:
        """An array that is repeated, or multiplied by what is not moved."""
        op, moved = value.owner, self._moved(value)
        if not isinstance(op, MapOp) or not is_plain(op) or not self._is_free(axes_of(value.type)):
            return None
        expression = expression_of(op)
        above, below = factors(strip_casts(expression))
        varying = [strip_casts(part) for part in above if moved & set(axes_in(part))]
        if len(varying) != 1 or any(moved & set(axes_in(part)) for part in below):
            return None
        leaf = varying[0]
        if not isinstance(leaf, Leaf) or not moved <= set(axes_of(leaf.value.type)):
            return None
        read = self._read(leaf.value)
        made = substitute(expression, lambda each: Leaf(read) if each.value is leaf.value else each)
        return self.backward.map(made, sizes_of(self._placed(value.type)), value.name_hint)

    def _is_free(self, axes: Iterable[str]) -> bool:
        """Whether none of some axes has the name of one to which the read brings what it moves."""
        new = {str(term) for move in self.moves.values() for term in move.form.terms}
        return new.difference(self.target).isdisjoint(axes)

    def _is_used_again(self, value: SSAValue) -> bool:
        return sum(value in parts for parts in self.backward.found.values()) > 1

    # -- reading -------------------------------------------------------------------------------------

    def _moved(self, value: SSAValue) -> set[str]:
        return {axis for axis in axes_of(value.type) if axis in self.moves}

    def _read(self, value: SSAValue) -> SSAValue:
        if not self._moved(value):
            return value
        if (made := self._multiple(value)) is not None:
            return made
        backward, type = self.backward, value.type
        if conditions(value, backward.laws):
            value = backward.as_type(backward.filled(value), type)
        for axis in self._moved(value):
            if self.moves[axis].step > 1:
                value = self._with_gaps(value, axis)
        place = ", ".join(spelled(self._place(axis)) for axis in axes_of(type))
        return backward.write(ReadOp(value, place, self._placed(type), padded=True), value.name_hint)

    def _place(self, axis: str) -> Linear:
        return self.moves[axis].form if axis in self.moves else Linear({axis: 1})

    def _placed(self, type: Attribute) -> Attribute:
        """An array that has an axis for each over which positions are."""
        own = sizes_of(type)
        axes = dict.fromkeys(str(term) for axis in own for term in self._place(axis).terms)
        return array_type(
            format_of(type), {axis: self.sizes[axis] if axis in self.sizes else own[axis] for axis in axes}
        )

    def _with_gaps(self, value: SSAValue, axis: str) -> SSAValue:
        """An array along another axis, at the multiples of a step; zeros between."""
        move, type = self.moves[axis], value.type
        assert move.along is not None
        sizes = {move.along if each == axis else each: size for each, size in sizes_of(type).items()}
        sizes[move.along] = self.sizes[move.along]
        backward, hint = self.backward, value.name_hint
        spread = backward.map(convert(Leaf(value), f32), {**sizes, axis: sizes_of(type)[axis]}, hint)
        there = backward.write(WhereOp(spread, f"{move.along} == {move.step} * {axis}"), hint)
        whole = backward.write(ReduceOp("add", there, [axis], array_type(f32, sizes)), hint)
        return backward.as_type(whole, array_type(format_of(type), sizes))
