"""What happens at a position of a recurrence, of all chunks at once; and from chunk to chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from xdsl.dialects.builtin import IntegerAttr, f32, i32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects.diagram import ContractOp, RenameOp
from treadle.dialects.diagram.array import array_type, format_of, is_array, sizes_of
from treadle.dialects.diagram.recurrence import at_position
from treadle.passes.expressions.scalars import Constant, Leaf, build_map, compare, product, select, total
from treadle.passes.products.positions import Chunks
from treadle.passes.recurrences.affine import is_along

Values = dict[SSAValue, SSAValue]


def with_chunks(chunks: Chunks, sizes: Mapping[str, int]) -> dict[str, int]:
    """Axes behind that of the chunks."""
    return {chunks.chunk: chunks.count, **sizes}


class BodyInChunks:
    """Gives the arrays of a body the axis of chunks, and those that are made of states other axes."""

    def __init__(
        self,
        block: Block,
        fed: Sequence[SSAValue],
        chunks: Chunks,
        dependent: set[SSAValue],
        without: AbstractSet[str] = frozenset(),
        extra: Mapping[str, int] = MappingProxyType({}),
    ):
        self.chunks, self.without, self.extra = chunks, without, extra
        self.new: Values = {}
        given: list[SSAValue | None] = [*[None] * (len(block.args) - len(fed)), *fed]
        dependent = {*dependent}
        for argument, value in zip(block.args, given, strict=True):
            if value is None:
                self.new[argument] = Rewriter.replace_value_with_new_type(argument, self._of_state(argument.type))
                dependent.add(self.new[argument])
            elif is_array(value.type):
                type = at_position(value.type, chunks.inner)
                self.new[argument] = Rewriter.replace_value_with_new_type(argument, type)
        for op in block.ops:
            self._retype(op, dependent)

    def retyped(self, value: SSAValue) -> SSAValue:
        return self.new.get(value, value)

    def _of_state(self, type: Attribute) -> Attribute:
        sizes = {axis: size for axis, size in sizes_of(type).items() if axis not in self.without}
        return array_type(format_of(type), with_chunks(self.chunks, {**sizes, **self.extra}))

    def _retype(self, op: Operation, dependent: set[SSAValue]) -> None:
        (old,) = op.results
        if old in dependent:
            type = self._of_state(old.type)
        elif any(is_along(value, self.chunks.chunk) for value in op.operands):
            type = array_type(format_of(old.type), with_chunks(self.chunks, sizes_of(old.type)))
        else:
            return
        self.new[old] = Rewriter.replace_value_with_new_type(old, type)
        if old in dependent:
            dependent.add(self.new[old])


def after_chunk(block: Block, state: SSAValue, factor: SSAValue, part: SSAValue, second: dict[str, str]) -> SSAValue:
    """A state after a chunk: multiplied by what the chunk multiplies it by, and what the chunk adds."""
    if not second:
        block.add_op(new := build_map(total(product(Leaf(factor), Leaf(state)), Leaf(part)), state.type))
        return new.result
    sizes = {second.get(axis, axis): size for axis, size in sizes_of(state.type).items()}
    renamed = RenameOp(state, second, array_type(f32, sizes))
    moved = ContractOp(factor, renamed.result, second.values(), state.type, f32)
    new = build_map(total(Leaf(moved.result), Leaf(part)), state.type)
    block.add_ops([renamed, moved, new])
    return new.result


def kept(block: Block, after: SSAValue, before: SSAValue, present: SSAValue) -> SSAValue:
    """A state as it was before a position that the axis has not."""
    is_there = compare(Leaf(present), "!=", integer(0))
    block.add_op(new := build_map(select(is_there, Leaf(after), Leaf(before)), before.type))
    return new.result


def integer(value: int) -> Constant:
    return Constant(IntegerAttr(value, i32))


__all__ = ["BodyInChunks", "after_chunk", "integer", "kept", "with_chunks"]
