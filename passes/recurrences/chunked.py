"""A recurrence with affine steps, written in chunks: what a chunk makes of any state, the states before each chunk, and
what is made of the positions of all chunks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FloatAttr, f32, i32
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import (
    ExtentOp,
    FillOp,
    IndexOp,
    RecurrenceOp,
    YieldOp,
)
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, is_array, sizes_of
from treadle.dialects.diagram.recurrence import at_position
from treadle.passes._functions import derived_hint, erase_dead, label, note, replace
from treadle.passes._recurrences import spread
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    build_map,
    compare,
    number,
    select,
)
from treadle.passes.products.factors import Writer
from treadle.passes.products.positions import Chunks, InChunks, count_of, whole_of
from treadle.passes.recurrences.affine import LAW, Affine, is_along
from treadle.passes.recurrences.bodies import BodyInChunks, after_chunk, integer, kept, with_chunks
from treadle.passes.recurrences.linear import linear_part

Values = dict[SSAValue, SSAValue]


def chunk(function: func.FuncOp, found: Affine, rewrite: str, why: str) -> None:
    """Take a recurrence in chunks of the length that it is found with."""
    op, name = found.op, label(found.value)
    values = _Chunked(found).written()
    replace(op, [], *values)
    erase_dead(function.body.block)
    note(function, rewrite, f"{name} along {found.axis}, in chunks of {found.length}", LAW, why)


@dataclass(frozen=True)
class _Names:
    """Axes that no array around has."""

    taken: set[str]

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


class _Chunked:
    """Writes one recurrence in chunks, before it."""

    def __init__(self, found: Affine):
        self.op, axis = found.op, found.axis
        self.axis = axis
        self.writer = Writer(self.op.location)
        block = self.op.parent
        assert isinstance(block, Block)
        self.names = _Names(_axes_in(block))
        names = (self.names.fresh(f"{axis}_{what}") for what in ("chunk", "in", "whole"))
        count = count_of(found.size, found.length)
        self.chunks = Chunks(axis, found.size, found.length, count, *names)
        self.in_chunks = InChunks(self.chunks)
        self.inputs: list[SSAValue] = []
        self.present: SSAValue | None = None

    def written(self) -> list[SSAValue]:
        """What stands for the results."""
        op = self.op
        self.inputs = [self._of(value) for value in op.inputs]
        needs = op.is_reverse or any(value.uses for value in op.last)
        guard = self._present() if self.chunks.is_padded and needs else None
        factors = [self._factor(place, guard) for place in range(len(op.states))]
        states, before = self._states(factors, self._parts(guard))
        outputs = self._outputs(before, guard if op.is_reverse else None)
        for each in self.writer.made:
            Rewriter.insert_op(each, InsertPoint.before(op))
        return [*states, *outputs]

    def _of(self, value: SSAValue) -> SSAValue:
        if not is_array(value.type):
            return value
        return self.in_chunks.of(value, self.writer)

    # -- what a chunk makes of a state -------------------------------------------------------------------

    def _present(self) -> SSAValue:
        """One at positions of chunks that the axis has, and else zero."""
        if self.present is None:
            self.present = self._positions()
        return self.present

    def _positions(self) -> SSAValue:
        chunks, add = self.chunks, self.writer.add
        chunk, inner = (
            add(IndexOp(array_type(i32, {axis: size})), axis)
            for axis, size in ((chunks.chunk, chunks.count), (chunks.inner, chunks.length))
        )
        begin = Node(arith.MuliOp, (Leaf(chunk), integer(chunks.length)), i32)
        at = Node(arith.AddiOp, (begin, Leaf(inner)), i32)
        end = Leaf(add(ExtentOp(self.axis), f"extent_{self.axis}")) if chunks.size == DYNAMIC else integer(chunks.size)
        there = select(compare(at, "<", end), integer(1), integer(0))
        sizes = {chunks.chunk: chunks.count, **chunks.inside}
        return add(build_map(there, array_type(i32, sizes)), "present")

    def _factor(self, place: int, guard: SSAValue | None) -> tuple[SSAValue, dict[str, str]]:
        """By what each chunk multiplies a state, and the second names of axes along which elements meet."""
        part = linear_part(self.op, place)
        state = self.op.states[place]
        second = {axis: self.names.fresh(f"{axis}_from") for axis in part.mixed}
        sizes = sizes_of(state.type)
        extra = {new: sizes[old] for old, new in second.items()}
        type = array_type(f32, with_chunks(self.chunks, {axis: sizes[axis] for axis in part.varying} | extra))
        body = BodyInChunks(part.block, self.inputs, self.chunks, part.dependent, {*sizes} - {*part.varying}, extra)
        result = body.retyped(part.result)
        if guard is not None:
            result = kept(part.block, result, part.block.args[0], self._argument(part.block, guard))
        part.block.add_op(YieldOp(result))
        start = self._identity(type, second)
        (factor,) = self._recurrence(self.chunks.inner, [start], self._fed(guard), [type], part.block)
        factor.name_hint = derived_hint(self.op.last[place], "factor")
        return factor, second

    def _identity(self, type: Attribute, second: dict[str, str]) -> SSAValue:
        """What multiplies a state by one."""
        one: Expression = number(1.0)
        if not second:
            return self.writer.add(FillOp(FloatAttr(1.0, f32), type), "one")
        sizes = sizes_of(type)
        for axes in second.items():
            old, new = (Leaf(self.writer.add(IndexOp(array_type(i32, {a: sizes[a]})), f"at_{a}")) for a in axes)
            one = select(compare(old, "==", new), one, number(0.0))
        return self.writer.add(build_map(one, type), "identity")

    def _parts(self, guard: SSAValue | None) -> list[SSAValue]:
        """What each chunk adds to states: what it makes of none."""
        states = [self._zero(value) for value in self.op.states]
        block = self._body(guard, with_outputs=False)
        found = self._recurrence(self.chunks.inner, states, self._fed(guard), [each.type for each in states], block)
        for value, last in zip(found, self.op.last, strict=True):
            value.name_hint = derived_hint(last, "part")
        return found

    def _zero(self, state: SSAValue) -> SSAValue:
        type = array_type(f32, with_chunks(self.chunks, sizes_of(state.type)))
        return self.writer.add(FillOp(FloatAttr(0.0, f32), type), "none")

    # -- from chunk to chunk -----------------------------------------------------------------------------

    def _states(
        self, factors: Sequence[tuple[SSAValue, dict[str, str]]], parts: Sequence[SSAValue]
    ) -> tuple[list[SSAValue], list[SSAValue]]:
        """The states after the last chunk, and those before each."""
        op, chunk = self.op, self.chunks.chunk
        fed = [*(value for value, _ in factors), *parts]
        block = Block(
            arg_types=[
                *(at_position(each.type, chunk) for each in op.states),
                *(at_position(each.type, chunk) for each in fed),
            ]
        )
        count = len(op.states)
        before = block.args[:count]
        for argument, value in zip(block.args, (*op.states, *fed), strict=True):
            argument.name_hint = value.name_hint
        after = [
            after_chunk(block, before[i], block.args[count + i], block.args[2 * count + i], factors[i][1])
            for i in range(count)
        ]
        block.add_op(YieldOp(*after, *before))
        saved = [array_type(f32, with_chunks(self.chunks, sizes_of(each.type))) for each in op.states]
        found = self._recurrence(chunk, op.states, fed, [*(each.type for each in op.last), *saved], block)
        for value, last in zip(found, (*op.last, *op.last), strict=True):
            value.name_hint = last.name_hint
        for value, last in zip(found[count:], op.last, strict=True):
            value.name_hint = derived_hint(last, "before")
        return found[:count], found[count:]

    # -- positions of all chunks -------------------------------------------------------------------------

    def _outputs(self, before: Sequence[SSAValue], guard: SSAValue | None) -> list[SSAValue]:
        """What is made of positions, the states before each chunk being known."""
        op = self.op
        if not any(value.uses for value in op.outputs):
            return list(op.outputs)
        types = [*(each.type for each in before), *(self.chunks.type(value.type) for value in op.outputs)]
        block = self._body(guard, with_outputs=True)
        found = self._recurrence(self.chunks.inner, before, self._fed(guard), types, block)[len(before) :]
        wholes: list[SSAValue] = []
        for value, output in zip(found, op.outputs, strict=True):
            value.name_hint = derived_hint(output, "chunks")
            wholes.append(whole_of(value, self.chunks, output.type, self.writer))
        return wholes

    # -- bodies ------------------------------------------------------------------------------------------

    def _body(self, guard: SSAValue | None, with_outputs: bool) -> Block:
        """What happens at a position of each chunk."""
        count = len(self.op.states)
        region = self.op.body.clone()
        block = region.detach_block(0)
        terminator = block.last_op
        assert terminator is not None
        yielded = list(terminator.operands)
        terminator.detach()
        terminator.erase()
        body = BodyInChunks(block, self.inputs, self.chunks, {*block.args[:count]})
        yielded = [body.retyped(value) for value in yielded]
        states, outputs = yielded[:count], yielded[count:] if with_outputs else []
        if guard is not None:
            present = self._argument(block, guard)
            states = [kept(block, new, old, present) for new, old in zip(states, block.args, strict=False)]
        for i, (value, output) in enumerate(zip(outputs, self.op.outputs, strict=False)):
            if self.chunks.chunk not in axes_of(value.type):
                type = at_position(self.chunks.type(output.type), self.chunks.inner)
                block.add_op(same := spread(value, type))
                outputs[i] = same.result
        block.add_op(YieldOp(*states, *outputs))
        return block

    def _fed(self, guard: SSAValue | None) -> list[SSAValue]:
        return self.inputs if guard is None else [*self.inputs, guard]

    def _argument(self, block: Block, value: SSAValue) -> SSAValue:
        argument = block.insert_arg(at_position(value.type, self.chunks.inner), len(block.args))
        argument.name_hint = value.name_hint
        return argument

    def _recurrence(
        self,
        axis: str,
        states: Sequence[SSAValue],
        inputs: Sequence[SSAValue],
        types: Sequence[Attribute],
        block: Block,
    ) -> list[SSAValue]:
        for each in block.ops:
            each.location = self.op.location
        erase_dead(block)
        used = self._used(axis, len(states), inputs, block)
        new = RecurrenceOp(axis, states, used, types, Region(block), self.op.is_reverse)
        new.location = self.op.location
        self.writer.made.append(new)
        return list(new.results)

    def _used(self, axis: str, count: int, inputs: Sequence[SSAValue], block: Block) -> list[SSAValue]:
        """What the body uses of what it is fed, its arguments for the rest being dropped. Something has to say how many
        positions there are."""
        used = [value for value, given in zip(inputs, block.args[count:], strict=True) if given.uses]
        for given in reversed(block.args[count:]):
            if not given.uses:
                block.erase_arg(given)
        if not any(is_along(value, axis) for value in used):
            used.append(self._present())
            self._argument(block, used[-1])
        return used


def _axes_in(block: Block) -> set[str]:
    values = [*block.args, *(value for op in block.walk() for value in op.results)]
    return {axis for value in values if is_array(value.type) for axis in axes_of(value.type)}


__all__ = ["chunk"]
