"""Sums under an order, `x <= q`, written in chunks: the states of those that count as a whole, and whole rows again for
whoever is not in chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from typing import Generic, TypeVar

from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, FillOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, axes_of, sizes_of
from treadle.passes.expressions.scalars import Expression, Leaf, build_map, product, substitute
from treadle.passes.products.cuts import Cut
from treadle.passes.products.factors import Writer, weaved
from treadle.passes.products.positions import InChunks, whole_of
from treadle.passes.products.references import at, below, exponents, reference
from treadle.passes.products.sums import Sum
from treadle.passes.products.within import Within

S = TypeVar("S", bound=Sum)


class InCut(Generic[S]):
    """Puts sums in chunks in the place of some, and of what maps make of them."""

    def __init__(self, cut: Cut, parts: int):
        self.cut, self.parts = cut, parts
        self.rows, self.summed, self.inside = InChunks(cut.rows), InChunks(cut.summed), InChunks(cut.inside)
        self.within = Within(cut.order, self.rows, self.inside)
        self.before: list[SSAValue] = []
        """What counts of the states of chunks, each time that they are added up."""

    def sum(self, each: S) -> None:
        """Write one sum in chunks, before the sum that it is."""
        writer = self._written(each)
        self.rows.known[each.outer.result] = writer.made[-1].results[0]
        _insert(each.outer, writer)

    @abstractmethod
    def _written(self, each: S) -> Writer:
        """Operations the last of which makes a sum, in chunks of rows."""

    def _states(self, each: S, summed: list[SSAValue], writer: Writer) -> tuple[SSAValue, Expression]:
        """For each chunk of rows what those add that count as a whole, of the factors that are summed; and what each
        row multiplies that by."""
        cut, hint, weights = self.cut, each.outer.result.name_hint or "sum", each.weights
        scale = self._in_chunks(weights.scale, self.rows, writer)
        over = cut.over(each.over, cut.summed)
        largest = None
        if weights.has_power:
            exponent = exponents(self._in_chunks(weights.summed, self.summed, writer), writer)
            exponent = self.summed.there(exponent, writer)
            largest = reference(exponent, over, writer)
            summed = self._told(each, summed, below(Leaf(exponent), largest), writer)
        state = writer.sum(summed, over, weaved(summed, over))
        state.name_hint = f"{hint}_state"
        if largest is None:
            counted = self._ones(writer)
        else:
            counted, largest = self._decayed(largest, writer)
            scale = product(at(self._in_chunks(weights.row, self.rows, writer), largest), scale)
        self.before.append(counted)
        states = writer.contract(counted, state, [cut.summed.chunk], self._of_rows(state), state)
        states.name_hint = f"{hint}_states"
        return states, scale

    def _told(self, each: S, summed: list[SSAValue], power: Expression, writer: Writer) -> list[SSAValue]:
        """The factors that are summed, times a power told from a reference."""
        return writer.weighed(summed, power)

    def _ones(self, writer: Writer) -> SSAValue:
        """One for each chunk that counts as a whole for one of rows."""
        ones = writer.add(FillOp(FloatAttr(1.0, f32), array_type(f32, self.cut.chunks)), "one")
        return self._counted(ones, writer)

    def _decayed(self, largest: SSAValue, writer: Writer) -> tuple[SSAValue, SSAValue]:
        """Instead, the power of the reference of each of these chunks, told from the largest of these; and that."""
        chunk = self.cut.summed.chunk
        axes = {axis: size for axis, size in sizes_of(largest.type).items() if axis != chunk} | self.cut.chunks
        each = writer.add(build_map(Leaf(largest), array_type(f32, axes)), "references")
        whole = reference(self._counted(each, writer), [chunk], writer)
        decay = writer.add(build_map(below(Leaf(each), whole), each.type), "decay")
        return self._counted(decay, writer), whole

    def _counted(self, value: SSAValue, writer: Writer) -> SSAValue:
        text = self.cut.order.text_of_chunks(self.cut.rows.chunk, self.cut.summed.chunk)
        return writer.add(WhereOp(value, text), "counted")

    def _in_chunks(self, factor: Expression, chunks: InChunks, writer: Writer) -> Expression:
        return substitute(factor, lambda leaf: Leaf(chunks.of(leaf.value, writer)))

    def _of_rows(self, state: SSAValue) -> dict[str, int]:
        """The axes of the states that are added up: for each chunk of rows one."""
        rows, summed = self.cut.rows, self.cut.summed
        sizes = sizes_of(state.type).items()
        return dict((rows.chunk, rows.count) if axis == summed.chunk else (axis, size) for axis, size in sizes)

    def finish(self, block: Block, outers: Sequence[Operation]) -> None:
        """Go on in chunks with what maps make of the sums along their axes, and give all others whole rows."""
        reached = {op.results[0]: op for op in outers}
        for op in list(block.ops):
            if isinstance(op, MapOp | CastOp) and self._goes_on(op, reached.keys()):
                self._go_on(op)
                reached[op.results[0]] = op
        for value, op in reversed(list(reached.items())):
            if any(use.operation not in reached.values() for use in value.uses):
                self._give_whole(value, op, {*reached.values()})
        for op in reversed(list(reached.values())):
            Rewriter.erase_op(op)

    def _goes_on(self, op: MapOp | CastOp, reached: Set[SSAValue]) -> bool:
        """What has more axes than the sums is better made where it is used: exponents, of all pairs of positions."""
        axes = {*axes_of(op.result.type)}
        return not absences_of(op.operands) and any(axes <= {*axes_of(v.type)} for v in op.operands if v in reached)

    def _go_on(self, op: MapOp | CastOp) -> None:
        writer = Writer(op.location)
        self.rows.copy(op, writer)
        _insert(op, writer)

    def _give_whole(self, value: SSAValue, op: Operation, others: set[Operation]) -> None:
        """Let whoever is not in chunks use rows as they were."""
        writer = Writer(op.location)
        whole = whole_of(self.rows.known[value], self.cut.rows, value.type, writer)
        whole.name_hint = value.name_hint
        _insert(op, writer)
        value.replace_uses_with_if(whole, lambda use: use.operation not in others)


def _insert(op: Operation, writer: Writer) -> None:
    for each in writer.made:
        Rewriter.insert_op(each, InsertPoint.before(op))


__all__ = ["InCut"]
