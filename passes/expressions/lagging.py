"""What a stream keeps in place of an extremum that lags behind (`streams.lagging`)."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.ir import SSAValue

from treadle.dialects.diagram import MapOp, ReduceOp
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    difference,
    expression_of,
    is_plain,
    number,
    select,
)

FINE = 2.0**20
"""Extrema beyond so many slacks do not lag: their neighbours are too far apart for it (2^24 of what a power doubles
at, of which a slack is 8)."""


def lagging(kind: str, before: Expression, new: Expression, slack: float) -> Expression:
    """What is kept in place of an extremum: what it was, if that is near enough. Where either is no number, or
    infinite, it is what it is now."""
    grown = difference(new, before) if kind == "max" else difference(before, new)
    size = Node(math.AbsFOp, (before,), before.type)
    near = compare(grown, "<=", number(slack))
    fine = compare(size, "<", number(slack * FINE))
    return select(Node(arith.AndIOp, (near, fine), near.type), before, new)


def kept_for(value: SSAValue) -> SSAValue:
    """The extremum that a stream keeps an older one of while it is near enough, or the value itself."""
    lag = lag_of(value)
    return value if lag is None else lag[0].result


def lag_of(value: SSAValue) -> tuple[ReduceOp, float] | None:
    """The extremum that a stream keeps an older one of, and the slack within which it does; None of other values."""
    if not isinstance(value.owner, MapOp) or not is_plain(value.owner):
        return None
    match expression_of(value.owner):
        case Node(
            kind=arith.SelectOp,
            operands=(
                Node(kind=arith.AndIOp, operands=(Node(operands=(_, Constant() as slack)), _)),
                Leaf(value=before),
                Leaf(value=new),
            ),
        ) if isinstance(new.owner, ReduceOp) and new.owner.init is before:
            return new.owner, slack.number
        case _:
            return None
