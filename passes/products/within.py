"""What stands between a product and its sum, made in chunks: of pairs of a row and what is summed in its own chunk."""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import array_type, format_of
from treadle.passes.products.conditions import Order
from treadle.passes.products.factors import Writer
from treadle.passes.products.positions import InChunks, with_type
from treadle.passes.products.sums import Sum


class Within:
    """Makes arrays along rows in chunks, and along what is summed in the same ones."""

    def __init__(self, order: Order, rows: InChunks, inside: InChunks):
        self.order, self.rows, self.inside = order, rows, inside
        self.made: dict[SSAValue, SSAValue] = {}

    def of(self, value: SSAValue, writer: Writer) -> SSAValue:
        return self.made.get(value) or self.inside.of(self.rows.of(value, writer), writer)

    def carried(self, sum: Sum, writer: Writer) -> SSAValue:
        """What a sum is given."""
        for op in sum.between:
            if op.results[0] not in self.made:
                self.made[op.results[0]] = writer.add(self._copy(op, writer), op.results[0].name_hint)
        return self.made[sum.carried]

    def _copy(self, op: Operation, writer: Writer) -> Operation:
        if isinstance(op, WhereOp):
            text = self.order.text(self.rows.chunks.inner, self.inside.chunks.inner)
            return WhereOp(self.of(op.operand, writer), text)
        type = self.type(op.results[0].type)
        return with_type(op.clone({value: self.of(value, writer) for value in op.operands}), type)

    def start(self, op: Operation, writer: Writer) -> None:
        """Make what the sums start from."""
        (result,) = op.results
        if result not in self.made:
            new = op.clone({value: self.of(value, writer) for value in op.operands})
            self.made[result] = writer.add(with_type(new, self.type(result.type)), result.name_hint)

    def type(self, type: Attribute) -> Attribute:
        """Of an array with rows and what is summed."""
        inside = self.inside.chunks
        sizes: dict[str, int] = {}
        for axis, size in self.rows.chunks.sizes(type).items():
            sizes |= {inside.inner: inside.along} if axis == self.order.summed else {axis: size}
        return array_type(format_of(type), sizes)


__all__ = ["Within"]
