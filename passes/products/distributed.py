"""Products with a sum of terms that are told from sums of their own: one product for each term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of, with_format
from treadle.dialects.diagram.formats import SIXTEEN_BIT, number_format
from treadle.passes._functions import derived_hint, erase_unused, label, note, replace
from treadle.passes.expressions.inner import inner_expression, is_saturating
from treadle.passes.expressions.magnitudes import most_in
from treadle.passes.expressions.reductions import rebuilt
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    difference,
    leaves,
    strip_casts,
    total,
    unary,
    walk,
)
from treadle.passes.expressions.signs import is_nonnegative

LAW = "a sum of products is linear in its factors"

MOST_TERMS = 16
"""Of a sum that is taken apart: a body that adds what it added doubles them in each line."""


@dataclass(frozen=True)
class Term:
    """What is added to a sum, or subtracted from it."""

    expression: Expression
    is_subtracted: bool = False

    def __neg__(self) -> Term:
        return Term(self.expression, not self.is_subtracted)


@dataclass(frozen=True)
class Distributed:
    """A product, the operand that is a sum, and what its terms are together that wait for the same sums."""

    product: SSAValue
    operand: SSAValue
    terms: tuple[Term, ...]

    @property
    def value(self) -> SSAValue:
        return self.product

    @property
    def is_exact(self) -> bool:
        """Whether the terms, each rounded as the sum was, are no larger than that: none is below zero. Else they may
        cancel, and what is left has the rounding of the terms."""
        return not any(term.is_subtracted for term in self.terms) and all(
            is_nonnegative(term.expression) for term in self.terms
        )


def distributed_in(block: Block) -> list[Distributed]:
    """Those of a function whose terms wait for different sums along what the product sums. Beside each other these
    would keep the product from the stream in which they are summed, for no one factor moves with them."""
    return [found for op in block.ops if isinstance(op, ContractOp) and (found := _distributed(op)) is not None]


def _distributed(op: ContractOp) -> Distributed | None:
    if op.init is not None:
        return None
    for operand in (op.lhs, op.rhs):
        if str(format_of(operand.type)) not in (*SIXTEEN_BIT, "f32"):  # 8 bits saturate: terms may where a sum does not
            continue
        terms = list(islice(_terms(Leaf(operand)), MOST_TERMS + 1))
        if len(terms) > MOST_TERMS or not all(_may_stand_alone(term, operand, op.over_axes) for term in terms):
            continue
        together = _together(terms, op.over_axes)
        if sum(map(bool, together)) > 1 and _fit(together.values(), format_of(operand.type)):
            return Distributed(op.result, operand, tuple(together.values()))
    return None


def _terms(expression: Expression) -> Iterator[Term]:
    """Through maps that nothing else uses, and conversions but those that the program fixes, or that saturate."""
    inner = strip_casts(expression) if not _is_kept(expression) else expression
    if isinstance(inner, Leaf):
        behind = inner_expression(inner.value) if inner.value.has_one_use() and not _is_kept(inner) else None
        found = [] if behind is None else list(islice(_terms(behind), MOST_TERMS + 1))
        yield from found if len(found) > 1 else [Term(inner)]
    elif isinstance(inner, Node) and inner.kind in (arith.AddfOp, arith.SubfOp):
        left, right = inner.operands
        yield from _terms(left)
        yield from (-term if inner.kind is arith.SubfOp else term for term in _terms(right))
    elif isinstance(inner, Node) and inner.kind is arith.NegfOp:
        yield from (-term for term in _terms(inner.operands[0]))
    else:
        yield Term(inner)


def _is_kept(expression: Expression) -> bool:
    """Whether a conversion makes something else of numbers than themselves, rounded."""
    if isinstance(expression, Leaf):
        owner = expression.value.owner
        if isinstance(owner, CastOp) and owner.fixed is not None:
            return True
    return any(is_saturating(part) for part in walk(expression) if not isinstance(part, Constant))


def _together(terms: Sequence[Term], over: Sequence[str]) -> dict[frozenset[Operation], Term]:
    """By the sums that they wait for: terms that wait for the same are one."""
    found: dict[frozenset[Operation], Term] = {}
    for term in terms:
        waited = _waits_for(term, over)
        known = found.get(waited)
        found[waited] = term if known is None else _added(known, term)
    return found


def _added(one: Term, other: Term) -> Term:
    combine = total if one.is_subtracted == other.is_subtracted else difference
    return Term(combine(one.expression, other.expression), one.is_subtracted)


def _fit(terms: Iterable[Term], format: Attribute) -> bool:
    """Whether a term is beyond a format only where the sum is: nothing bounds at most one of them."""
    largest = number_format(format).largest
    return sum(most_in(format, term.expression) > largest for term in terms) < 2


def _waits_for(term: Term, over: Sequence[str]) -> frozenset[Operation]:
    """The reductions along some axes that a term is told from, without those that these are told from."""
    found, seen = set[Operation](), set[SSAValue]()
    left = [leaf.value for leaf in leaves(term.expression)]
    while left:
        value = left.pop()
        op = value.owner
        if value in seen or not isinstance(op, Operation):
            continue
        seen.add(value)
        if isinstance(op, ContractOp | ReduceOp):
            found |= {op} if set(op.over_axes) & set(over) else set()
        elif isinstance(op, MapOp | CastOp | WhereOp):
            left += op.operands
    return frozenset(found)


def _may_stand_alone(term: Term, operand: SSAValue, over: Sequence[str]) -> bool:
    """Whether a term goes over all that the product sums, and lacks just the elements that the sum lacks."""
    values = [leaf.value for leaf in leaves(term.expression)]
    return {*over} & {*axes_of(operand.type)} <= {*axes_in(term.expression)} and _lacks(values) == _lacks([operand])


def _lacks(values: Sequence[SSAValue]) -> frozenset[object]:
    """By what elements may be absent: conditions that say the same are one."""
    return frozenset((frozenset(op.properties.items()), tuple(op.inputs)) for op in absences_of(values))


# -- rewriting ------------------------------------------------------------------------------------


def distribute(function: func.FuncOp, found: Distributed, rewrite: str, why: str = "") -> None:
    """Multiply each term, and add up the products."""
    op = found.product.owner
    assert isinstance(op, ContractOp)
    products = [(_product(op, found.operand, term), term.is_subtracted) for term in found.terms]
    products.sort(key=lambda each: each[1])  # one that is added is first, if there is one
    (first, is_subtracted), *rest = products
    sum: Expression = unary(arith.NegfOp, Leaf(first)) if is_subtracted else Leaf(first)
    for value, is_subtracted in rest:
        sum = (difference if is_subtracted else total)(sum, Leaf(value))
    whole = build_map(sum, op.result.type, location=op.location)
    note(function, rewrite, f"{label(op.result)} over the terms of {label(found.operand)}", LAW, why)
    replace(op, [whole], whole.result)
    erase_unused([found.operand])


def _product(op: ContractOp, operand: SSAValue, term: Term) -> SSAValue:
    """Of a term, in the format in which products are added up."""
    factor = _factor(op, operand, term)
    factors = [factor if each is operand else each for each in (op.lhs, op.rhs)]
    known = {axis for each in factors for axis in axes_of(each.type)}
    sizes = {axis: size for axis, size in sizes_of(op.result.type).items() if axis in known}
    product = rebuilt(op, factors, array_type(op.accumulate, sizes))
    Rewriter.insert_op(product, InsertPoint.before(op))
    product.results[0].name_hint = derived_hint(op.result, "term")
    return product.results[0]


def _factor(op: ContractOp, operand: SSAValue, term: Term) -> SSAValue:
    """A term, rounded as the sum was."""
    known = axes_in(term.expression)
    sizes = {axis: size for axis, size in sizes_of(operand.type).items() if axis in known}
    value = term.expression.value if isinstance(term.expression, Leaf) else None
    if value is None or axes_of(value.type) != tuple(sizes):
        map = build_map(term.expression, array_type(f32, sizes), derived_hint(operand, "term"), op.location)
        Rewriter.insert_op(map, InsertPoint.before(op))
        value = map.result
    return _rounded(op, value, format_of(operand.type))


def _rounded(op: ContractOp, value: SSAValue, format: Attribute) -> SSAValue:
    if format_of(value.type) == format:
        return value
    cast = CastOp(value, with_format(value.type, format))
    cast.location = op.location
    Rewriter.insert_op(cast, InsertPoint.before(op))
    cast.result.name_hint = derived_hint(value, str(format))
    return cast.result


__all__ = ["LAW", "Distributed", "distribute", "distributed_in"]
