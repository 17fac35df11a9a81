"""A sum of products under `x <= q` splits at the borders of chunks: over the chunks before that of q, and over the same
chunk.

    sum_{x <= q} S V  =  sum_{b < c} sum_t S V  +  sum_{t <= s} S V        with q = (c, s), x = (b, t) and (c, t)

In the first sum no condition stands between the products, so that associativity holds: each chunk has one state, and
those of earlier chunks are added up."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import array_type, format_of
from treadle.passes.expressions.scalars import Leaf, build_map, is_number, total
from treadle.passes.products.chains import Chain
from treadle.passes.products.chunked import InCut
from treadle.passes.products.factors import Writer, writer_of
from treadle.passes.products.positions import is_mapped

LAW = "a sum under an order splits at chunks; associativity of the product"


class Chunking(InCut[Chain]):
    """Puts sums in chunks in the place of those that share an inner product, and of what maps make of them."""

    def _written(self, each: Chain) -> Writer:
        writer, outer = writer_of(each, self.parts), each.outer
        near = self.rows.of(each.near, writer)
        before, same = self._before(each, near, writer), self._same(each, writer)
        both = build_map(total(Leaf(before), Leaf(same)), array_type(f32, self.cut.rows.sizes(outer.result.type)))
        writer.cast(writer.add(both, outer.result.name_hint), format_of(outer.result.type))
        return writer

    def _before(self, chain: Chain, near: SSAValue, writer: Writer) -> SSAValue:
        """What the chunks add that count as a whole."""
        states, scale = self._states(chain, self._factors(chain, writer), writer)
        axes = self.cut.rows.sizes(chain.outer.result.type)
        result = writer.contract(near, states, chain.inner.over_axes, axes, states)
        result.name_hint = f"{chain.outer.result.name_hint or 'sum'}_before"
        return writer.scaled(result, scale)

    def _same(self, chain: Chain, writer: Writer) -> SSAValue:
        """What the chunk of a row adds to it."""
        cut = self.cut
        _, *others = (self.inside.of(value, writer) for value in chain.summed)
        self.within.start(chain.inner, writer)
        carried, axes = self.within.carried(chain, writer), cut.rows.sizes(chain.outer.result.type)
        if _is_weighed(chain) or any(is_mapped(value) for value in chain.summed):
            carried = self.inside.there(carried, writer)
        result = writer.sum([carried, *others], cut.over(chain.over, cut.inside), axes)
        result.name_hint = f"{chain.outer.result.name_hint or 'sum'}_same"
        return result

    def _factors(self, chain: Chain, writer: Writer) -> list[SSAValue]:
        """What is summed, in chunks, times what is the same for all rows. Zeros are read past the end of the axis, of
        which maps make something: what they make is absent there."""
        values = [self.summed.of(value, writer) for value in chain.summed]
        weighed = writer.weighed(values, self._in_chunks(chain.weights.weight, self.summed, writer))
        return [
            self.summed.there(found, writer) if found is not read or is_mapped(value) else found
            for value, read, found in zip(chain.summed, values, weighed, strict=True)
        ]


def _is_weighed(chain: Chain) -> bool:
    """Whether what is summed is multiplied by more than the other factor."""
    return not is_number(chain.weights.weight, 1) or chain.weights.has_power


__all__ = ["LAW", "Chunking"]
