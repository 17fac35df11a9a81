"""Extrema that lag behind in a stream, and what must be told from them all the same.

A stream repairs its sums whenever the maximum that they are told from moves: by `exp(m - m')` each accumulator, in
every step. But any number serves in place of the maximum as long as no power overflows. So the stream keeps what it has
until the maximum is more than a *slack* beyond it, and then takes the maximum itself: the factor is one in all other
steps, in which nothing is multiplied (conditional rescaling, as in FlashAttention-4).

What is kept, `r`, is then below the maximum by some `t`, from 0 to the slack, and everything moves with it in one of
two ways: powers `exp(c (s - r))`, and sums of them, are *scaled* by `exp(c t)`; `r` itself and logarithms of these are
*shifted* by a multiple of `t`. What is known at the end must do neither: a quotient of two sums does not, nor does
`c r + log l`."""

from __future__ import annotations

import math as numbers
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.dialects.diagram.lagging import slack_of
from treadle.passes.expressions.forms import linear_form
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.magnitudes import magnitude
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    is_same,
    same_predicate,
    strip_casts,
)
from treadle.passes.streams.changes import BEFORE, Repair, is_ordered
from treadle.passes.streams.present_rows import PresentRows
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.ways import STAYS, Moves, Way, lag, name_of, way_of

GROWTH = 8
"""Powers grow to 2 to this, at most, before sums are repaired: far from the largest f16, and of random scores the
maximum of the first hundreds is within that of all."""

STEEPER = 1.5
"""By how much the slope that stands for a factor beyond 2^24 may be steeper (`expressions.below_maximum`)."""

LEAST_COLUMNS = 32
"""Elements of an accumulator for each factor, at least: to see that it is one takes a handful of instructions."""


def follows_what_lags(repair: Repair) -> bool:
    """Whether what a sum is repaired by is one in most steps."""
    moved = [leaf.value.owner for leaf in repair.leaves if leaf.version == BEFORE]
    return bool(moved) and all(isinstance(owner, Operation) and slack_of(owner) is not None for owner in moved)


@dataclass(frozen=True)
class Lagging:
    """An extremum that may lag, and the accumulators that are then repaired seldom."""

    extremum: ReduceOp
    slack: float
    accumulators: tuple[SSAValue, ...]


class Moved(Exception):
    """Why an extremum may not lag."""


def candidates(plan: StreamPlan) -> Iterator[Lagging | Moved]:
    """Of each stream the extremum that its sums follow, or why it may not lag; nothing where it would save nothing."""
    for stream in plan.streams:
        states = plan.states_in(stream)
        repairs = {state: repair for state in states if (repair := plan.verdicts[state].repair) is not None}
        moved = {leaf.value for repair in repairs.values() for leaf in repair.leaves if leaf.version}
        if len(moved) != 1:
            continue
        (extremum,) = moved
        wide = tuple(state for state in repairs if _columns(state, extremum) >= LEAST_COLUMNS)
        if not wide or not isinstance(extremum.owner, ReduceOp) or slack_of(extremum.owner) is not None:
            continue
        if not is_ordered(extremum):
            continue
        try:
            factor = _factor(extremum, repairs.values())
            _Ways(plan, extremum, factor).check(stream, repairs)
        except Moved as reason:
            yield reason
        else:
            yield Lagging(extremum.owner, GROWTH * numbers.log(2) / abs(factor), wide)


def _columns(state: SSAValue, extremum: SSAValue) -> int:
    """Elements of an accumulator for each of the extremum; of axes without a known size, as many as it takes."""
    own = [size for axis, size in sizes_of(state.type).items() if axis not in axes_of(extremum.type)]
    return numbers.prod(LEAST_COLUMNS if size == DYNAMIC else size for size in own) if own else 1


def _factor(extremum: SSAValue, repairs: Iterable[Repair]) -> float:
    """The `c` of the factors `exp(c (before - after))`, the same for all (Moved)."""
    found: set[float] = set()
    for repair in repairs:
        power = None if repair.factor is None or repair.summand is not None else strip_casts(repair.factor)
        if not isinstance(power, Node) or power.kind is not math.ExpOp:
            raise Moved("sums follow it in another way than by exp(c (before - after))")
        form = linear_form(power.operands[0])
        before = form.pop(Leaf(extremum, BEFORE), 0.0)
        if form.keys() != {extremum} or form[extremum] != -before:
            raise Moved("sums follow it by a factor with other numbers in it")
        found.add(before)
    owner = extremum.owner
    assert isinstance(owner, ReduceOp)
    if len(found) != 1:
        raise Moved("sums follow it by different factors")
    (factor,) = found
    if not (factor > 0 if owner.kind.data == "max" else factor < 0):
        raise Moved("powers grow where it does not")
    return factor


@dataclass
class _Ways:
    """How the values of a kernel go with an extremum that lags."""

    plan: StreamPlan
    extremum: SSAValue
    factor: float
    known: dict[SSAValue, Way] = field(default_factory=dict[SSAValue, Way])

    def check(self, stream: int, followers: Iterable[SSAValue]) -> None:
        """All that follows goes as the sums do, fits its format, and what is known at the end stays (Moved)."""
        sign = 1.0 if self.factor > 0 else -1.0
        self.known[self.extremum] = Way(shifted=lag(-sign))
        followers, expected = set(followers), Way(scaled=lag(abs(self.factor)))
        for op in self.plan.step_of(stream):
            (result,) = op.results
            if result is self.extremum:
                continue
            way = self._of_reduction(op) if self.plan.is_state(result) else self.of(result)
            if result in followers and way != expected:
                raise Moved(f"what {_name(result)} adds up does not go as its repair does")
            self.known[result] = way
        for value in (*self.plan.exports_of(stream), *self.plan.saved_in_step(stream)):
            if not self.of(value).stays:
                raise Moved(f"{_name(value)} is told from it")

    def _of_reduction(self, op: Operation) -> Way:
        assert isinstance(op, ContractOp | ReduceOp)
        ways = [self.of(operand) for operand in operands_of(op)]
        if all(way.stays for way in ways):
            return STAYS
        if (isinstance(op, ReduceOp) and op.kind.data != "add") or any(way.shifted for way in ways):
            raise Moved(f"{_name(op.results[0])} does not only add up powers")
        return Way(scaled=sum((way.scaled for way in ways), Moves.NONE))

    def of(self, value: SSAValue) -> Way:
        """The way of a value (Moved)."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: SSAValue) -> Way:
        owner = value.owner
        if not isinstance(owner, Operation) or self.extremum not in self._told_from(value):
            return STAYS
        if isinstance(owner, CastOp):
            return self._of_cast(owner)
        if isinstance(owner, MapOp) and (inner := inner_expression(value)) is not None:
            return self._of(inner)
        if isinstance(owner, WhereOp) and not (way := self.of(owner.operand)).shifted:
            return way  # what is absent adds nothing
        if isinstance(owner, ContractOp | ReduceOp) and not self.plan.is_state(value):
            return self._of_reduction(owner)
        raise Moved(f"{_name(value)} is told from it in a way that is not followed")

    def _told_from(self, value: SSAValue) -> frozenset[SSAValue]:
        """The extremum, if a value is told from it or from what follows it."""
        states = self.plan.states_of(value)
        return frozenset([self.extremum]) if any(not self.known.get(s, STAYS).stays for s in states) else frozenset()

    def _of_cast(self, op: CastOp) -> Way:
        way, format = self.of(op.operand), number_format(format_of(op.result.type))
        if way.stays:
            return way
        if way.shifted or op.fixed is not None or not format.is_float:
            raise Moved(f"{_name(op.result)} is rounded")
        if format.has_few_exponents and way.scaled.least < 0:
            raise Moved(f"{_name(op.result)} has no room for what is smaller than it is to be")
        growth = 2.0 ** (STEEPER * GROWTH * max(way.scaled.most, 0.0) / abs(self.factor))
        if not magnitude(Leaf(op.operand)) * growth <= format.largest:
            raise Moved(f"{_name(op.result)} has no room for powers that are {2**GROWTH} times as large")
        return way

    # -- expressions ------------------------------------------------------------------------------

    def _of(self, expression: Expression) -> Way:
        match expression:
            case Constant():
                return STAYS
            case Leaf():
                return self.of(expression.value)
            case Node(kind=arith.SelectOp, operands=(test, yes, no)):
                return self._of_choice(test, yes, no)
            case _:
                pass
        ways = [self._of(operand) for operand in expression.operands]
        if all(way.stays for way in ways):
            return STAYS
        found = way_of(expression.kind, ways, expression)
        if found is None:
            raise Moved(f"'{expression.kind.name}' is taken of what moves with it")
        return found

    def _of_choice(self, test: Expression, yes: Expression, no: Expression) -> Way:
        """The test comes out as it would, and all that is chosen goes alike."""
        if not self._is_certain(test):
            raise Moved("a choice is made by it")
        ways = {self._of(each) for each in self._alternatives(test, yes, no)}
        if len(ways) != 1:
            raise Moved("a choice is between what goes with it in different ways")
        return ways.pop()

    def _alternatives(self, test: Expression, yes: Expression, no: Expression) -> Iterator[Expression]:
        """What may be chosen while something lags: of an axis without elements nothing does, nor does an infinite
        extremum; and what is infinite stays so wherever it goes."""
        infinite = _compared_with_infinity(test)
        if infinite is None or not (is_same(yes, infinite) or self._is_extremum(infinite)):
            yield yes
        if not self._says_that_there_are_elements(test):
            yield no

    def _is_extremum(self, part: Expression) -> bool:
        """Whether a part is infinite only where the extremum is: that itself, or less of it."""
        form = linear_form(part, exactly=True)
        return form.keys() == {self.extremum} and 0 < abs(form[self.extremum]) <= 1

    def _says_that_there_are_elements(self, test: Expression) -> bool:
        """Whether a test is one of the axis, or of what conditions leave of each row of the extremum."""
        match test:
            case Node(kind=arith.CmpiOp, operands=(Leaf(value=extent), Constant() as zero)) if zero.number == 0:
                is_extent = isinstance(extent.owner, ExtentOp) and extent.owner.axis.data == self.plan.axis
                return is_extent and same_predicate(test, compare(Leaf(extent), ">", zero))
            case _:
                return self._present is not None and name_of(test) == self._present

    @cached_property
    def _present(self) -> Hashable | None:
        assert isinstance(self.extremum.owner, ReduceOp)
        written = PresentRows(self.extremum.owner).write()
        return None if written is None else name_of(written)

    def _is_certain(self, test: Expression) -> bool:
        """Whether a test says the same of what has moved: what is infinite is so, and what is zero stays zero."""
        if not isinstance(test, Node):
            return self._of(test).stays
        if test.kind is not arith.CmpfOp:
            return all(self._is_certain(operand) for operand in test.operands)
        left, right = test.operands
        if not isinstance(right, Constant):
            return self._of(left).stays and self._of(right).stays
        if _compared_with_infinity(test) is not None and isinstance(left, Node):
            left = left.operands[0]
        way = self._of(left)
        return way.stays or (not way.shifted and right.number == 0) or (not way.scaled and numbers.isinf(right.number))


def _compared_with_infinity(test: Expression) -> Expression | None:
    """What a test asks whether it is infinite, with a sign or without."""
    match test:
        case Node(kind=arith.CmpfOp, operands=(left, Constant() as right)) if numbers.isinf(right.number):
            if not same_predicate(test, compare(left, "==", right)):
                return None
            return left.operands[0] if isinstance(left, Node) and left.kind is math.AbsFOp else left
        case _:
            return None


def _name(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else "a value"
