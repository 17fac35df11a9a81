"""Shares that are tested before they are multiplied, as `p == 0 ? 0 : p log p` is, and which such tests leave out.

A share is known only when its row is finished, and so is what a test says of it. But over the reals `exp(s - m) / l` is
zero exactly where `s` is -inf, which is known at once; and a test for NaN says nothing where the other side is NaN as
well. So what is left asks of the scores alone, and is summed in one stream with them."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32

from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import format_of
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.kinds import NAN, kinds_of
from treadle.passes.expressions.logarithms import without_powers
from treadle.passes.expressions.polynomials import Key, key_of, unfolded
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    compare,
    is_number,
    number,
    same_predicate,
    select,
    walk,
)
from treadle.passes.expressions.signs import is_nonnegative
from treadle.passes.expressions.truths import asked_itself

IsLate = Callable[[Expression], bool]


@dataclass(frozen=True)
class Asked:
    """What is summed, with tests of scores in the place of those of shares. Of a row whose scores are all -inf no share
    is a number, nor is it zero; what is left of that is that its divisor is no number. So the divisors must leave the
    sum."""

    summand: Expression
    tests: frozenset[Key]
    divisors: frozenset[Key]

    def leaves_out(self, test: Expression) -> bool:
        """Whether a test stands for one of shares, so that it leaves out no whole row."""
        return key_of(test) in self.tests


NOTHING_ASKED = Asked(number(0), frozenset(), frozenset())


def ask_of_scores(sum: ReduceOp, is_late: IsLate) -> Asked | None:
    """The summand of a sum that tests shares; None where it tests none, or anything else that is late."""
    operand = sum.operand
    if len(sum.over_axes) != 1 or format_of(operand.type) != f32 or absences_of([operand]):
        return None
    summand = unfolded(Leaf(operand), sum.over_axes[0])
    if not any(map(is_late, _tests(summand))):
        return None
    asking = _Asking(sum.over_axes, is_late)
    asked = asking.of(summand)
    if any(map(is_late, _tests(asked))) or asking.tests & {key_of(test) for test in _tests(summand)}:
        return None
    return Asked(asked, frozenset(asking.tests), frozenset(asking.divisors))


def _tests(expression: Expression) -> list[Expression]:
    return [part.operands[0] for part in walk(expression) if isinstance(part, Node) and part.kind is arith.SelectOp]


class _Asking:
    def __init__(self, over: Sequence[str], is_late: IsLate):
        self.over = over
        self.is_late = is_late
        self.tests: set[Key] = set()
        self.divisors: set[Key] = set()

    def of(self, part: Expression) -> Expression:
        """A part without tests of shares."""
        if not isinstance(part, Node):
            return part
        if part.kind is arith.SelectOp:
            return self._choice(part)
        operands = tuple(self.of(operand) for operand in part.operands)
        node = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
        asked = asked_itself(node)
        return node if asked is None or not asked[1] else asked[0]

    def _choice(self, choice: Node) -> Expression:
        test, *sides = self.of(choice.operands[0]), *choice.operands[1:]
        if (asked := _asked(test, sides)) is not None and self.is_late(test):
            left, right, equal, other = asked
            if key_of(left) == key_of(right) and _is_none(other) and kinds_of(equal, {key_of(left): NAN}) == NAN:
                return self.of(equal)  # a test for what makes it none itself
            share = _share(left, self.over) if is_number(right, 0) and is_number(equal, 0) else None
            rest = without_powers(self.of(other))
            if share is not None and not self.is_late(share.scores) and _has_factor(rest, key_of(share.power)):
                return self._by_score(share, equal, rest)
        operands = (test, *map(self.of, sides))
        return Node(choice.kind, operands, choice.type, choice.properties, choice.hint, choice.location)

    def _by_score(self, share: _Share, zero: Expression, rest: Expression) -> Expression:
        test = compare(share.scores, "==", number(-numbers.inf))
        self.tests.add(key_of(test))
        self.divisors.add(key_of(share.divisor))
        return select(test, zero, rest)


@dataclass(frozen=True)
class _Share:
    """A power of scores, relative to their extremum, and what divides it."""

    power: Expression
    scores: Expression
    divisor: Expression


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


def _share(expression: Expression, over: Sequence[str]) -> _Share | None:
    match expression:
        case Node(kind=arith.DivfOp, operands=(Node(operands=(exponent,)) as power, divisor)):
            is_power = power.kind in (math.ExpOp, math.Exp2Op) and distance_of(power) is not None
            if not is_power or not is_nonnegative(divisor) or set(axes_in(divisor)) & set(over):
                return None
            return _Share(power, _varying(exponent, over), divisor)
        case _:
            return None


def _has_factor(expression: Expression, power: Key) -> bool:
    """Whether a power is a factor of an expression, and in nothing else of it: so that it is zero where that is too
    small for f32, as the program says."""
    if key_of(expression) == power:
        return True
    match expression:
        case Node(kind=arith.MulfOp, operands=(left, right)):
            return any(_has_factor(a, power) and not _has(b, power) for a, b in ((left, right), (right, left)))
        case Node(kind=arith.DivfOp, operands=(above, below)):
            return _has_factor(above, power) and not _has(below, power)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            return _has_factor(operand, power)
        case _:
            return False


def _has(expression: Expression, power: Key) -> bool:
    return any(key_of(part) == power for part in walk(expression))


def _varying(exponent: Expression, over: Sequence[str]) -> Expression:
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
