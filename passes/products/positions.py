"""Arrays along an axis, read in chunks: `(chunk, inner)` in the place of `length * chunk + inner`, and in parts of
these: `(chunk, part, inner)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, ExtentOp, FillOp, IndexOp, MapOp, ReadOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, sizes_of
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, Node, build_map
from treadle.passes.products.factors import Writer


@dataclass(frozen=True)
class Chunks:
    """An axis in chunks of one length, the last of which may be short; `count` is DYNAMIC where the launch knows it."""

    axis: str
    size: int
    length: int
    count: int
    chunk: str
    """The axis of the chunks."""
    inner: str
    """The axis along a chunk."""
    whole: str
    """The axis of all chunks together, one after another, which may be longer than the axis."""

    @property
    def within(self) -> dict[str, tuple[int, int]]:
        """The axes within a chunk, each with its size and by how many positions it steps."""
        return {self.inner: (self.length, 1)}

    @property
    def along(self) -> int:
        """The size of the axis `inner`."""
        return self.within[self.inner][0]

    @property
    def position(self) -> str:
        within = "".join(f" + {step} * {axis}" for axis, (_, step) in self.within.items() if step > 1)
        return f"{self.length} * {self.chunk}{within} + {self.inner}"

    @property
    def is_padded(self) -> bool:
        """Whether there may be more positions in the chunks than along the axis."""
        return DYNAMIC in (self.size, self.count) or self.length * self.count > self.size

    def sizes(self, type: Attribute) -> dict[str, int]:
        """The axes of an array where this one is in chunks."""
        found: dict[str, int] = {}
        for axis, size in sizes_of(type).items():
            found |= {self.chunk: self.count, **self.inside} if axis == self.axis else {axis: size}
        return found

    @property
    def inside(self) -> dict[str, int]:
        """The sizes of the axes within a chunk."""
        return {axis: size for axis, (size, _) in self.within.items()}

    def type(self, type: Attribute) -> Attribute:
        return array_type(format_of(type), self.sizes(type))


@dataclass(frozen=True)
class Parted(Chunks):
    """An axis in chunks, each of which is in parts of one length, which divides that of a chunk; `inner` is along a
    part."""

    part: str
    """The axis of the parts of a chunk."""
    part_length: int

    @property
    def within(self) -> dict[str, tuple[int, int]]:
        return {self.part: (self.length // self.part_length, self.part_length), self.inner: (self.part_length, 1)}


def count_of(size: int, length: int) -> int:
    """How many chunks there are of an axis."""
    return DYNAMIC if size == DYNAMIC else -(-size // length)


@dataclass
class InChunks:
    """Makes arrays in chunks: what maps make is made in chunks, of what is read so."""

    chunks: Chunks
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def of(self, value: SSAValue, writer: Writer) -> SSAValue:
        if self.chunks.axis not in axes_of(value.type):
            return value
        if value not in self.known:
            self.known[value] = self._made(value, writer)
            self.known[value].name_hint = value.name_hint
        return self.known[value]

    def copy(self, op: Operation, writer: Writer) -> SSAValue:
        """An operation on arrays in chunks."""
        (result,) = op.results
        for operand in op.operands:
            self.of(operand, writer)
        new = op.clone({operand: self.of(operand, writer) for operand in op.operands})
        self.known[result] = writer.add(with_type(new, self.chunks.type(result.type)), result.name_hint)
        return self.known[result]

    def there(self, value: SSAValue, writer: Writer) -> SSAValue:
        """An array in chunks without elements past the end of the axis."""
        if not self.chunks.is_padded or self.chunks.inner not in axes_of(value.type):
            return value
        text = f"{self.chunks.position} < {self.chunks.axis if self.chunks.size == DYNAMIC else self.chunks.size}"
        inputs: dict[str, SSAValue] = {}
        if self.chunks.size == DYNAMIC:
            inputs[self.chunks.axis] = writer.add(ExtentOp(self.chunks.axis), f"extent_{self.chunks.axis}")
        return writer.add(WhereOp(value, text, inputs), value.name_hint)

    def _made(self, value: SSAValue, writer: Writer) -> SSAValue:
        op = value.owner
        if isinstance(op, MapOp | CastOp):
            return self.copy(op, writer)
        if isinstance(op, FillOp):
            return writer.add(with_type(op.clone(), self.chunks.type(value.type)))
        if isinstance(op, IndexOp):
            return self._positions(value.type, writer)
        place = [self.chunks.position if axis == self.chunks.axis else axis for axis in axes_of(value.type)]
        read = ReadOp(value, ", ".join(place), self.chunks.type(value.type), padded=self.chunks.is_padded)
        return writer.add(read)

    def _positions(self, type: Attribute, writer: Writer) -> SSAValue:
        chunks = self.chunks
        axes = {chunks.chunk: (chunks.count, chunks.length), **chunks.within}
        first, *others = (_stepped(axis, size, step, writer) for axis, (size, step) in axes.items())
        position = reduce(lambda sum, other: Node(arith.AddiOp, (sum, other), i32), others, first)
        return writer.add(build_map(position, chunks.type(type)))


def _stepped(axis: str, size: int, step: int, writer: Writer) -> Expression:
    """The position along an axis, times a number."""
    at = Leaf(writer.add(IndexOp(array_type(i32, {axis: size}))))
    return at if step == 1 else Node(arith.MuliOp, (at, Constant(IntegerAttr(step, i32))), i32)


def whole_of(value: SSAValue, chunks: Chunks, type: Attribute, writer: Writer) -> SSAValue:
    """An array in chunks as one of this type, without what is beyond the end of the axis."""
    if not chunks.is_padded:
        return writer.add(CollapseOp(value, (chunks.chunk, chunks.inner), chunks.axis, type))
    whole = chunks.whole
    length = DYNAMIC if chunks.count == DYNAMIC else chunks.length * chunks.count
    sizes = {whole if axis == chunks.axis else axis: size for axis, size in sizes_of(type).items()}
    sizes[whole] = length
    collapsed = CollapseOp(value, (chunks.chunk, chunks.inner), whole, array_type(format_of(type), sizes))
    return writer.add(ReadOp(writer.add(collapsed, value.name_hint), ", ".join(axes_of(type)), type))


def is_mapped(value: SSAValue) -> bool:
    """Whether an array is made of others by more than casts, and may be no zero where they are."""
    while isinstance(value.owner, CastOp):
        value = value.owner.operand
    return isinstance(value.owner, MapOp | FillOp | IndexOp)


def with_type(op: Operation, type: Attribute) -> Operation:
    """An operation whose one result has another type."""
    if op.results[0].type != type:
        Rewriter.replace_value_with_new_type(op.results[0], type)
    return op


__all__ = ["Chunks", "InChunks", "Parted", "count_of", "is_mapped", "whole_of", "with_type"]
