"""Associativity: `(A B) C = A (B C)`."""

from __future__ import annotations

from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.passes._functions import replace
from treadle.passes.expressions.scalars import Leaf, product
from treadle.passes.products.chains import Chain
from treadle.passes.products.factors import weaved, writer_of
from treadle.passes.products.references import at, below, exponents, reference

LAW = "associativity of the product"


def reorder(chain: Chain, parts: int = 1) -> None:
    """Sum what the outer sum sums first: over it there is one state of the sum, not one for each row."""
    writer, outer = writer_of(chain, parts), chain.outer
    weights = chain.weights
    summed, scale = writer.weighed(chain.summed, weights.weight), weights.scale
    if weights.has_power:
        exponent = exponents(weights.summed, writer)
        largest = reference(exponent, chain.over, writer)
        summed, scale = writer.weighed(summed, below(Leaf(exponent), largest)), product(at(weights.row, largest), scale)
    state = writer.sum(summed, chain.over, weaved(summed, chain.over))
    state.name_hint = f"{outer.result.name_hint or 'sum'}_state"
    result = writer.contract(chain.near, state, chain.inner.over_axes, sizes_of(outer.result.type), state)
    result.name_hint = outer.result.name_hint
    result = writer.cast(writer.scaled(result, scale), format_of(outer.result.type))
    replace(outer, writer.made, result)


__all__ = ["LAW", "reorder"]
