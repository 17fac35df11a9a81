"""Products of products: `sum_x (sum_d A B) C`, between which stands nothing that is not linear."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.operation import quote
from treadle.passes._functions import label
from treadle.passes.expressions.scalars import axes_in, leaves
from treadle.passes.products.conditions import axes_named
from treadle.passes.products.sums import FORMATS, Sum, multiples
from treadle.passes.products.weights import Weights, weights_of


@dataclass(frozen=True)
class Chain(Sum):
    """A product, what is made of it element by element, and a sum of that, perhaps times another factor."""

    inner: ContractOp

    @property
    def start(self) -> ContractOp:
        return self.inner

    @property
    def far(self) -> SSAValue:
        """The factor of the inner product that the outer sum sums."""
        return self._is_far[0]

    @property
    def near(self) -> SSAValue:
        """Its other factor, which is the same throughout the outer sum."""
        return self._is_far[1]

    @property
    def _is_far(self) -> tuple[SSAValue, SSAValue]:
        left, right = self.inner.lhs, self.inner.rhs
        return (left, right) if {*self.over} & {*axes_of(left.type)} else (right, left)

    @property
    def summed(self) -> list[SSAValue]:
        """The factors that have the axes of the outer sum."""
        return [self.far, *([] if self.other is None else [self.other])]

    @property
    def row_axes(self) -> set[str]:
        return {*axes_of(self.near.type)} - {*axes_of(self.far.type)}

    @cached_property
    def rows(self) -> set[str]:
        """The axes along which the outer sum is of something else: those that a condition names, or without any all
        that both factors of it lack. Axes that the other factor has too are a batch of the product with it."""
        if self.conditions:
            return self.row_axes & {axis for op in self.conditions for axis in axes_named(op)}
        return self.row_axes - ({*axes_of(self.other.type)} if self.other is not None else set[str]())

    @property
    def weights(self) -> Weights:
        """What the outer sum sums, but for the inner product and the other factor."""
        return weights_of(self.factors, self.over, self.rows)

    def why_not(self) -> str | None:
        """Why its factors cannot be multiplied in another order; None if they can."""
        inner, over, other = {*self.inner.over_axes}, {*self.over}, self.other
        far, near = {*axes_of(self.far.type)}, {*axes_of(self.near.type)}
        others = set[str]() if other is None else {*axes_of(other.type)}
        if not over <= far or over & near:
            return f"{quote(self.over)} is not in one factor of {label(self.inner.result)} alone"
        if not inner <= far & near:
            return f"{quote(self.inner.over_axes)} is not in both factors of {label(self.inner.result)}"
        if inner & others:
            return f"'{min(inner & others)}' is another axis in {label(other or self.far)}: give it a name of its own"
        if (others - over) & self.rows:
            return f"every row of {label(self.near)} is multiplied by numbers of its own"
        if (mixed := self.weights.mixed) is not None:
            others = quote(sorted({*axes_in(mixed)} & self.rows))
            return f"a factor of {label(self.carried)} varies along {others} as well as {quote(self.over)}"
        arrays = [self.near, *self.summed]
        arrays += [leaf.value for factor in self.factors for leaf in leaves(factor)]
        if absences_of(arrays):
            return "elements of a factor may be absent"
        return next((reason for reason in map(_why_no_format, arrays) if reason), self._why_no_sum())

    def _why_no_sum(self) -> str | None:
        """Why one of the sums is not made in f32."""
        for op in (self.inner, self.outer):
            kept = op.accumulate if isinstance(op, ContractOp) else format_of(op.result.type)
            if str(kept) != "f32":
                return f"{label(op.result)} is a sum in {kept}"
        return None


def _why_no_format(value: SSAValue) -> str | None:
    format = str(format_of(value.type))
    return None if format in FORMATS else f"{label(value)} has numbers of {format}"


def chains_from(inner: ContractOp) -> list[Chain] | None:
    """The sums of multiples of a product, in program order; None where something else is made of it, too."""
    if inner.init is not None or (found := multiples(inner.result)) is None:
        return None
    return [Chain(*each, inner) for each in found]


__all__ = ["Chain", "chains_from"]
