"""A sum of products with decays along their own sum, under `x <= q`, in chunks, and these in parts.

    sum_{x <= q} sum_d Q K P V  =  sum_{b < c} ...  +  sum_{t <= s} ...      with P = exp(u[q, d] + v[x, d])

Chunks before that of a row are multiplied by their states, `sum_t K exp(v - r) V`, whose columns d decay from chunk to
chunk, each by itself. Pairs in one chunk are as many numbers as there are positions in it, for each d. So a chunk is in
parts: what lies in an earlier part is told from the largest v of these, and is a product of two arrays,

    sum_d (Q exp(u + r)) (K exp(v - r))      with r[i, d] the largest v of the parts before i

and only pairs in one part are made as the program has them, element by element along d.

Sums over d are made in f32, as in the program: what it rounds, if anything, are these. States are multiplied as tf32
where it rounds to 16 bits what is not made any more, both of whose factors are rounded for each d then; in two parts
nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import CollapseOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.passes.expressions.scalars import Expression, Leaf, build_map, product, total
from treadle.passes.products.chunked import InCut
from treadle.passes.products.cuts import Cut
from treadle.passes.products.decayed import Decayed
from treadle.passes.products.factors import Writer, is_exact
from treadle.passes.products.positions import InChunks
from treadle.passes.products.references import at, below, exponents, reference
from treadle.passes.products.within import Within

LAW = "a sum under an order splits at chunks, and at parts of these; associativity of the product"


class DecayChunking(InCut[Decayed]):
    """Puts sums in chunks in the place of those that share an inner product, and of what maps make of them."""

    def __init__(self, cut: Cut, parts: int, part: int):
        super().__init__(cut, parts)
        self.part = part
        self.parted, inside = cut.parted(part)
        self.pairs = Within(cut.order, InChunks(self.parted), InChunks(inside))
        """Of positions in one part."""
        self.across = Within(cut.order, self.pairs.rows, self.inside)
        """Of a position in a part and one of its chunk."""

    def _written(self, each: Decayed) -> Writer:
        outer = each.outer
        writer = Writer(outer.location, is_exact(each) or self.parts > 1)
        before, same = self._before(each, writer), self._same(each, writer)
        writer.add(_sum_of(before, same, sizes_of(before.type)), outer.result.name_hint)
        writer.cast(writer.made[-1].results[0], format_of(outer.result.type))
        return writer

    def _before(self, each: Decayed, writer: Writer) -> SSAValue:
        """What the chunks add that count as a whole."""
        states, near = self._states(each, [self.summed.of(value, writer) for value in each.summed], writer)
        axes = self.cut.rows.sizes(each.outer.result.type)
        result = writer.contract(writer.array(near, "near"), states, each.inner.over_axes, axes)
        result.name_hint = _hint(each, "before")
        return result

    def _told(self, each: Decayed, summed: list[SSAValue], power: Expression, writer: Writer) -> list[SSAValue]:
        weight = self._in_chunks(each.weights.weight, self.summed, writer)
        return [writer.array(product(weight, power), "far"), *summed]

    def _same(self, each: Decayed, writer: Writer) -> SSAValue:
        """What the chunk of a row adds to it."""
        if not self._is_parted:
            return self._pairs(each, self.within, writer)
        rows = self.parted
        one, earlier = self._pairs(each, self.pairs, writer), self._earlier(each, writer)
        both = writer.add(_sum_of(one, earlier, rows.sizes(each.outer.result.type)), _hint(each, "same"))
        type = array_type(f32, self.cut.rows.sizes(each.outer.result.type))
        return writer.add(CollapseOp(both, tuple(rows.within), self.cut.rows.inner, type), _hint(each, "same"))

    @property
    def _is_parted(self) -> bool:
        return self.part < self.cut.rows.length and self.cut.rows.length % self.part == 0

    def _pairs(self, each: Decayed, within: Within, writer: Writer) -> SSAValue:
        """The sum over what is in the same chunk or part, as the program has it."""
        rows, inside = within.rows.chunks, within.inside
        within.start(each.inner, writer)
        carried = inside.there(within.carried(each, writer), writer)
        others = [inside.of(value, writer) for value in each.summed]
        over = self.cut.over(each.over, inside.chunks)
        result = writer.sum([carried, *others], over, rows.sizes(each.outer.result.type))
        result.name_hint = _hint(each, "same")
        return result

    def _earlier(self, each: Decayed, writer: Writer) -> SSAValue:
        """The sum over what is in an earlier part of the same chunk."""
        weights, rows, inside = each.weights, self.pairs.rows, self.inside
        exponent = self._in_chunks(weights.summed, inside, writer)
        largest = reference(self._counted_parts(exponents(exponent, writer), writer), [inside.chunks.inner], writer)
        weight = self._in_chunks(weights.weight, inside, writer)
        far = writer.array(product(weight, below(exponent, largest, some=True)), "far")
        scale = self._in_chunks(weights.scale, rows, writer)
        near = writer.array(product(scale, at(self._in_chunks(weights.row, rows, writer), largest)), "near")
        type = array_type(f32, sizes_of(self.across.type(each.inner.result.type)))
        made = writer.add(ContractOp(near, far, each.inner.over_axes, type, f32), each.inner.result.name_hint)
        carried = writer.cast(self._before_part(made, writer), format_of(each.carried.type))
        others = [inside.of(value, writer) for value in each.summed]
        over = self.cut.over(each.over, inside.chunks)
        result = writer.sum([carried, *others], over, rows.chunks.sizes(each.outer.result.type))
        result.name_hint = _hint(each, "earlier")
        return result

    def _counted_parts(self, exponent: SSAValue, writer: Writer) -> SSAValue:
        """For each part what the chunk has before it."""
        axes: dict[str, int] = {}
        for axis, size in sizes_of(exponent.type).items():
            parts = {self.parted.part: self.parted.inside[self.parted.part]} if axis == self.inside.chunks.inner else {}
            axes |= parts | {axis: size}
        each = writer.add(build_map(Leaf(exponent), array_type(f32, axes)), "exponents")
        return self._before_part(each, writer)

    def _before_part(self, value: SSAValue, writer: Writer) -> SSAValue:
        inner, begin = self.inside.chunks.inner, f"{self.part} * {self.parted.part}"
        text = f"{inner} < {begin}" if self.cut.order.sign > 0 else f"{inner} >= {begin} + {self.part}"
        return self.inside.there(writer.add(WhereOp(value, text), "earlier"), writer)


def _sum_of(one: SSAValue, other: SSAValue, sizes: Mapping[str, int]) -> MapOp:
    return build_map(total(Leaf(one), Leaf(other)), array_type(f32, sizes))


def _hint(each: Decayed, part: str) -> str:
    return f"{each.outer.result.name_hint or 'sum'}_{part}"


__all__ = ["LAW", "DecayChunking"]
