"""Take the powers of a turn from the maximum of the turns before, and look afterwards whether they grew too large.

A maximum may lag behind as far as powers that are told from it have room (`passes/streams/lagging.py`). So a turn need
not know its own: it takes its powers from the one that the stream keeps. No power is below zero, so none is above the
sum of those that a lane adds up; if that is at most 2^8, the maximum is within the slack, and all is as it is to be.
Else, or if the sum is no number, a warp makes the turn's powers anew, from the maximum as it is then.

What is told from the maximum alone (the slope and the offset of the powers) then stays, too, from turn to turn."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf

from xdsl.dialects import arith, math, scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import CastOp, MapOp, ReduceOp
from treadle.passes.expressions.lagging import FINE, lag_of
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    expression_of,
    is_plain,
    positive_constant,
    same_predicate,
    strip_casts,
)
from treadle.passes.warps.laws import Reason

Mapping = dict[SSAValue, SSAValue]

MADE_ANEW = MapOp | CastOp | ReduceOp | cuda.MaskOp
"""What a lane, or the lanes of a warp, make of numbers that they hold."""

LEAST = -(2.0 - 2.0**-23) * 2.0**127
"""The least finite number of f32."""


@dataclass(frozen=True)
class Speculation:
    """What a turn of a loop makes of an extremum that lags."""

    loop: scf.ForOp
    extremum: ReduceOp
    slack: float
    position: int
    """Of the extremum among the states of the loop."""
    before: SSAValue
    """What the stream keeps when a turn begins."""
    kept: SSAValue
    """What it goes on with."""
    told: tuple[MADE_ANEW, ...]
    """All that is made of it and of nothing that comes later, in order."""
    alone: frozenset[SSAValue]
    """What is told from the extremum alone."""
    offset: SSAValue
    """What the exponents of powers subtract."""
    sum: ReduceOp
    """Of the powers, that says how far they grew."""
    limit: float
    """Of that sum."""

    @property
    def finite(self) -> float:
        """The size of the extrema that may lag."""
        return self.slack * FINE

    @cached_property
    def tests(self) -> int:
        """How many tests an element passes in every turn: bounds of masks, and comparisons of integers in maps, which
        conditions become that leave no intervals."""
        found, seen, left = 0, set[Operation](), [self.extremum.operand]
        while left:
            owner = left.pop().owner
            if not isinstance(owner, cuda.MaskOp | MapOp) or owner in seen or owner.parent is not self.extremum.parent:
                continue
            seen.add(owner)
            found += _tests_of(owner)
            left += owner.operands
        return found

    @cached_property
    def wanted(self) -> tuple[SSAValue, ...]:
        """Those of its values that something else uses, which a turn has to have either way."""
        inside = set[Operation](self.told)
        used = (op.result for op in self.told if any(use.operation not in inside for use in op.result.uses))
        return tuple(value for value in used if value is not self.kept)

    def made_again(self, value: SSAValue) -> bool:
        """Whether it is made of powers; else it is told from the extremum, or is one while that stays."""
        return value not in self.alone and not self.is_one(value)

    def is_one(self, value: SSAValue) -> bool:
        """Whether a value is the power of how far the extremum moved."""
        return isinstance(value.owner, MapOp) and _is_moved(value.owner, self.before, self.kept)

    @cached_property
    def again(self) -> tuple[MADE_ANEW, ...]:
        """What is made before anybody knows the extremum of the turn, in order."""
        needed, left = set[Operation](), [self.sum.result, *filter(self.made_again, self.wanted)]
        while left:
            owner = left.pop().owner
            if not isinstance(owner, MADE_ANEW) or owner not in self.told:
                continue
            if owner in needed or owner.results[0] in self.alone:
                continue
            needed.add(owner)
            left += [each for each in owner.operands if not is_start(owner, each)]
        return tuple(op for op in self.told if op in needed)

    @cached_property
    def carried(self) -> tuple[SSAValue, ...]:
        """What is told from the extremum alone and goes from turn to turn."""
        used = [operand for op in self.again for operand in op.operands if operand in self.alone]
        return tuple(dict.fromkeys([*used, *(value for value in self.wanted if value in self.alone)]))


def _tests_of(op: cuda.MaskOp | MapOp) -> int:
    if isinstance(op, cuda.MaskOp):
        return len(op.bounds)
    return sum(isinstance(inner, arith.CmpiOp) for inner in op.walk())


def speculation(loop: scf.ForOp) -> Speculation | Reason | None:
    """What a loop could make before it knows an extremum, or why not; None if no extremum lags in it."""
    body = loop.body.block
    end = body.last_op
    assert isinstance(end, scf.YieldOp)
    lags = {i: lag for i, value in enumerate(end.operands) if (lag := lag_of(value)) is not None}
    if not lags:
        return None
    (position, (extremum, slack)), *others = lags.items()
    kept, before, name = end.operands[position], body.args[1 + position], f"%{extremum.result.name_hint}"
    if others:
        return Reason("one maximum lags", f"{len(lags)} extrema do, {name} first")
    if extremum.kind.data != "max":
        return Reason("one maximum lags", f"{name} is a minimum")
    if extremum.init is not before or extremum.parent is not body:
        return Reason("the stream keeps a maximum that lags", f"{name} is kept otherwise")
    if not any(isinstance(op, cuda.WarpgroupWaitOp) for op in _behind(extremum)):
        return Reason("products run meanwhile", f"no product of warpgroups runs while {name} is awaited")
    if _spread_over_warps(extremum):
        return Reason("a warp finds a maximum by itself", f"{name} is of several warps")
    told = _told(extremum, {each for each in body.args[1:] if each is not before})
    alone = _alone(kept, told)
    if any(use.operation not in told for use in extremum.result.uses):
        return Reason("the stream keeps a maximum that lags", f"{name} itself is used")
    sums = [op for op in told if isinstance(op, ReduceOp)]
    bounds = [(op, bound) for op in sums if (bound := _bounds(op, extremum, kept, alone)) is not None]
    if not bounds:
        return Reason("a sum of powers says how large they are", f"none is of powers that are told from {name}")
    sum, (offset, slope) = bounds[0]
    limit = 2.0 ** round(slack * slope)
    found = Speculation(loop, extremum, slack, position, before, kept, told, frozenset(alone), offset, sum, limit)
    return _why_not(found) or found


def _behind(op: Operation) -> Iterator[Operation]:
    following = op.next_op
    while following is not None:
        yield following
        following = following.next_op


def _spread_over_warps(extremum: ReduceOp) -> bool:
    return any(mode.axis in extremum.over_axes for mode in layout_of(extremum.operand.type).warp)


def is_start(op: Operation, value: SSAValue) -> bool:
    """Whether a sum begins with a value, which may be known later."""
    return isinstance(op, ReduceOp) and op.kind.data == "add" and op.init is value


def _told(extremum: ReduceOp, states: Container[SSAValue]) -> tuple[MADE_ANEW, ...]:
    """What is made of an extremum and of nothing that is not there when it is known; what sums begin with aside."""
    body, made, found = extremum.parent, set[SSAValue](), list[MADE_ANEW]()

    def is_there(value: SSAValue) -> bool:
        if value in made:
            return True
        owner = value.owner
        if isinstance(owner, Block):
            return value not in states
        return owner.parent is not body or owner.is_before_in_block(extremum)

    for op in (extremum, *_behind(extremum)):
        told = op is extremum or any(operand in made for operand in op.operands)
        if told and isinstance(op, MADE_ANEW) and all(is_there(each) or is_start(op, each) for each in op.operands):
            made |= set(op.results)
            found.append(op)
    return tuple(found)


def _alone(kept: SSAValue, told: Iterable[Operation]) -> set[SSAValue]:
    """What is told from what a stream keeps, and from nothing else."""
    found = {kept}
    for op in told:
        if isinstance(op, MapOp) and op.inputs and found.issuperset(op.inputs):
            found.add(op.result)
    return found


def _bounds(op: Operation, extremum: ReduceOp, kept: SSAValue, alone: set[SSAValue]) -> tuple[SSAValue, float] | None:
    """The offset and the slope of the powers that an operation adds up, all those of what the extremum is of:
    `exp2(slope s - offset)`, where the offset is the slope times the extremum."""
    if not isinstance(op, ReduceOp) or op.kind.data != "add" or not isinstance(op.operand.owner, MapOp):
        return None
    map, over = op.operand.owner, (op.over_axes, layout_of(op.operand.type))
    if over != (extremum.over_axes, layout_of(extremum.operand.type)) or not is_plain(map):
        return None
    match expression_of(map):
        case Node(
            kind=math.Exp2Op, operands=(Node(kind=math.FmaOp, operands=(one, other, Node(kind=arith.NegfOp) as rest)),)
        ):
            scores, slope = (one, other) if one == Leaf(extremum.operand) else (other, one)
            (offset,) = rest.operands
            if scores != Leaf(extremum.operand) or not isinstance(offset, Leaf) or offset.value not in alone:
                return None
            steepness = _slope(slope, alone)
            if steepness is None or not _is_product(offset.value, slope, kept):
                return None
            return offset.value, steepness
        case _:
            return None


def _slope(slope: Expression, alone: set[SSAValue]) -> float | None:
    """The slope of finite extrema that may lag: a positive number, or the first of two that their size decides."""
    if (number := positive_constant(slope)) is not None:
        return number
    if not isinstance(slope, Leaf) or slope.value not in alone or not isinstance(slope.value.owner, MapOp):
        return None
    match expression_of(slope.value.owner):
        case Node(kind=arith.SelectOp, operands=(_, Constant() as fine, Constant() as steep)):
            return fine.number if fine.number > 0 and steep.number > 0 else None
        case _:
            return None


def _is_product(offset: SSAValue, slope: Expression, kept: SSAValue) -> bool:
    """Whether an offset is the slope times what the stream keeps, or the least finite number if that is more."""
    if not isinstance(offset.owner, MapOp):
        return False
    match expression_of(offset.owner):
        case Node(kind=arith.MulfOp, operands=parts):
            rest = [part for part in parts if not _is_same_slope(part, slope)]
            return len(rest) == 1 and isinstance(rest[0], Leaf) and _is_finite_form(rest[0].value, kept)
        case _:
            return False


def _is_finite_form(value: SSAValue, kept: SSAValue) -> bool:
    """Whether a value is what the stream keeps, or is that where it is finite: not below the least number, or with
    another one in place of minus infinity."""
    if value is kept:
        return True
    if not isinstance(value.owner, MapOp):
        return False
    match expression_of(value.owner):
        case Node(kind=arith.MaximumfOp, operands=(Leaf(value=inner), Constant() as least)):
            return inner is kept and least.number <= LEAST
        case Node(
            kind=arith.SelectOp,
            operands=(Node(operands=(Leaf() as tested, Constant() as none)) as test, Constant(), other),
        ):
            is_neutral = none.number == -inf and same_predicate(test, compare(tested, "==", none))
            return is_neutral and tested.value is kept and other == tested
        case _:
            return False


def _is_same_slope(one: Expression, other: Expression) -> bool:
    if isinstance(one, Constant) and isinstance(other, Constant):
        return one.number == other.number
    return one == other


def _is_moved(map: MapOp, before: SSAValue, kept: SSAValue) -> bool:
    """Whether a map is `exp2(c (before - now))`, which is one where a finite extremum stays."""
    if not is_plain(map):
        return False
    match strip_casts(expression_of(map)):
        case Node(kind=math.Exp2Op | math.ExpOp, operands=(exponent,)):
            parts = exponent.operands if isinstance(exponent, Node) and exponent.kind is arith.MulfOp else (exponent,)
            moves = [part for part in parts if not isinstance(part, Constant)]
            match moves:
                case [Node(kind=arith.SubfOp, operands=(Leaf(value=one), Leaf(value=other)))]:
                    return one is before and _is_finite_form(other, kept)
                case _:
                    return False
        case _:
            return False


def _why_not(found: Speculation) -> Reason | None:
    name = f"%{found.extremum.result.name_hint}"
    for op in found.again:
        wrong = [each for each in op.operands if each.owner in found.told and each not in found.alone]
        wrong = [each for each in wrong if each.owner not in found.again and not is_start(op, each)]
        if wrong or op is found.extremum:
            return Reason("powers are told from what a stream keeps", f"%{op.results[0].name_hint} is not")
    if found.offset not in found.carried:
        return Reason("powers are told from what a stream keeps", f"{name} is no part of what goes on")
    if found.offset in found.wanted:  # which is minus infinity where no power is to be told from it
        return Reason("only powers are told from what they subtract", f"%{found.offset.name_hint} is used otherwise")
    return None
