"""Shares that are tested before they are multiplied, as `p == 0 ? 0 : p log p` is, and which such tests leave out.

A share is known only when its row is finished, and so is what a test says of it. But over the reals `exp(s - m) / l` is
zero exactly where `s` is -inf, which is known at once; and a test for NaN says nothing where the other side is NaN as
well. So what is left asks of the scores alone, and is summed in one stream with them."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32

from treadle.dialects.diagram import MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import format_of
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.kinds import NAN, kinds_of
from treadle.passes.expressions.polynomials import key_of, unfolded
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    compare,
    is_number,
    number,
    same_predicate,
    select,
    walk,
)
from treadle.passes.expressions.signs import is_nonnegative

IsLate = Callable[[Expression], bool]


def ask_of_scores(sum: ReduceOp, is_late: IsLate) -> MapOp | None:
    """What is summed, if it tests shares, with tests of what these are made of; None where it tests none, or others."""
    operand = sum.operand
    if len(sum.over_axes) != 1 or format_of(operand.type) != f32 or absences_of([operand]):
        return None
    summand = unfolded(Leaf(operand), sum.over_axes[0])
    if not any(is_late(test) for test in _tests(summand)):
        return None
    asked = _Asking(sum.over_axes, is_late).of(summand)
    if any(is_late(test) for test in _tests(asked)):
        return None
    return build_map(asked, operand.type, operand.name_hint, sum.location)


def is_nothing(test: Expression, chosen: Expression, over: Sequence[str]) -> bool:
    """Whether a test asks where the scores are -inf of whose powers something is made, so that it is zero there."""
    match test:
        case Node(kind=arith.CmpfOp, operands=(scores, Constant(number=bound))) if bound == -numbers.inf:
            is_equal = same_predicate(test, compare(scores, "==", number(bound)))
            powers = (part for part in walk(chosen) if _is_power(part))
            return is_equal and any(_same(scores, _scores_of(power, over)) for power in powers)
        case _:
            return False


def _tests(expression: Expression) -> list[Expression]:
    return [part.operands[0] for part in walk(expression) if isinstance(part, Node) and part.kind is arith.SelectOp]


class _Asking:
    def __init__(self, over: Sequence[str], is_late: IsLate):
        self.over = over
        self.is_late = is_late

    def of(self, part: Expression) -> Expression:
        """A part without tests of shares."""
        if not isinstance(part, Node):
            return part
        if part.kind is arith.SelectOp:
            return self._choice(part)
        operands = tuple(self.of(operand) for operand in part.operands)
        node = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
        return _as_it_was(node) if part.kind is arith.CmpiOp else node

    def _choice(self, choice: Node) -> Expression:
        test, *sides = self.of(choice.operands[0]), *choice.operands[1:]
        if (asked := _asked(test, sides)) is not None and self.is_late(test):
            left, right, equal, other = asked
            if key_of(left) == key_of(right) and _is_none(other) and kinds_of(equal, {key_of(left): NAN}) == NAN:
                return self.of(equal)  # a test for what makes it none itself
            scores = _scores_of(left, self.over) if is_number(right, 0) and is_number(equal, 0) else None
            if scores is not None and not self.is_late(scores):
                return select(compare(scores, "==", number(-numbers.inf)), equal, self.of(other))
        operands = (test, *map(self.of, sides))
        return Node(choice.kind, operands, choice.type, choice.properties, choice.hint, choice.location)


def _asked(
    test: Expression, sides: Sequence[Expression]
) -> tuple[Expression, Expression, Expression, Expression] | None:
    """The two that a choice compares, what it gives where they are equal, and what elsewhere; None of other tests."""
    if not isinstance(test, Node) or test.kind is not arith.CmpfOp:
        return None
    left, right = test.operands
    if same_predicate(test, compare(left, "==", right)):
        return left, right, sides[0], sides[1]
    return (left, right, sides[1], sides[0]) if same_predicate(test, compare(left, "!=", right)) else None


def _is_none(expression: Expression) -> bool:
    return isinstance(expression, Constant) and numbers.isnan(expression.number)


def _as_it_was(node: Node) -> Expression:
    """A truth value that was made a number and is asked whether it is above zero."""
    match node.operands:
        case (Node(kind=arith.SelectOp, operands=(test, Constant(number=1), Constant(number=0))), Constant(number=0)):
            return test if same_predicate(node, compare(*node.operands[:1], ">", node.operands[1])) else node
        case _:
            return node


def _scores_of(share: Expression, over: Sequence[str]) -> Expression | None:
    """What is -inf exactly where a share of powers is zero."""
    match share:
        case Node(kind=arith.DivfOp, operands=(power, divisor)) if is_nonnegative(divisor):
            return None if set(axes_in(divisor)) & set(over) else _scores_of(power, over)
        case Node(operands=(exponent,)) if _is_power(share):
            return _varying(exponent, over)
        case _:
            return None


def _is_power(part: Expression) -> bool:
    is_power = isinstance(part, Node) and part.kind in (math.ExpOp, math.Exp2Op)
    return is_power and distance_of(part) is not None


def _varying(exponent: Expression, over: Sequence[str]) -> Expression | None:
    """What varies of an exponent, without what is added to it or scales it by a number above zero."""
    match exponent:
        case Node(kind=arith.AddfOp | arith.SubfOp, operands=(left, right)) if not set(axes_in(right)) & set(over):
            return _varying(left, over)
        case Node(kind=arith.AddfOp, operands=(left, right)) if not set(axes_in(left)) & set(over):
            return _varying(right, over)
        case Node(kind=arith.MulfOp | arith.DivfOp, operands=(scaled, Constant() as by)) if by.number > 0:
            return _varying(scaled, over)
        case Node(kind=arith.MulfOp, operands=(Constant() as by, scaled)) if by.number > 0:
            return _varying(scaled, over)
        case _:
            return exponent


def _same(left: Expression, right: Expression | None) -> bool:
    return right is not None and key_of(left) == key_of(right)
