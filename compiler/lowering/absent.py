"""What stands in registers for absent elements (`diagram.where`).

A thread holds a number for every element of a tile, so something must stand where a condition fails: the neutral
element of whatever reduces it. One number at the condition itself is best, if all that is made of it is then neutral
where it is reduced: a score becomes -inf, its exponential 0, and 0 times a constant stays 0. `filler_of` looks for
one; where there is none, the condition is tested again before each reduction: data that such a number meets may be NaN
or infinite where the element is absent, and what a map makes of an absent element is absent, whatever else it meets."""

from __future__ import annotations

import math as numbers
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.lowering.runs import yielded
from treadle.dialects.diagram import CastOp, ContractOp, FillOp, MapOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NumberFormat, holds, known_format
from treadle.dialects.hierarchy import SaveOp, StreamOp

NEUTRAL = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
INTEGER_NEUTRAL = {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1}

SPECIALS = frozenset({"-inf", "inf", "nan"})
"""What is not finite."""
LESS = 4
"""Predicate of `arith.cmpf`: ordered and less."""
TINY = 2.0**-100
"""Above this, rounding makes no number zero."""
_OPPOSITE = {"-inf": "inf", "inf": "-inf", "nan": "nan"}


def neutral_number(kind: str, value: SSAValue) -> float:
    """The neutral element of a reduction, in the format of a value."""
    return (INTEGER_NEUTRAL if str(format_of(value.type)) == "i32" else NEUTRAL)[kind]


def filler_of(op: WhereOp) -> float | None:
    """A number that, in the place of absent elements, changes nothing in whatever they meet; None if there is none."""
    return _filler(op.result, list(_meetings(op.result)))


def filler_beyond(value: SSAValue, axis: str) -> float | None:
    """A number that, in the place of elements past the end of an axis, changes nothing in what they meet along it; None
    if there is none, or nothing is spared: they meet once at most."""
    meetings = list(_meetings(value))
    along = [each for each in meetings if axis in each.over]
    if len({each.value for each in along}) < 2 or any(numbers.isnan(each.wanted) for each in meetings):
        return None
    return _filler(value, along)


def is_made_of(value: SSAValue, filled: Container[SSAValue]) -> bool:
    """Whether an array is made, element by element, of one of some arrays."""
    left = [value]
    while left:
        if (each := left.pop()) in filled:
            return True
        if isinstance(each.owner, MapOp | CastOp | WhereOp):
            left += each.owner.operands
    return False


def _filler(value: SSAValue, meetings: Sequence[_Meeting]) -> float | None:
    for kind in ("max", "add", "min", "mul"):
        candidate = neutral_number(kind, value)
        if all(_Evaluation(value, candidate, each).array(each.value) == each.wanted for each in meetings):
            return candidate
    return None


@dataclass(frozen=True)
class _Meeting:
    """Where elements of an array meet: what is reduced over some axes, or saved, and the number that changes nothing
    there."""

    value: SSAValue
    wanted: float
    over: tuple[str, ...] = ()

    def spoils(self, reduce: ReduceOp) -> bool:
        """Whether what meets here is no number, whatever stands for absent elements, where a reduction is none: it
        reduced elements that are here, too, each of which has met with its result."""
        if not set(reduce.over_axes) <= set(self.over) or not absences(self.value) <= absences(reduce.operand):
            return False
        return reduce.init is None or _begins_at_a_constant(reduce.init)


def _begins_at_a_constant(state: SSAValue) -> bool:
    """Whether a value is a state of a stream that was no data before the first piece."""
    if not isinstance(state, BlockArgument):
        return False
    stream = state.block.parent_op()
    if not isinstance(stream, StreamOp) or state.block.parent not in stream.steps:
        return False
    start = yielded(stream.initialise)[state.index].owner
    return isinstance(start, FillOp) and not numbers.isnan(start.number)


def _meetings(value: SSAValue) -> Iterator[_Meeting]:
    """Arrays made of a value that are reduced or saved."""
    for use in value.uses:
        match use.operation:
            case ReduceOp() as reduce if use.index == 0:
                yield _Meeting(value, neutral_number(reduce.kind.data, value), reduce.over_axes)
            case ScanOp() as scan if use.index == 0:
                yield _Meeting(value, neutral_number(scan.kind.data, value), (scan.axis.data,))
            case ContractOp() as contract if use.index < 2:
                yield _Meeting(value, 0.0, contract.over_axes)
            case SaveOp():
                yield _Meeting(value, 0.0)
            case MapOp() | CastOp() | WhereOp():
                yield from _meetings(use.operation.results[0])
            case _:
                yield _Meeting(value, numbers.nan)  # which nothing equals


class _Evaluation:
    """The constant that arrays are where one array is a given number; None where they are no constant. Each is in its
    own format: a format that saturates has no infinity. What they meet at last tells which numbers do no harm."""

    def __init__(self, array: SSAValue, number: float, meeting: _Meeting):
        self.known: dict[SSAValue, float | None] = {array: _held(number, array)}
        self.meeting = meeting

    def array(self, value: SSAValue) -> float | None:
        if value not in self.known:
            self.known[value] = _held(self._array(value), value)
        return self.known[value]

    def _array(self, value: SSAValue) -> float | None:
        match value.owner:
            case FillOp() as fill:
                return float(fill.number)
            case CastOp() | WhereOp():
                return self.array(value.owner.operands[0])
            case MapOp() as map:
                return self.scalar(map.yielded)
            case _:
                return None

    def scalar(self, value: SSAValue) -> float | None:
        if isinstance(value, BlockArgument):
            map = value.block.parent_op()
            return self.array(map.inputs[value.index]) if isinstance(map, MapOp) else None
        if value not in self.known:
            owner = value.owner
            assert isinstance(owner, Operation)
            self.known[value] = _held(self._scalar(owner), value)
        return self.known[value]

    def _scalar(self, op: Operation) -> float | None:
        match op:
            case arith.ConstantOp():
                return _number(op)
            case arith.ExtFOp() | arith.TruncFOp():
                return self.scalar(op.operands[0])
            case arith.NegfOp():
                operand = self.scalar(op.operands[0])
                return None if operand is None else -operand
            case math.ExpOp() | math.Exp2Op():
                return 0.0 if self.scalar(op.operands[0]) == -numbers.inf else None
            case arith.AddfOp() | arith.SubfOp():
                return self._sum(op)
            case arith.MulfOp():
                return self._product(op)
            case math.FmaOp():
                return self._multiply_add(op)
            case arith.DivfOp():
                return self._quotient(op)
            case arith.SelectOp():
                yes, no = self.scalar(op.lhs), self.scalar(op.rhs)
                return yes if yes == no else None
            case _:
                return None

    def _sum(self, op: Operation) -> float | None:
        """An infinite summand decides, but beside its opposite."""
        left, right = (self.scalar(operand) for operand in op.operands)
        if isinstance(op, arith.SubfOp) and right is not None:
            right = -right
        if left is not None and right is not None:
            return None if numbers.isnan(left + right) else left + right
        known, other = (left, op.operands[1]) if right is None else (right, op.operands[0])
        if known is None or not numbers.isinf(known):
            return None
        opposite = known if isinstance(op, arith.SubfOp) and right is None else -known
        return None if self.specials(other) & {_special(opposite), "nan"} else known

    def _product(self, op: arith.MulfOp) -> float | None:
        """Zero times something finite; infinity times a constant."""
        left, right = self.scalar(op.lhs), self.scalar(op.rhs)
        if left is not None and right is not None:
            return None if numbers.isnan(left * right) else left * right
        known, other = (left, op.rhs) if right is None else (right, op.lhs)
        return 0.0 if known == 0 and not self.specials(other) else None

    def _multiply_add(self, op: math.FmaOp) -> float | None:
        """Infinity times a number above zero, beside a summand that is not its opposite."""
        known = self.scalar(op.a)
        if known is None or not numbers.isinf(known) or not self.is_positive(op.b):
            return None
        return None if self.specials(op.c) & {_special(-known), "nan"} else known

    def is_positive(self, value: SSAValue) -> bool:
        """Whether a scalar is a finite number above zero, at whatever element."""
        match value.owner:
            case Block():
                inner = _in_map(value)
                return inner is not None and self.is_positive(inner)
            case arith.ConstantOp():
                return 0 < self.least(value) < numbers.inf
            case arith.SelectOp() as choice:
                is_finite = self.is_positive(choice.lhs) or (_is_bounded(choice) and self.least(choice.lhs) > TINY)
                return is_finite and self.is_positive(choice.rhs)
            case _:
                return False

    def least(self, value: SSAValue) -> float:
        """What a scalar is not below, if it is a number."""
        match value.owner:
            case Block():
                inner = _in_map(value)
                return -numbers.inf if inner is None else self.least(inner)
            case arith.ConstantOp():
                number = _number(value.owner)
                return -numbers.inf if number is None else number
            case arith.MaximumfOp():
                return max(self.least(operand) for operand in value.owner.operands)
            case arith.MulfOp():
                left, right = (self.least(operand) for operand in value.owner.operands)
                return left * right if min(left, right) > 0 else -numbers.inf
            case _:
                return -numbers.inf

    def _quotient(self, op: arith.DivfOp) -> float | None:
        upper, lower = self.scalar(op.lhs), self.scalar(op.rhs)
        if upper is None or lower is None or lower == 0 or numbers.isinf(lower):
            return None
        return upper / lower

    # -- what is no constant ---------------------------------------------------------------------------

    def specials(self, value: SSAValue) -> frozenset[str]:
        """Which of the infinities and NaN a scalar may be at an absent element, and not do so as well at an element
        that is there. Whatever is loaded may hold any of them, and so may a sum of products of it."""
        if isinstance(value, BlockArgument):
            map = value.block.parent_op()
            return self._specials_of_array(map.inputs[value.index]) if isinstance(map, MapOp) else SPECIALS
        match value.owner:
            case arith.ConstantOp():
                number = _number(value.owner)
                return SPECIALS if number is None else _specials_of(number)
            case arith.SelectOp() as choice if (replaced := _replaced_infinity(choice)) is not None:
                return self.specials(choice.lhs) | self.specials(choice.rhs) - {_special(replaced)}
            case arith.SelectOp() as choice if any(_bounds_size(test, choice.lhs) for test in _tests(choice.cond)):
                return self.specials(choice.rhs)
            case arith.MaximumfOp() | arith.MinimumfOp() if (kept := self._bounded(value.owner)) is not None:
                return self.specials(kept) - {"-inf" if isinstance(value.owner, arith.MaximumfOp) else "inf"}
            case arith.ExtFOp():
                return self.specials(value.owner.input)
            case arith.NegfOp():
                return frozenset(_OPPOSITE[each] for each in self.specials(value.owner.operand))
            case arith.MulfOp() if self.is_positive(value.owner.rhs):
                return self._specials_of_multiple(value.owner.lhs, value.owner.rhs)
            case math.FmaOp() if self.is_positive(value.owner.b) and not self.specials(value.owner.c):
                return self._specials_of_multiple(value.owner.a, value.owner.b)
            case arith.AddfOp() | arith.SubfOp() | arith.MulfOp():
                return SPECIALS if any(self.specials(operand) for operand in value.owner.operands) else frozenset()
            case _:
                return SPECIALS

    def _specials_of_multiple(self, value: SSAValue, factor: SSAValue) -> frozenset[str]:
        """Of a number above zero; a constant above 1 makes large numbers infinite. (What is chosen does not.)"""
        number = _number_of(factor)
        beyond = _OPPOSITE.keys() - {"nan"} if number is not None and number > 1 else ()
        return self.specials(value) | frozenset(beyond)

    def _bounded(self, op: arith.MaximumfOp | arith.MinimumfOp) -> SSAValue | None:
        """What a finite constant bounds from one side."""
        for bound, kept in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
            number = _number_of(bound)
            if number is not None and numbers.isfinite(number):
                return kept
        return None

    def _extremes(self, reduce: ReduceOp) -> frozenset[str]:
        """Infinities that an extremum only has where all elements that are there have them, as those past the end of an
        axis do. Where conditions may leave nothing, it has them, too, and there is no such element."""
        worst = {"max": -numbers.inf, "min": numbers.inf}.get(reduce.kind.data)
        if worst is None or absences(reduce.operand) or self.array(reduce.operand) != worst:
            return frozenset()
        return _specials_of(worst)

    def _specials_of_array(self, value: SSAValue) -> frozenset[str]:
        match value.owner:
            case ReduceOp() as reduce if self.meeting.spoils(reduce):
                return SPECIALS - {"nan"} - self._extremes(reduce)
            case MapOp() as map:
                return self.specials(map.yielded)
            case CastOp() as cast if holds(format_of(cast.result.type), format_of(cast.operand.type)):
                return self._specials_of_array(cast.operand)
            case _:
                return SPECIALS


def _in_map(argument: SSAValue) -> SSAValue | None:
    """What an argument of a map is in the map that makes it."""
    map = argument.block.parent_op() if isinstance(argument, BlockArgument) else None
    array = map.inputs[argument.index].owner if isinstance(map, MapOp) and isinstance(argument, BlockArgument) else None
    return array.yielded if isinstance(array, MapOp) else None


def _is_bounded(op: arith.SelectOp) -> bool:
    """Whether the first choice is taken only if its product with something not below zero is below a constant: then it
    is not infinite, and a number."""
    test = op.cond.owner
    if not isinstance(test, arith.CmpfOp) or test.predicate.value.data != LESS or _number_of(test.rhs) is None:
        return False
    scaled = test.lhs.owner
    if not isinstance(scaled, arith.MulfOp) or op.lhs not in scaled.operands:
        return False
    other = scaled.rhs if scaled.lhs is op.lhs else scaled.lhs
    return isinstance(other.owner, math.AbsFOp)


def _tests(condition: SSAValue) -> Iterator[Operation]:
    """What must hold for a condition to."""
    owner = condition.owner
    if isinstance(owner, arith.AndIOp):
        yield from (test for operand in owner.operands for test in _tests(operand))
    elif isinstance(owner, Operation):
        yield owner


def _bounds_size(test: Operation, value: SSAValue) -> bool:
    """Whether a test asks if the size of a value is below a constant."""
    if not isinstance(test, arith.CmpfOp) or test.predicate.value.data != LESS or _number_of(test.rhs) is None:
        return False
    return isinstance(test.lhs.owner, math.AbsFOp) and test.lhs.owner.operand is value


def _held(number: float | None, value: SSAValue) -> float | None:
    """A number as the format of a value holds it; None for what integers do not hold."""
    format = format_of(value.type)
    known = known_format(format)
    if number is None or known is None:
        return number
    if not known.is_float:
        return _clipped(number, known)
    if number in (0, 1) or (numbers.isinf(number) and not known.saturates):
        return number
    from treadle.runtime.formats import rounded  # numpy's further formats, which few programs need here

    return float(rounded(np.asarray(number), format))


def _clipped(number: float, format: NumberFormat) -> float | None:
    """As integers that saturate hold it; those that wrap (`largest` is 0) hold what is computed in them."""
    if not numbers.isfinite(number):
        return None
    return min(max(number, format.range[0]), format.range[1]) if format.saturates else number


def _number(op: Operation) -> float | None:
    number = op.properties.get("value")
    return float(number.value.data) if isinstance(number, FloatAttr | IntegerAttr) else None


def _number_of(value: SSAValue) -> float | None:
    return _number(value.owner) if isinstance(value.owner, arith.ConstantOp) else None


def _special(infinity: float) -> str:
    return "inf" if infinity > 0 else "-inf"


def _specials_of(number: float) -> frozenset[str]:
    if numbers.isnan(number):
        return frozenset({"nan"})
    return frozenset({_special(number)}) if numbers.isinf(number) else frozenset()


def _replaced_infinity(op: arith.SelectOp) -> float | None:
    """The infinity in whose place a choice gives something else than its last operand."""
    test = op.cond.owner
    if not isinstance(test, arith.CmpfOp) or test.predicate.value.data != 1 or test.lhs is not op.rhs:
        return None
    number = _number(test.rhs.owner) if isinstance(test.rhs.owner, Operation) else None
    return number if number is not None and numbers.isinf(number) else None


# -- what meets absent elements ------------------------------------------------------------------


def is_met_by_absent(value: SSAValue, axis: str) -> bool:
    """Whether a value is multiplied, in a sum over an axis, with what is absent where it is not itself: a zero stands
    for that, and is to meet a number."""
    return any(
        isinstance(contract := use.operation, ContractOp)
        and use.index < 2
        and axis in contract.over_axes
        and not absences(contract.operands[1 - use.index]) <= absences(value)
        for use in value.uses
    )


def tells(value: SSAValue) -> bool:
    """Whether a condition is asked about a value, or about what is made of it: then it must be what it is."""
    made = [value]
    for each in made:
        for use in each.uses:
            if isinstance(use.operation, WhereOp) and use.index > 0:
                return True
            made += [result for result in use.operation.results if result not in made]
    return False
