"""Associativity: `(A B) C = A (B C)`."""

from __future__ import annotations

from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.passes._functions import replace
from treadle.passes.products.chains import Chain
from treadle.passes.products.factors import weaved, writer_of

LAW = "associativity of the product"


def reorder(chain: Chain) -> None:
    """Sum what the outer sum sums first: over it there is one state of the sum, not one for each row."""
    writer, outer = writer_of(chain), chain.outer
    far = writer.scaled(chain.far, chain.weight)
    state = writer.sum(far, chain.other, chain.over, weaved(chain.summed, chain.over))
    state.name_hint = f"{outer.result.name_hint or 'sum'}_state"
    result = writer.contract(chain.near, state, chain.inner.over_axes, sizes_of(outer.result.type))
    result.name_hint = outer.result.name_hint
    result = writer.cast(writer.scaled(result, chain.scale), format_of(outer.result.type))
    replace(outer, writer.made, result)


__all__ = ["LAW", "reorder"]
