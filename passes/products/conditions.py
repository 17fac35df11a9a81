"""Conditions that order the positions along two axes: `x <= q`."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.condition import AtLeastZero, Linear, Read, axis_in, terms_of
from treadle.passes._functions import label
from treadle.passes.products.sums import Sum


@dataclass(frozen=True)
class Order:
    """Which positions along `summed` count for one along `row`."""

    row: str
    summed: str
    sign: int
    """1 where earlier positions count, -1 where later ones do."""
    strict: bool
    """Whether the same position does not."""

    def text(self, row: str, summed: str) -> str:
        """The condition, over other axes."""
        return f"{summed} {self.relation} {row}"

    def text_of_chunks(self, row: str, summed: str) -> str:
        """Which chunks count as a whole."""
        return f"{summed} {'<' if self.sign > 0 else '>'} {row}"

    @property
    def relation(self) -> str:
        return ("<" if self.sign > 0 else ">") + ("" if self.strict else "=")


def axes_named(op: WhereOp) -> set[str]:
    """The axes whose positions a condition asks for."""
    return {axis_in(term) for term in terms_of(op.holds) if not isinstance(term, Read)}


def order_of(chain: Sum) -> Order | str:
    """The order that the one condition before a sum asks for, along an axis of its rows and one that it sums; or why it
    is none."""
    if len(chain.conditions) != 1:
        return f"{len(chain.conditions) or 'no'} conditions stand before {label(chain.outer.result)}"
    (op,) = chain.conditions
    text = op.condition.text.data
    if (found := _order(op, chain)) is None:
        return f"'{text}' does not compare a position along the sum with one of a row"
    return found


def _order(op: WhereOp, chain: Sum) -> Order | None:
    condition = op.holds
    if not isinstance(condition, AtLeastZero) or condition.form.constant not in (0, -1):
        return None
    for row in sorted(chain.row_axes):
        for summed in chain.over:
            for sign in (1, -1):
                if condition.form == Linear({row: sign, summed: -sign}, condition.form.constant):
                    return Order(row, summed, sign, condition.form.constant < 0)
    return None


__all__ = ["Order", "axes_named", "order_of"]
