"""A sum under `x <= q` splits at the borders of chunks, by associativity: what a whole chunk adds is summed once, for
all chunks behind it.

    sum_{x <= q} A  =  sum_{b < c} sum_t A  +  sum_{t <= s} A        with q = (c, s), x = (b, t) and (c, t)

The first is a sum under an order again, of as many elements as there are chunks. Both are written as products with ones
where the order lets an element count, in f32: kernels read what they multiply once for a tile of rows."""

from __future__ import annotations

from xdsl.dialects import math
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import CastOp, FillOp, MapOp, ReadOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    build_map,
    convert,
    leaves,
    number,
    power_of,
    product,
    total,
)
from treadle.passes.products.chunked import InCut
from treadle.passes.products.factors import Writer, weaved, writer_of
from treadle.passes.products.positions import InChunks, is_mapped
from treadle.passes.products.prefixes import Prefix

LAW = "a sum under an order splits at chunks; associativity of the sum"


class PrefixChunking(InCut[Prefix]):
    """Puts sums in chunks in the place of those under one condition, and of what maps make of them."""

    def _written(self, each: Prefix) -> Writer:
        """What the chunks before that of a row add, and what its own adds."""
        writer, outer = writer_of(each, self.parts), each.outer
        there = self._rows_there(each, writer)
        states, scale = self._states(each, self._factors(each, writer), writer)
        if each.other is not None and str(format_of(each.other.type)) in SIXTEEN_BIT:
            same = self._within(each, each.other, writer)
        else:
            within = self._within_in_f32(each, writer)
            same = writer.scaled(within, self._in_chunks(each.weights.scale, self.rows, writer))
        both = product(total(Leaf(writer.scaled(states, scale)), Leaf(same)), there)
        type = array_type(f32, self.cut.rows.sizes(outer.result.type))
        writer.add(build_map(both, type), outer.result.name_hint)
        return writer

    def _rows_there(self, each: Prefix, writer: Writer) -> Expression:
        """Read first what tells how many chunks of rows there are, if only the launch knows: a factor of each row, or
        what is summed where that lies along rows under another name. Else ones are, which count as a factor."""
        rows, weights = self.cut.rows, each.weights
        of_rows = [leaf.value for part in (weights.scale, weights.row) for leaf in leaves(part)]
        if known := [value for value in of_rows if rows.axis in axes_of(value.type)]:
            self.rows.of(known[0], writer)
            return number(1)
        summed = [*each.summed, *(leaf.value for leaf in leaves(weights.weight))]
        if same := [value for value in summed if self._lies_along_rows(value)]:
            self.inside.of(same[0], writer)
            return number(1)
        if rows.count != DYNAMIC:
            return number(1)
        along = array_type(f32, {rows.axis: rows.size})
        ones = writer.add(build_map(Leaf(writer.add(FillOp(FloatAttr(1.0, f32), along), "one")), along), "row")
        type = array_type(f32, {rows.chunk: rows.count, rows.inner: rows.length})
        return Leaf(writer.add(ReadOp(ones, rows.position, type, padded=True), "row"))

    def _lies_along_rows(self, value: SSAValue) -> bool:
        """Whether an array is read of one with the axis of rows, all of which is the axis that is summed."""
        op = value.owner
        if isinstance(op, MapOp | CastOp):
            return any(self._lies_along_rows(operand) for operand in op.operands)
        if not isinstance(op, ReadOp) or op.is_padded:
            return False
        place = dict(zip(axes_of(op.operand.type), op.place.forms, strict=True))
        return place.get(self.cut.order.row) == Linear({self.cut.order.summed: 1}, 0)

    def _factors(self, each: Prefix, writer: Writer) -> list[SSAValue]:
        """What is summed, in chunks, times what is the same for all rows."""
        weight = self._in_chunks(each.weights.weight, self.summed, writer)
        summed = self._value(each, weight, self.summed, writer)
        return [self.summed.there(summed, writer) if is_mapped(summed) else summed]

    def _value(self, each: Prefix, weight: Expression, chunks: InChunks, writer: Writer) -> SSAValue:
        if each.other is None:
            return self._array(weight, chunks, writer)
        return writer.weighed([chunks.of(each.other, writer)], weight)[0]

    def _array(self, factor: Expression, chunks: InChunks, writer: Writer) -> SSAValue:
        """A factor in f32; along the chunks if it varies with nothing."""
        if isinstance(factor, Leaf) and format_of(factor.value.type) == f32:
            return factor.value
        cut = chunks.chunks
        sizes = weaved([leaf.value for leaf in leaves(factor)], ()) or {cut.chunk: cut.count, cut.inner: cut.length}
        return writer.add(build_map(convert(factor, f32), array_type(f32, sizes)), "summed")

    def _within(self, each: Prefix, other: SSAValue, writer: Writer) -> SSAValue:
        """The sum over the chunk of a row, of what the program multiplies in 16 bits."""
        return self._product(each, self.within.carried(each, writer), self.inside.of(other, writer), writer)

    def _within_in_f32(self, each: Prefix, writer: Writer) -> SSAValue:
        """The same in f32: ones, or powers, times what is the same for all rows."""
        cut, weights = self.cut, each.weights
        value = self._value(each, self._in_chunks(weights.weight, self.inside, writer), self.inside, writer)
        counts: dict[str, int] = {cut.rows.inner: cut.rows.length, cut.inside.inner: cut.inside.length}
        if weights.has_power:
            row = self._in_chunks(weights.row, self.rows, writer)
            power = power_of(math.ExpOp, total(row, self._in_chunks(weights.summed, self.inside, writer)))
            counts = weaved([leaf.value for leaf in leaves(power)], counts) | counts
            ones = writer.add(build_map(power, array_type(f32, counts)), "power")
        else:
            ones = writer.add(FillOp(FloatAttr(1.0, f32), array_type(f32, counts)), "one")
        within = writer.add(WhereOp(ones, cut.order.text(cut.rows.inner, cut.inside.inner)), "within")
        return self._product(each, within, value, writer)

    def _there(self, value: SSAValue, writer: Writer) -> SSAValue:
        """What maps make of zeros past the end of the axis is absent there."""
        made_in_chunks = is_mapped(value) and self.cut.inside.chunk in axes_of(value.type)
        return self.inside.there(value, writer) if made_in_chunks else value

    def _product(self, each: Prefix, left: SSAValue, right: SSAValue, writer: Writer) -> SSAValue:
        over = self.cut.over(each.over, self.cut.inside)
        left, right = (self._there(value, writer) for value in (left, right))
        rows, given = self.cut.rows.sizes(each.outer.result.type), {*axes_of(left.type), *axes_of(right.type)}
        result = writer.contract(left, right, over, {axis: size for axis, size in rows.items() if axis in given}, right)
        result.name_hint = f"{each.outer.result.name_hint or 'sum'}_same"
        return result


__all__ = ["LAW", "PrefixChunking"]
