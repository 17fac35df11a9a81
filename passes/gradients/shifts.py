"""Values that make no difference: maxima that are subtracted before powers and cancel where these are divided.

Let m be a value, and all else fixed. What is computed from m is followed as long as it is `c m + a` (a *shift*) or
`exp(c m) a` (a *scale*), where `a` does not depend on m. Powers make scales of shifts, logarithms shifts of scales;
quotients of equal scales do not depend on m, nor do differences of equal shifts. If no result depends on m, its
derivative by m is zero: no gradient goes through m, and nobody asks which elements were the largest."""

from __future__ import annotations

import math as numbers
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    expression_of,
    inside_out,
    is_plain,
)


@dataclass(frozen=True)
class Shift:
    """`factor m + a`."""

    factor: float


@dataclass(frozen=True)
class Scale:
    """`exp(factor m) a`."""

    factor: float


Dependence: TypeAlias = "Shift | Scale | None"
"""How something depends on m; None: in another way."""

FREE = Shift(0.0)
"""Not at all."""


def makes_no_difference(value: SSAValue, block: Block, results: Iterable[SSAValue]) -> bool:
    """Whether no result depends on a value of the block, what it is computed from being fixed."""
    known: dict[SSAValue, Dependence] = {value: Shift(1.0)}
    axes = set(axes_of(value.type))
    for op in block.ops:
        if any(operand in known for operand in op.operands) and value not in op.results:
            found = _of_operation(op, known, axes)
            if found != FREE:
                known |= dict.fromkeys(op.results, found)
    return all(known.get(result, FREE) == FREE for result in results)


def _of_operation(op: Operation, known: Mapping[SSAValue, Dependence], axes: Set[str]) -> Dependence:
    match op:
        case MapOp() if is_plain(op):
            return _of_expression(expression_of(op), known)
        case CastOp() if op.fixed is None and str(format_of(op.result.type)) not in EIGHT_BIT:
            return known[op.operand]
        case WhereOp() if not any(value in known for value in op.inputs):
            return known[op.operand]
        case ContractOp() if op.init is None and not axes & set(op.over_axes):
            found = _product(known.get(op.lhs, FREE), known.get(op.rhs, FREE))
            return found if found == FREE or isinstance(found, Scale) else None
        case ReduceOp() if op.init is None and not axes & set(op.over_axes):
            return _reduced(op.kind.data, known[op.operand])
        case _:
            return None


def _reduced(kind: str, operand: Dependence) -> Dependence:
    """Of elements that all depend on m alike, for m is the same along the axis."""
    if kind in ("max", "min") or (kind == "add" and isinstance(operand, Scale)):
        return operand
    return None


def _of_expression(expression: Expression, known: Mapping[SSAValue, Dependence]) -> Dependence:
    found: dict[int, Dependence] = {}
    for part in inside_out(expression):
        if isinstance(part, Leaf):
            found[id(part)] = known.get(part.value, FREE)
        elif isinstance(part, Constant):
            found[id(part)] = FREE
        else:
            found[id(part)] = _of_node(part, [found[id(operand)] for operand in part.operands])
    return found[id(expression)]


EXPONENTIALS: dict[type[Operation], float] = {math.ExpOp: 1.0, math.Exp2Op: numbers.log(2)}
LOGARITHMS: dict[type[Operation], float] = {math.LogOp: 1.0, math.Log2Op: numbers.log(2), math.Log10Op: numbers.log(10)}
ROOTS: dict[type[Operation], float] = {math.SqrtOp: 0.5, math.RsqrtOp: -0.5, math.CbrtOp: 1 / 3}
EXTREMA = (arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp)
ALIKE: tuple[type[Operation], ...] = (*EXTREMA, arith.AddfOp)


def _of_node(node: Node, operands: list[Dependence]) -> Dependence:
    if all(operand == FREE for operand in operands):
        return FREE
    kind, first = node.kind, operands[0]
    if None in operands or str(node.type) in EIGHT_BIT:  # where a rounding to 8 bits saturates it is another number
        return None
    match operands:
        case [Shift(factor)] if kind in EXPONENTIALS:
            return Scale(factor * EXPONENTIALS[kind])
        case [Scale(factor)] if kind in LOGARITHMS:
            return Shift(factor / LOGARITHMS[kind])
        case [Scale(factor)] if kind in ROOTS:
            return Scale(factor * ROOTS[kind])
        case [Scale()] if kind in (*CASTS, math.AbsFOp, arith.NegfOp):
            return first
        case [Shift(factor)] if kind in (*CASTS, arith.NegfOp):
            return Shift(-factor) if kind is arith.NegfOp else first
        case [Shift(one), Shift(other)] if kind in (arith.AddfOp, arith.SubfOp):
            return _shift(one + other if kind is arith.AddfOp else one - other)
        case [one, other] if kind in (*ALIKE, arith.SubfOp) and _equal(one, other):
            return one
        case [one, other] if kind is arith.CmpfOp and _equal(one, other):
            return FREE
        case [Shift(0.0), one, other] if kind is arith.SelectOp and _equal(one, other):
            return one
        case [one, other] if kind in (arith.MulfOp, arith.DivfOp):
            return _multiplied(node, one, other)
        case _:
            return None


def _multiplied(node: Node, one: Dependence, other: Dependence) -> Dependence:
    """A product or a quotient: a shift may be multiplied by a number, and divided by one."""
    left, right = node.operands
    is_quotient = node.kind is arith.DivfOp
    if isinstance(one, Shift) and one != FREE and isinstance(right, Constant) and right.number:
        return Shift(one.factor / right.number if is_quotient else one.factor * right.number)
    if isinstance(other, Shift) and other != FREE and isinstance(left, Constant) and not is_quotient:
        return _shift(other.factor * left.number)
    if is_quotient and isinstance(other, Scale):
        other = Scale(-other.factor)
    return _product(one, other)


def _product(one: Dependence, other: Dependence) -> Dependence:
    pair = [each for each in (one, other) if each != FREE]
    if not all(isinstance(each, Scale) for each in pair):
        return None
    total = sum(each.factor for each in pair if isinstance(each, Scale))
    return FREE if _is_nothing(total) else Scale(total)


def _equal(one: Dependence, other: Dependence) -> bool:
    """Whether two depend alike: a sum, a comparison or a choice of them then depends so, too."""
    return type(one) is type(other) and one is not None and other is not None and _is_nothing(one.factor - other.factor)


def _shift(factor: float) -> Shift:
    return FREE if _is_nothing(factor) else Shift(factor)


def _is_nothing(factor: float) -> bool:
    return abs(factor) < 1e-12
