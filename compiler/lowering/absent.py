"""What stands in registers for absent elements (`diagram.where`).

A thread holds a number for every element of a tile, so something must stand where a condition fails: the neutral
element of whatever reduces it. One number at the condition itself is best, if all that is made of it is then neutral
where it is reduced: a score becomes -inf, its exponential 0, and 0 times anything stays 0. `filler_of` looks for one;
where there is none, the condition is tested again before each reduction."""

from __future__ import annotations

import math as numbers
from collections.abc import Iterator

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i1, i32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, FillOp, MapOp, ReduceOp, WhereOp, YieldOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Linear, Term
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.dialects.hierarchy import LoadOp, SaveOp
from treadle.runtime.formats import rounded

NEUTRAL = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
INTEGER_NEUTRAL = {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1}


def neutral_number(kind: str, value: SSAValue) -> float:
    """The neutral element of a reduction, in the format of a value."""
    return (INTEGER_NEUTRAL if str(format_of(value.type)) == "i32" else NEUTRAL)[kind]


def filler_of(op: WhereOp) -> float | None:
    """A number that, in the place of absent elements, changes nothing in whatever they meet; None if there is none."""
    meetings = list(_meetings(op.result))
    for kind in ("max", "add", "min", "mul"):
        candidate = neutral_number(kind, op.result)
        if all(_Evaluation(op.result, candidate).array(value) == wanted for value, wanted in meetings):
            return candidate
    return None


def _meetings(value: SSAValue) -> Iterator[tuple[SSAValue, float]]:
    """Arrays made of a value that are reduced or saved, each with the number that changes nothing there."""
    for use in value.uses:
        match use.operation:
            case ReduceOp() as reduce if use.index == 0:
                yield value, neutral_number(reduce.kind.data, value)
            case ContractOp() if use.index < 2:
                yield value, 0.0
            case SaveOp():
                yield value, 0.0
            case MapOp() | CastOp() | WhereOp():
                yield from _meetings(use.operation.results[0])
            case _:
                yield value, numbers.nan  # which nothing equals


class _Evaluation:
    """The constant that arrays are where one array is a given number; None where they are no constant. Each is in its
    own format: a format that saturates has no infinity."""

    def __init__(self, array: SSAValue, number: float):
        self.known: dict[SSAValue, float | None] = {array: _held(number, array)}

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
            case arith.DivfOp():
                return self._quotient(op)
            case arith.SelectOp():
                yes, no = self.scalar(op.lhs), self.scalar(op.rhs)
                return yes if yes == no else None
            case _:
                return None

    def _sum(self, op: Operation) -> float | None:
        """An infinite summand decides, beside a finite one."""
        left, right = (self.scalar(operand) for operand in op.operands)
        if isinstance(op, arith.SubfOp) and right is not None:
            right = -right
        if left is not None and right is not None:
            return None if numbers.isnan(left + right) else left + right
        known, other = (left, op.operands[1]) if right is None else (right, op.operands[0])
        return known if known is not None and numbers.isinf(known) and is_finite(other) else None

    def _product(self, op: arith.MulfOp) -> float | None:
        """Zero times something finite; infinity times a constant."""
        left, right = self.scalar(op.lhs), self.scalar(op.rhs)
        if left is not None and right is not None:
            return None if numbers.isnan(left * right) else left * right
        known, other = (left, op.rhs) if right is None else (right, op.lhs)
        return 0.0 if known == 0 and is_finite(other) else None

    def _quotient(self, op: arith.DivfOp) -> float | None:
        upper, lower = self.scalar(op.lhs), self.scalar(op.rhs)
        if upper is None or lower is None or lower == 0 or numbers.isinf(lower):
            return None
        return upper / lower


def _held(number: float | None, value: SSAValue) -> float | None:
    """A number as the format of a value holds it."""
    format = format_of(value.type)
    known = NUMBER_FORMATS.get(str(format))
    if number is None or known is None or not known.is_float:
        return number
    return float(rounded(np.asarray(number), format))


def _number(op: Operation) -> float | None:
    number = op.properties.get("value")
    return float(number.value.data) if isinstance(number, FloatAttr | IntegerAttr) else None


def is_finite(value: SSAValue) -> bool:
    """Whether a number is surely finite, as inputs, constants, and sums of such are: a maximum may be that of nothing,
    unless a finite number stands for it."""
    if isinstance(value, BlockArgument):
        map = value.block.parent_op()
        return not isinstance(map, MapOp) or _is_finite_array(map.inputs[value.index])
    match value.owner:
        case arith.ConstantOp():
            number = _number(value.owner)
            return number is not None and numbers.isfinite(number)
        case arith.SelectOp() as choice if _replaces_infinity(choice):
            return is_finite(choice.lhs)
        case arith.AddfOp() | arith.SubfOp() | arith.MulfOp() | arith.ExtFOp() | arith.NegfOp():
            return all(is_finite(operand) for operand in value.owner.operands)
        case _:
            return False


def _is_finite_array(value: SSAValue) -> bool:
    match value.owner:
        case LoadOp() | ContractOp():
            return True
        case MapOp() as map:
            return is_finite(map.yielded)
        case CastOp():
            return _is_finite_array(value.owner.operands[0])
        case _:
            return False


def _replaces_infinity(op: arith.SelectOp) -> bool:
    """Whether a choice gives something else where its last operand is an infinity."""
    test = op.cond.owner
    if not isinstance(test, arith.CmpfOp) or test.predicate.value.data != 1 or test.lhs is not op.rhs:
        return False
    number = _number(test.rhs.owner) if isinstance(test.rhs.owner, Operation) else None
    return number is not None and numbers.isinf(number)


# -- the test --------------------------------------------------------------------------------------


def test_of(condition: Condition, arguments: dict[Term, SSAValue], block: Block) -> SSAValue:
    """A condition as operations on integers in the body of a map, whose arguments hold its terms."""

    def emit(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    def side(form: Linear, sign: int) -> SSAValue:
        """The terms with factors of one sign, and the constant if it has that sign."""
        total: SSAValue | None = None
        for term, factor in form.terms.items():
            if factor * sign <= 0:
                continue
            value = arguments[term]
            if abs(factor) != 1:
                value = emit(arith.MuliOp(value, emit(arith.ConstantOp.from_int_and_width(abs(factor), i32))))
            total = value if total is None else emit(arith.AddiOp(total, value))
        if total is None or form.constant * sign > 0:
            constant = emit(arith.ConstantOp.from_int_and_width(max(form.constant * sign, 0), i32))
            total = constant if total is None else emit(arith.AddiOp(total, constant))
        return total

    if isinstance(condition, AtLeastZero):
        return emit(arith.CmpiOp(side(condition.form, -1), side(condition.form, 1), "sle"))
    parts = [test_of(part, arguments, block) for part in condition.parts]
    kind = arith.AndIOp if isinstance(condition, Both) else arith.OrIOp
    if not parts:
        return emit(arith.ConstantOp(IntegerAttr(int(isinstance(condition, Both)), i1)))
    result = parts[0]
    for part in parts[1:]:
        result = emit(kind(result, part))
    return result


def kept_if(
    value: SSAValue, condition: Condition, terms: dict[Term, SSAValue], other: FloatAttr | IntegerAttr
) -> MapOp:
    """`value` where a condition holds and a number elsewhere, as a map of fragments; `terms` gives positions along axes
    and inputs as fragments or scalars."""
    inputs = [value, *terms.values()]
    block = Block(arg_types=[format_of(each.type) for each in inputs])
    for argument, each in zip(block.args, inputs, strict=True):
        argument.name_hint = each.name_hint
    holds = test_of(condition, dict(zip(terms, block.args[1:], strict=True)), block)
    number = arith.ConstantOp(other)
    choice = arith.SelectOp(holds, block.args[0], number.result)
    block.add_ops([number, choice, YieldOp(choice.result)])
    return MapOp(inputs, value.type, Region(block))
