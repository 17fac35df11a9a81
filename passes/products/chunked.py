"""Two axes that a condition orders, `x <= q`, in chunks of one length: q as `(c, s)`, and x as `(b, t)`, or as `(c, t)`
in the chunk of its row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, FillOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.passes.expressions.scalars import Expression, Leaf, build_map, product, substitute
from treadle.passes.products.conditions import Order
from treadle.passes.products.factors import Writer, weaved
from treadle.passes.products.positions import Chunks, InChunks, count_of, whole_of, with_type
from treadle.passes.products.references import at, below, exponents, reference
from treadle.passes.products.sums import Sum


@dataclass(frozen=True)
class Cut:
    """Two axes that a condition orders, in chunks of one length: rows `(c, s)`, and what is summed as `(b, t)`, and as
    `(c, t)` where it is in the chunk of its row."""

    order: Order
    rows: Chunks
    summed: Chunks
    inside: Chunks


def cut_of(order: Order, chain: Sum, length: int, taken: set[str]) -> Cut:
    """Chunks with names of their own."""
    rows, summed = sizes_of(chain.outer.result.type)[order.row], sizes_of(chain.carried.type)[order.summed]
    names = [f"{order.row}_chunk", f"{order.row}_in", f"{order.summed}_chunk", f"{order.summed}_in"]
    c, s, b, t = (_fresh(name, taken) for name in names)
    q, x = (_fresh(f"{axis}_whole", taken) for axis in (order.row, order.summed))
    count = count_of(rows, length)
    return Cut(
        order,
        Chunks(order.row, rows, length, count, c, s, q),
        Chunks(order.summed, summed, length, count_of(summed, length), b, t, x),
        Chunks(order.summed, summed, length, count, c, t, x),
    )


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


S = TypeVar("S", bound=Sum)


class InCut(Generic[S]):
    """Puts sums in chunks in the place of some, and of what maps make of them."""

    def __init__(self, cut: Cut, parts: int):
        self.cut, self.parts = cut, parts
        self.rows, self.summed, self.inside = InChunks(cut.rows), InChunks(cut.summed), InChunks(cut.inside)
        self.same: dict[SSAValue, SSAValue] = {}
        """What is made within chunks of what the sums start from."""
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
        over = [cut.summed.inner if axis == cut.order.summed else axis for axis in each.over]
        largest = None
        if weights.has_power:
            exponent = exponents(self._in_chunks(weights.summed, self.summed, writer), writer)
            exponent = self.summed.there(exponent, writer)
            largest = reference(exponent, over, writer)
            summed = writer.weighed(summed, below(exponent, largest))
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

    def _ones(self, writer: Writer) -> SSAValue:
        """One for each chunk that counts as a whole for one of rows."""
        ones = writer.add(FillOp(FloatAttr(1.0, f32), array_type(f32, self._chunks)), "one")
        return self._counted(ones, writer)

    def _decayed(self, largest: SSAValue, writer: Writer) -> tuple[SSAValue, SSAValue]:
        """Instead, the power of the reference of each of these chunks, told from the largest of these; and that."""
        chunk = self.cut.summed.chunk
        axes = {axis: size for axis, size in sizes_of(largest.type).items() if axis != chunk} | self._chunks
        each = writer.add(build_map(Leaf(largest), array_type(f32, axes)), "references")
        whole = reference(self._counted(each, writer), [chunk], writer)
        decay = writer.add(build_map(below(each, whole), each.type), "decay")
        return self._counted(decay, writer), whole

    def _counted(self, value: SSAValue, writer: Writer) -> SSAValue:
        text = self.cut.order.text_of_chunks(self.cut.rows.chunk, self.cut.summed.chunk)
        return writer.add(WhereOp(value, text), "counted")

    @property
    def _chunks(self) -> dict[str, int]:
        """The axes of chunks, of rows and of what is summed."""
        rows, summed = self.cut.rows, self.cut.summed
        return {rows.chunk: rows.count, summed.chunk: summed.count}

    def _between(self, op: Operation, writer: Writer) -> Operation:
        type = self._type(op.results[0].type)
        if isinstance(op, WhereOp):
            text = self.cut.order.text(self.cut.rows.inner, self.cut.inside.inner)
            return WhereOp(self._inside(op.operand, writer), text)
        return with_type(op.clone({value: self._inside(value, writer) for value in op.operands}), type)

    def _inside(self, value: SSAValue, writer: Writer) -> SSAValue:
        return self.same.get(value) or self.inside.of(self.rows.of(value, writer), writer)

    def _in_chunks(self, factor: Expression, chunks: InChunks, writer: Writer) -> Expression:
        return substitute(factor, lambda leaf: Leaf(chunks.of(leaf.value, writer)))

    def _of_rows(self, state: SSAValue) -> dict[str, int]:
        """The axes of the states that are added up: for each chunk of rows one."""
        rows, summed = self.cut.rows, self.cut.summed
        sizes = sizes_of(state.type).items()
        return dict((rows.chunk, rows.count) if axis == summed.chunk else (axis, size) for axis, size in sizes)

    def _type(self, type: Attribute) -> Attribute:
        """Of an array with rows and what is summed, within chunks."""
        order, inside = self.cut.order, self.cut.inside
        sizes: dict[str, int] = {}
        for axis, size in self.cut.rows.sizes(type).items():
            sizes |= {inside.inner: inside.length} if axis == order.summed else {axis: size}
        return array_type(format_of(type), sizes)

    def finish(self, block: Block, outers: Sequence[Operation]) -> None:
        """Go on in chunks with what maps make of the sums, and give all others whole rows."""
        reached = {op.results[0]: op for op in outers}
        for op in list(block.ops):
            if (
                isinstance(op, MapOp | CastOp)
                and not reached.keys().isdisjoint(op.operands)
                and not absences_of(op.operands)
            ):
                self._go_on(op)
                reached[op.results[0]] = op
        for value, op in reversed(list(reached.items())):
            if any(use.operation not in reached.values() for use in value.uses):
                self._give_whole(value, op, {*reached.values()})
        for op in reversed(list(reached.values())):
            Rewriter.erase_op(op)

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


__all__ = ["Cut", "InCut", "cut_of"]
