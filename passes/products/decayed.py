"""Products with decays along the axis that they sum: `sum_x (sum_d Q[q, d] K[x, d] exp(a[q, d] - a[x, d])) V`.

The weight varies with rows, with what the outer sum sums, and along d: so the inner product is none of two arrays, and
is written as a map and a sum over d, or as a product one factor of which a map makes. What it multiplies is taken apart
as what stands between two products is: `Q`, which is the same throughout the outer sum, `K`, the same for all rows, and
a power of a sum of both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.operation import quote
from treadle.passes._functions import label
from treadle.passes.expressions.scalars import Expression, Leaf, axes_in, leaves
from treadle.passes.products.conditions import axes_named
from treadle.passes.products.sums import FORMATS, Sum, multiples
from treadle.passes.products.weights import Weights, weights_of


@dataclass(frozen=True)
class Decayed(Sum):
    """A sum of products times a power of a sum, what is made of it element by element, and a sum of that, perhaps times
    another factor."""

    inner: ContractOp | ReduceOp

    @property
    def start(self) -> ContractOp | ReduceOp:
        return self.inner

    @property
    def summed(self) -> list[SSAValue]:
        return [] if self.other is None else [self.other]

    @property
    def row_axes(self) -> set[str]:
        others = {axis for value in self.summed for axis in axes_of(value.type)}
        return {*axes_of(self.inner.result.type)} - {*self.over} - others

    @cached_property
    def rows(self) -> set[str]:
        """The axes that a condition names, or without any all along which the outer sum is of something else."""
        named = {axis for op in self.conditions for axis in axes_named(op)}
        return self.row_axes & named if self.conditions else self.row_axes

    @property
    def weights(self) -> Weights:
        """All that the outer sum sums but for the other factor, the inner product included: `scale` and `row` have rows
        and the axes of the inner sum, `weight` and `summed` have these and what the outer sum sums."""
        return weights_of((*self._multiplied, *self.factors), self.over, self.rows)

    @property
    def decays(self) -> bool:
        """Whether what the inner sum sums has a power that varies with rows as well as what the outer one sums."""
        return weights_of(self._multiplied, self.over, self.rows).has_power

    @property
    def _multiplied(self) -> list[Expression]:
        return [Leaf(value) for value in self.inner.operands]

    def why_not(self) -> str | None:
        """Why its factors cannot be multiplied in another order; None if they can."""
        inner, over, other, weights = {*self.inner.over_axes}, {*self.over}, self.other, self.weights
        others = set[str]() if other is None else {*axes_of(other.type)}
        near, far = ({*axes_in(one), *axes_in(two)} for one, two in _sides(weights))
        if weights.mixed is not None:
            along = quote(sorted({*axes_in(weights.mixed)} & self.rows))
            return f"a factor of {label(self.carried)} varies along {along} as well as {quote(self.over)}"
        if not over <= far:
            return f"{quote(self.over)} is not in one factor of {label(self.inner.result)} alone"
        if not inner <= far & near:
            return f"{quote(self.inner.over_axes)} is not in both factors of {label(self.inner.result)}"
        if inner & others:
            return (
                f"'{min(inner & others)}' is another axis in {label(other or self.carried)}: give it a name of its own"
            )
        if (others - over) & self.rows:
            return f"every row of {label(self.carried)} is multiplied by numbers of its own"
        arrays = [*self.inner.operands, *self.summed]
        arrays += [leaf.value for factor in self.factors for leaf in leaves(factor)]
        if absences_of(arrays):
            return "elements of a factor may be absent"
        if wrong := next((value for value in arrays if str(format_of(value.type)) not in FORMATS), None):
            return f"{label(wrong)} has numbers of {format_of(wrong.type)}"
        return self._why_no_sum()

    def _why_no_sum(self) -> str | None:
        """Why one of the sums is not made in f32, or is no sum under an order."""
        for op in (self.inner, self.outer):
            kept = op.accumulate if isinstance(op, ContractOp) else format_of(op.result.type)
            if str(kept) != "f32":
                return f"{label(op.result)} is a sum in {kept}"
        return None if self.conditions else f"no conditions stand before {label(self.outer.result)}"


def _sides(weights: Weights) -> tuple[tuple[Expression, Expression], tuple[Expression, Expression]]:
    """What is the same throughout the outer sum, and what is the same for all rows, each with its exponent."""
    return (weights.scale, weights.row), (weights.weight, weights.summed)


def decayed_from(inner: ContractOp | ReduceOp) -> list[Decayed] | None:
    """The sums of multiples of a product with decays along its own sum, in program order; None where it has none, or
    something else is made of it, too."""
    if inner.init is not None or (isinstance(inner, ReduceOp) and inner.kind.data != "add"):
        return None
    if (found := multiples(inner.result)) is None:
        return None
    made = [Decayed(*each, inner) for each in found]
    return made if all(each.decays for each in made) else None


__all__ = ["Decayed", "decayed_from"]
