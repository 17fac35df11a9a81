"""Sums under an order, `sum_{x <= q} W[q, x] A[x]`: of what lies before each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, FillOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes._functions import label
from treadle.passes.expressions.scalars import Leaf, leaves, number
from treadle.passes.products.conditions import Order, order_of
from treadle.passes.products.sums import FORMATS, Sum, multiples
from treadle.passes.products.weights import Weights, weights_of


@dataclass(frozen=True)
class Prefix(Sum):
    """A sum under an order of numbers that are the same for all rows, but for a power of a sum and a scale."""

    where: WhereOp
    """The first of what stands between."""

    @property
    def start(self) -> WhereOp:
        return self.where

    @property
    def row_axes(self) -> set[str]:
        others = set[str]() if self.other is None else {*axes_of(self.other.type)}
        return {*axes_of(self.outer.result.type)} & {*axes_of(self.where.result.type)} - others

    @property
    def summed(self) -> list[SSAValue]:
        return [] if self.other is None else [self.other]

    @cached_property
    def order(self) -> Order | str:
        return order_of(self)

    @property
    def weights(self) -> Weights:
        rows = () if isinstance(self.order, str) else (self.order.row,)
        return weights_of(self.factors, self.over, rows)

    @property
    def is_one(self) -> bool:
        """Whether nothing but a power and a scale varies along rows."""
        return not isinstance(self.order, str) and self.weights.mixed is None

    def why_not(self) -> str | None:
        """Why it cannot be written in chunks; None if it can."""
        arrays = [*self.summed, *(leaf.value for factor in self.factors for leaf in leaves(factor))]
        if absences_of(arrays):
            return "elements of what is summed may be absent"
        if wrong := [value for value in (self.carried, *self.summed) if str(format_of(value.type)) not in FORMATS]:
            return f"{label(wrong[0])} has numbers of {format_of(wrong[0].type)}"
        kept = self.outer.accumulate if isinstance(self.outer, ContractOp) else format_of(self.outer.result.type)
        if str(kept) != "f32":
            return f"{label(self.outer.result)} is a sum in {kept}"
        if self.other is None and not (self.weights.has_power or leaves(self.weights.weight)):
            return f"{label(self.outer.result)} sums no array"
        return None


def prefixes_from(where: WhereOp) -> list[Prefix] | None:
    """The sums under a condition, if it is an order and nothing else is made of what it leaves."""
    if (found := multiples(where.result)) is None:
        return None
    fill = where.operand.owner
    first = number(fill.number) if isinstance(fill, FillOp) else Leaf(where.operand)
    made = [Prefix((where, *between), (first, *factors), outer, where) for between, factors, outer in found]
    return made if all(each.is_one for each in made) else None


__all__ = ["Prefix", "prefixes_from"]
