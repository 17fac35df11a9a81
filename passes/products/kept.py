"""Sums of products of which a condition leaves some: `sum over i of keep(X W, "first[i] <= t and t < end[i]")`.

An element of a product that is absent is one of an absent row of a factor, if that factor has all axes of the condition
but the one that is summed: the sum is then one product over both axes, of a factor that is another one for each index
(rows of tokens that are sorted by expert, and the weights of each expert)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either, Linear, terms_of
from treadle.dialects.diagram.linear import ONE, Atom, quotient_of
from treadle.passes.conditions.found import EndsWriter
from treadle.passes.conditions.sought import searches_of
from treadle.passes.expressions.conditions import at_places

LAW = "what is absent of a product is absent of a factor that has the axes of the condition"


@dataclass(frozen=True)
class KeptProduct:
    """A product over one axis, of which a condition leaves some elements, and which is summed over another one."""

    where: WhereOp
    product: ContractOp
    summed: str
    left: bool
    """Whether the condition speaks of rows of the left factor."""

    @property
    def axes(self) -> list[str]:
        """The axes that are summed, of which each index of the first has rows of its own; none of one element alone."""
        sizes = sizes_of(self.product.lhs.type) | sizes_of(self.product.rhs.type)
        return [axis for axis in (self.summed, *self.product.over_axes) if sizes.get(axis, 1) != 1]


def kept_product(op: Operation | Block) -> KeptProduct | None:
    """What a sum is of; None if it is of anything else, or more than the sum uses it."""
    if not isinstance(op, ReduceOp) or op.kind.data != "add" or op.init is not None or len(op.over_axes) != 1:
        return None
    where = op.operand.owner
    product = where.operand.owner if isinstance(where, WhereOp) else None
    if not isinstance(where, WhereOp) or not isinstance(product, ContractOp) or len(product.over_axes) != 1:
        return None
    if product.init is not None or any(len(list(each.uses)) != 1 for each in (where.result, product.result)):
        return None
    if {format_of(product.result.type), format_of(op.result.type)} != {product.accumulate}:
        return None  # what the plain form rounds in between would not be rounded
    (summed,) = op.over_axes
    axes = axes_of_condition(where) - {summed}
    factors = [axes <= {*axes_of(factor.type)} for factor in (product.lhs, product.rhs)]
    return KeptProduct(where, product, summed, factors[0]) if any(factors) else None


def conditions_on(factor: SSAValue) -> list[WhereOp]:
    """The conditions that leave elements of a factor, which is made element by element of what they keep."""
    op = factor.owner
    if isinstance(op, MapOp | CastOp):
        return [each for operand in op.operands for each in conditions_on(operand)]
    return [op, *conditions_on(op.operand)] if isinstance(op, WhereOp) else []


def axes_of_condition(where: WhereOp) -> set[str]:
    """The axes of what a condition compares."""
    return {axis for term in terms_of(where.holds) for axis in _axes_of_term(term)}


def _axes_of_term(term: Atom) -> Iterator[str]:
    if isinstance(term, str):
        yield term
    elif isinstance(term, SSAValue) and is_array(term.type):
        yield from axes_of(term.type)


def with_ranges(function: func.FuncOp, where: WhereOp, summed: str, rewrite: str) -> WhereOp:
    """The condition of a product that is summed over an axis, or of a factor of one, with what data say of where along
    that axis it may hold, if it compares data along it from below and from above. It stands beside the one that others
    use, who are told nothing."""
    if where.within is not None or not has_both_ends(where, summed):
        return where
    own = where.clone()
    own.result.name_hint = where.result.name_hint
    Rewriter.insert_op(own, InsertPoint.after(where))
    return EndsWriter(function, rewrite, beyond=True).tell(own, [summed], "once for all groups")


def has_both_ends(where: WhereOp, summed: str) -> bool:
    """Whether a condition compares data along an axis from below and from above."""
    sides = {sign for search in searches_of(where.holds, summed) for sign in _sides(search.condition)}
    return sides == {1, -1}


def _sides(condition: Condition) -> Iterator[int]:
    """On which sides of comparisons positions stand."""
    if isinstance(condition, AtLeastZero):
        yield from (1 if factor > 0 else -1 for term, factor in condition.form.terms.items() if isinstance(term, str))
        return
    for part in condition.parts:
        yield from _sides(part)


def along_pieces(condition: Condition, axis: str, whole: str, count: int) -> Condition:
    """What a condition says where an axis goes over so many pieces for each position of another one."""
    if isinstance(condition, Both):
        return Both(tuple(along_pieces(part, axis, whole, count) for part in condition.parts))
    if isinstance(condition, Either):
        return Either(tuple(along_pieces(part, axis, whole, count) for part in condition.parts))
    form = condition.form
    factor = form.terms.get(axis, 0)
    rest = form.plus(Linear({axis: 1}), -factor)
    if axis not in rest.atoms and factor == 1:
        return AtLeastZero(Linear({whole: 1}).plus(rest, count))
    if axis not in rest.atoms and factor == -1:
        return AtLeastZero(Linear({whole: -1}).plus(rest, count).plus(ONE, count - 1))
    return at_places(condition, {axis: quotient_of(Linear({whole: 1}), count)})


__all__ = [
    "LAW",
    "KeptProduct",
    "along_pieces",
    "axes_of_condition",
    "conditions_on",
    "has_both_ends",
    "kept_product",
    "with_ranges",
]
