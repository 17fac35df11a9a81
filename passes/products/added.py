"""Products that a map adds up: which of them one can begin with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from xdsl.dialects import arith

from treadle.dialects.diagram import ContractOp, MapOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    expression_of,
    forgets_absences,
    inside_out,
    is_plain,
    leaves,
    walk,
)

ADDITIONS = (arith.AddfOp, arith.AddiOp)


@dataclass(frozen=True)
class Added:
    """Two terms of a sum."""

    first: Expression
    """A product, or a multiple of one."""
    begun: ContractOp
    """That product."""
    second: ContractOp
    left: Expression
    """What the map computes, without the first term: of the second product begun with it."""


def added_in(map: MapOp) -> Iterator[Added]:
    """The terms of the sums of a map of which one is a product, and the other one a product or a multiple of one, that
    nothing else asks for and nobody has rounded yet, of which no element is absent."""
    if not is_plain(map):
        return
    whole = expression_of(map)
    if forgets_absences(map, whole):
        return
    uses = Counter(id(operand) for part in walk(whole) if isinstance(part, Node) for operand in part.operands)
    for sum in walk(whole):
        if isinstance(sum, Node) and sum.kind in ADDITIONS:
            terms = list(_terms(sum, uses))
            for (first, addition), (second, _) in permutations(terms, 2):
                begun, product = _multiplied(first, uses), _product(second)
                if begun is None or product is None or product.init is not None:
                    continue
                type, values = product.result.type, [product.result, *(leaf.value for leaf in leaves(first))]
                fits = begun.result.type == type and {*axes_in(first)} <= {*axes_of(type)}
                if fits and not absences_of(values):
                    yield Added(first, begun, product, _without(whole, addition, first))


def _terms(sum: Node, uses: Counter[int]) -> Iterator[tuple[Expression, Node]]:
    """The terms of a sum that nothing else in the map asks for, each with the addition that it stands in."""
    for operand in sum.operands:
        if uses[id(operand)] > 1:
            continue
        if isinstance(operand, Node) and operand.kind is sum.kind:
            yield from _terms(operand, uses)
        else:
            yield operand, sum


def _multiplied(term: Expression, uses: Counter[int]) -> ContractOp | None:
    """The product that a term is, or is a multiple of."""
    if not isinstance(term, Node):
        return _product(term)
    if term.kind is not arith.MulfOp:
        return None
    found = [each for factor in term.operands if uses[id(factor)] == 1 and (each := _multiplied(factor, uses))]
    return found[0] if len(found) == 1 else None


def _product(term: Expression) -> ContractOp | None:
    """What makes a term, if it is a product, not rounded, that has one reader."""
    op = term.value.owner if isinstance(term, Leaf) else None
    if not isinstance(op, ContractOp) or len(list(op.result.uses)) != 1 or format_of(op.result.type) != op.accumulate:
        return None
    return op


def _without(whole: Expression, addition: Node, term: Expression) -> Expression:
    """An expression in which an addition is its other term."""
    (rest,) = [operand for operand in addition.operands if operand is not term]
    done: dict[int, Expression] = {}
    for part in inside_out(whole):
        if part is addition:
            done[id(part)] = done[id(rest)]
        elif isinstance(part, Node):
            operands = tuple(done[id(operand)] for operand in part.operands)
            done[id(part)] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
        else:
            done[id(part)] = part
    return done[id(whole)]
