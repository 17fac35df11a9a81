"""What is reduced of the elements that equal an extremum, as a position is: how it follows when the extremum moves.

Of what came before, no element equals an extremum that lies beyond all of it. So the accumulator begins anew where the
extremum has moved, and stays as it is elsewhere: the least position of a maximum (`argmax`) is a state beside the
maximum, and of parts of an axis those count whose maximum is that of all.

The elements are those of the extremum, or what a monotone scale makes of both sides alike: then that is compared, for
two elements may be rounded to one. An extremum of floats is NaN from the first NaN on. What is before that one counts
no more either, and from then on nothing moves. So a test may ask for NaN beside, and finds the first."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import format_of
from treadle.passes.expressions.inner import is_saturating
from treadle.passes.expressions.reductions import neutral_of
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    compare,
    convert,
    expression_of,
    inside_out,
    is_number,
    is_plain,
    positive_constant,
    same_predicate,
    substitute,
)
from treadle.passes.streams.changes import ORDERED, Repair
from treadle.passes.streams.moving import Dependent, Moving


def extremal_repair(moving: Moving, reduction: ContractOp | ReduceOp) -> Repair | None:
    """The repair of a reduction that chooses its neutral element but where something equals a running extremum."""
    if not isinstance(reduction, ReduceOp) or reduction.init is not None:
        return None
    chosen = _chosen(reduction)
    if chosen is None or moving.moves(chosen.element):
        return None
    found = _Extremum.of(moving, chosen.test)
    if found is None or not absences_of([found.reduction.operand]) <= absences_of([reduction.operand]):
        return None
    if not found.tells(chosen.test):
        return None
    try:
        after, before = moving.two_moments(found.compared)
    except Dependent:
        return None
    if set(axes_in(after)) & set(reduction.over_axes):
        return None
    stays = compare(after, "==", before)
    if isinstance(before.type, AnyFloat):
        stays = Node(arith.OrIOp, (stays, compare(before, "!=", before)), stays.type)
    return Repair(None, None, frozenset(), frozenset(), stays)


@dataclass(frozen=True)
class _Chosen:
    """What is reduced where a test holds; elsewhere it is neutral."""

    test: Expression
    element: Expression


def _chosen(reduction: ReduceOp) -> _Chosen | None:
    neutral = neutral_of(reduction.result).value.data
    match unfolded(Leaf(reduction.operand)):
        case Node(kind=arith.SelectOp, operands=(test, element, other)) if is_number(other, neutral):
            return _Chosen(test, element)
        case Node(kind=arith.SelectOp, operands=(Node() as test, other, element)) if is_number(other, neutral):
            left, right, *_ = (*test.operands, test, test)
            if same_predicate(test, compare(left, "!=", right)):
                return _Chosen(compare(left, "==", right), element)
        case _:
            pass
    return None


@dataclass(frozen=True)
class _Extremum:
    """A running extremum, and what is made of it that elements are compared with."""

    moving: Moving
    reduction: ReduceOp
    compared: Expression

    @staticmethod
    def of(moving: Moving, test: Expression) -> _Extremum | None:
        """The one that a test asks of, which nothing else moves."""
        moved = moving.moves(test)
        owner = next(iter(moved)).owner if len(moved) == 1 else None
        if not isinstance(owner, ReduceOp) or owner.kind.data not in ORDERED or owner.init is not None:
            return None
        for part in inside_out(test):
            if isinstance(part, Node) and part.kind in (arith.CmpfOp, arith.CmpiOp):
                for side in part.operands:
                    if moving.moves(side) and moving.axis not in axes_in(side) and _scaled(side) == Leaf(owner.result):
                        return _Extremum(moving, owner, side)
        return None

    def tells(self, test: Expression) -> bool:
        """Whether a test holds of an element only if it is the extremum, or NaN."""
        if not isinstance(test, Node):
            return False
        match test.operands:
            case (left, right) if test.kind is arith.OrIOp:
                return any(
                    self.tells(one) and self._asks_for_nan(other) for one, other in ((left, right), (right, left))
                )
            case (left, right) if test.kind is arith.AndIOp:
                return any(
                    self.tells(one) and not self.moving.moves(other) for one, other in ((left, right), (right, left))
                )
            case (left, right) if same_predicate(test, compare(left, "==", right)):
                return self._is_equality(left, right) or self._is_equality(right, left)
            case _:
                return False

    def _is_equality(self, element: Expression, extremum: Expression) -> bool:
        """Whether one side makes of an element what the other makes of the extremum."""
        if _scaled(extremum) != Leaf(self.reduction.result) or not is_exactly(extremum, self.compared):
            return False
        operand = unfolded(Leaf(self.reduction.operand))
        here = substitute(extremum, lambda leaf: operand if leaf.value is self.reduction.result else leaf)
        return is_exactly(element, here)

    def _asks_for_nan(self, test: Expression) -> bool:
        """Whether a test holds of elements that are NaN, as the extremum is from the first of them on."""
        if not isinstance(test, Node) or len(test.operands) != 2:
            return False
        left, right = test.operands
        is_self = same_predicate(test, compare(left, "!=", right)) and is_exactly(left, right)
        return is_self and is_exactly(_scaled(left), _scaled(unfolded(Leaf(self.reduction.operand))))


def _scaled(expression: Expression) -> Expression:
    """What an expression scales by positive numbers, or rounds: it is no smaller where that is larger, and NaN where
    that is."""
    while isinstance(expression, Node):
        match expression.operands:
            case (operand,) if expression.kind in CASTS and not is_saturating(expression):
                expression = operand
            case (operand, Constant() as by) if expression.kind in (arith.MulfOp, arith.DivfOp):
                if positive_constant(by) is None:
                    return expression
                expression = operand
            case (Constant() as by, operand) if expression.kind is arith.MulfOp and positive_constant(by) is not None:
                expression = operand
            case _:
                return expression
    return expression


def unfolded(expression: Expression) -> Expression:
    """An expression through all maps, and casts of floats: it rounds where they do."""

    def inner(leaf: Leaf) -> Expression:
        owner = leaf.value.owner
        if leaf.version or not isinstance(owner, CastOp | MapOp):
            return leaf
        if isinstance(owner, MapOp):
            return substitute(expression_of(owner), inner) if is_plain(owner) else leaf
        format, operand = format_of(leaf.value.type), Leaf(owner.operand)
        is_of_floats = isinstance(format, AnyFloat) and isinstance(operand.type, AnyFloat)
        return convert(inner(operand), format) if is_of_floats and not is_saturating(leaf) else leaf

    return substitute(expression, inner)


def is_exactly(one: Expression, other: Expression) -> bool:
    """Whether two expressions do the same operations in the same order, roundings among them."""
    pairs, seen = [(one, other)], set[tuple[int, int]]()
    while pairs:
        left, right = pairs.pop()
        if (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        if not isinstance(left, Node) or not isinstance(right, Node):
            if left != right:
                return False
            continue
        alike = (left.kind, left.type, dict(left.properties)) == (right.kind, right.type, dict(right.properties))
        if not alike or len(left.operands) != len(right.operands):
            return False
        pairs.extend(zip(left.operands, right.operands, strict=True))
    return True


__all__ = ["extremal_repair"]
