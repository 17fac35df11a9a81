"""Powers of e as powers of 2, which the machine computes."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard, cast

from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.passes._bounds import is_positive_scalar
from treadle.passes._scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    compare,
    difference,
    expression_of,
    expressions_of,
    is_number,
    is_plain,
    number,
    product,
    select,
)

LOG2_E = 1.4426950408889634
DIGITS = 24
"""Binary digits of an f32."""
EQUAL = 1
"""Predicate of `arith.cmpf`: ordered and equal."""


@dataclass(frozen=True)
class DiagramExpToExp2Pass(ModulePass):
    """Write `exp(x)` as `exp2(x log2 e)`, with a constant factor of `x` folded into log2 e.

    Three laws, all equal over the real numbers; what they do to rounding:

    - *A factor.* `exp(c x) = exp2(c' x)` with `c' = c log2 e`: one rounding of the exponent, as `exp` itself has.
    - *A difference.* `exp(c a - c b) = exp2(c' (a - b))`: the difference comes first, because that of close numbers is
      exact. It is never a factor over each side, whose roundings would be as large as the sides are: the difference of
      two equal numbers would not be zero, nor that of two infinite products a number.
    - *Below a maximum.* One multiply-add an element, `exp2(slope a - offset)` with `slope = c'` and `offset = c' b`
      rounded, if `b` is the maximum of `a`, `a` was rounded by a contraction, and `0 < c' < 2`. The power is then too
      large or too small by `2^(offset - c' b)`, which is less than what a rounding of the elements does to it,
      while `|offset| < 2^24`. Beyond that the elements are further apart than 1 in the exponent, and what matters is
      that equal ones count alike: there `slope` is the power of two next to `c'`, at most 1, so that `offset` is exact
      and finite. So no power overflows, and that of the maximum is never 0. The factor may hold a number of the
      program that is above zero; then the slope beyond is a power of two so large that neighbours are 1 apart, whatever
      the factor is. What is added to the exponent is taken from the offset, but beyond, where it would only be rounded:
      all powers of a row then lack the same factor.

    Before:
    ```
    !Q = tensor<4x16xf16, #diagram.array<[q, d]>>
    !K = tensor<8x16xf16, #diagram.array<[x, d]>>
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%Q: !Q, %K: !K, %T: !S) -> (!S, !S) {
      %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
      %m = diagram.reduce max %S over [x] : !S -> !m
      %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
        %difference = arith.subf %s, %r : f32
        %c = arith.constant 0.25 : f32
        %scaled = arith.mulf %difference, %c : f32
        %p = math.exp %scaled : f32
        diagram.yield %p : f32
      }
      %n = diagram.reduce max %T over [x] : !S -> !m
      %R = diagram.map (%t = %T : !S, %r = %n : !m) -> !S {
        %difference = arith.subf %t, %r : f32
        %p = math.exp %difference : f32
        diagram.yield %p : f32
      }
      func.return %P, %R : !S, !S
    }
    ```

    After:
    ```
    !Q = tensor<4x16xf16, #diagram.array<[q, d]>>
    !K = tensor<8x16xf16, #diagram.array<[x, d]>>
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%Q: !Q, %K: !K, %T: !S) -> (!S, !S) {
      %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
      %m = diagram.reduce max %S over [x] : !S -> !m
      %slope = diagram.map (%m_1 = %m : !m) -> !m {
        %0 = math.absf %m_1 : f32
        %1 = arith.constant 0x4C317218 : f32
        %2 = arith.cmpf olt, %0, %1 : f32
        %3 = arith.constant 0.360673755 : f32
        %4 = arith.constant 5.000000e-01 : f32
        %5 = arith.select %2, %3, %4 : f32
        diagram.yield %5 : f32
      }
      %offset = diagram.map (%m_1 = %m : !m, %slope_1 = %slope : !m) -> !m {
        %0 = arith.mulf %m_1, %slope_1 : f32
        diagram.yield %0 : f32
      }
      %P = diagram.map (%s = %S : !S, %slope_1 = %slope : !m, %offset_1 = %offset : !m) -> !S {
        %0 = arith.negf %offset_1 : f32
        %1 = math.fma %s, %slope_1, %0 : f32
        %p = math.exp2 %1 : f32
        diagram.yield %p : f32
      }
      %n = diagram.reduce max %T over [x] : !S -> !m
      %R = diagram.map (%t = %T : !S, %r = %n : !m) -> !S {
        %0 = arith.subf %t, %r : f32
        %log2_e = arith.constant 1.44269502 : f32
        %1 = arith.mulf %0, %log2_e : f32
        %p = math.exp2 %1 : f32
        diagram.yield %p : f32
      }
      func.return %P, %R : !S, !S
    }
    ```
    """

    name = "diagram-exp-to-exp2"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for map in list(op.walk()):
            if isinstance(map, MapOp) and (powers := [*filter(_is_power, map.body.block.ops)]):
                for power in powers:
                    _rewrite(power, map)
                _erase_dead(map)
                _drop_unused(map)


def _is_power(op: Operation) -> TypeGuard[math.ExpOp]:
    return isinstance(op, math.ExpOp) and op.result.type == f32


def _rewrite(op: math.ExpOp, map: MapOp) -> None:
    power = math.Exp2Op(_exponent(op, map))
    power.location = op.location
    power.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, power)


def _exponent(op: math.ExpOp, map: MapOp) -> SSAValue:
    """log2 e times what `op` takes the power of, computed before `op`."""
    inside = expressions_of(map) if is_plain(map) else {}
    terms, plus = _linear(op.operand, lambda value: value in inside and is_positive_scalar(inside[value]))
    if len(terms) == 2:
        (a, c), (b, other) = terms.items()
        apart = c == -other and a.scale is b.scale and _is_safe(c)
        if apart and (found := _of_difference(op, map, a, b, c, inside, plus)) is not None:
            return found
    if len(terms) == 1 and not plus:
        ((x, c),) = terms.items()
        if x.scale is None and _is_safe(c):
            return _insert(arith.MulfOp(x.value, _constant(c * LOG2_E, op)), op)
    return _insert(arith.MulfOp(op.operand, _constant(LOG2_E, op)), op)


def _of_difference(
    op: math.ExpOp, map: MapOp, a: _Term, b: _Term, c: float, inside: Mapping[SSAValue, Expression], plus: float
) -> SSAValue | None:
    """`log2 e (c (a - b) + plus)`, where `a` and `b` have one scale; None where that is no shorter than it stands."""
    if c < 0:
        a, b, c = b, a, -c
    outer: dict[SSAValue, SSAValue] = dict(zip(map.body.block.args, map.inputs, strict=True))
    slope, is_small = number(c * LOG2_E), a.scale is not None or c * LOG2_E < 2
    if a.scale is not None:
        slope = product(inside[a.scale], slope)
    left, right = outer.get(a.value), outer.get(b.value)
    if left is not None and right is not None and is_small and _is_rounded(left) and _is_maximum(right, left):
        return _below_maximum(op, map, a.value, right, slope, plus * LOG2_E)
    if plus:
        return None
    apart, factor = _insert(arith.SubfOp(a.value, b.value), op), _constant(c * LOG2_E, op)
    if a.scale is not None:
        factor = _insert(arith.MulfOp(a.scale, factor), op)
    return _insert(arith.MulfOp(apart, factor), op)


# -- what stands in a body --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Term:
    """A value of a body, or that times another, which is the same for all elements."""

    value: SSAValue
    scale: SSAValue | None


_Form = dict[_Term | None, float]
"""A sum of constant multiples, under None of 1."""


def _linear(value: SSAValue, is_scale: Callable[[SSAValue], bool]) -> tuple[dict[_Term, float], float]:
    """A value of a body as a sum of constant multiples of others, and the constant that is added."""
    form: _Form = {}
    _add(value, 1.0, form, None, is_scale)
    return {term: factor for term, factor in form.items() if term is not None}, form.get(None, 0.0)


def _add(
    value: SSAValue, factor: float, form: _Form, scale: SSAValue | None, is_scale: Callable[[SSAValue], bool]
) -> None:
    def add(part: SSAValue, times: float = 1.0, by: SSAValue | None = scale) -> None:
        _add(part, factor * times, form, by, is_scale)

    match value.owner:
        case arith.SubfOp(lhs=left, rhs=right):
            add(left)
            add(right, -1.0)
        case arith.AddfOp(lhs=left, rhs=right):
            add(left)
            add(right)
        case arith.NegfOp(operand=inner):
            add(inner, -1.0)
        case arith.MulfOp(lhs=left, rhs=right) if (c := _number(right)) is not None:
            add(left, c)
        case arith.MulfOp(lhs=left, rhs=right) if (c := _number(left)) is not None:
            add(right, c)
        case arith.MulfOp(lhs=left, rhs=right) if scale is None and is_scale(right):
            add(left, by=right)
        case arith.MulfOp(lhs=left, rhs=right) if scale is None and is_scale(left):
            add(right, by=left)
        case arith.ConstantOp() if scale is None and (c := _number(value)) is not None:
            form[None] = form.get(None, 0.0) + factor * c
        case _:
            term = _Term(value, scale)
            form[term] = form.get(term, 0.0) + factor


def _is_safe(factor: float) -> bool:
    """Whether `factor log2 e` is an ordinary f32, so large that what overflows before it is a power of inf or 0."""
    return 2.0**-100 <= abs(factor) <= 2.0**100


def _number(value: SSAValue) -> float | None:
    if not isinstance(value.owner, arith.ConstantOp):
        return None
    return cast(FloatAttr[AnyFloat], value.owner.value).value.data


def _constant(factor: float, place: Operation) -> SSAValue:
    """A factor with log2 e in it."""
    constant = _insert(arith.ConstantOp(FloatAttr(factor, f32)), place)
    constant.name_hint = "log2_e"
    return constant


def _insert(op: Operation, place: Operation) -> SSAValue:
    op.location = place.location
    Rewriter.insert_op(op, InsertPoint.before(place))
    return op.results[0]


def _erase_dead(map: MapOp) -> None:
    for op in reversed(list(map.body.block.ops)):
        if op.results and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)


def _drop_unused(map: MapOp) -> None:
    """Operands that the body reads no more, unless they alone make elements absent."""
    given = list(zip(map.inputs, map.body.block.args, strict=True))
    absent = absences_of(operand for operand, argument in given if argument.uses)
    kept = [bool(argument.uses) or not absences_of([operand]) <= absent for operand, argument in given]
    map.operands = [operand for (operand, _), is_kept in zip(given, kept, strict=True) if is_kept]
    for (_, argument), is_kept in zip(given, kept, strict=True):
        if not is_kept:
            map.body.block.erase_arg(argument)


# -- below a maximum --------------------------------------------------------------------------------


def _below_maximum(
    op: math.ExpOp, map: MapOp, a: SSAValue, maximum: SSAValue, factor: Expression, plus: float
) -> SSAValue:
    """`slope a - offset`; slope and offset are arrays of their own, for all elements that share a maximum."""
    slope = _before(map, _slope(Leaf(maximum), factor), maximum, "slope")
    at_maximum = product(Leaf(maximum), Leaf(slope))
    if plus:
        at_maximum = difference(at_maximum, select(_is_fine(Leaf(maximum), factor), number(plus), number(0)))
    offset = _before(map, at_maximum, maximum, "offset")
    block, given = map.body.block, (slope, offset)
    slope_of, offset_of = (block.insert_arg(f32, len(block.args)) for _ in given)
    slope_of.name_hint, offset_of.name_hint = "slope", "offset"
    map.operands = (*map.operands, *given)
    return _insert(math.FmaOp(a, slope_of, _insert(arith.NegfOp(offset_of), op)), op)


def _slope(maximum: Expression, factor: Expression) -> Expression:
    """`factor`, or a power of two where a product with `factor` has no digit after the point."""
    return select(_is_fine(maximum, factor), factor, _steep(maximum, factor))


def _is_fine(maximum: Expression, factor: Expression) -> Expression:
    """Whether a product of a maximum and a factor has digits after the point."""
    size = Node(math.AbsFOp, (maximum,), f32)
    if isinstance(factor, Constant):
        return compare(size, "<", number(2.0**DIGITS / factor.number))
    return compare(product(size, factor), "<", number(2.0**DIGITS))


def _steep(maximum: Expression, factor: Expression) -> Expression:
    """A power of two, at least a half of the factor, whose product with the maximum is finite. Of a factor that is not
    known it is so steep that neighbours of the maximum are 1 apart, at least: whatever the factor, they are that in a
    product with it that has no digit after the point."""
    if isinstance(factor, Constant):
        return number(2.0 ** min(round(numbers.log2(factor.number)), 0))
    size = Node(math.AbsFOp, (maximum,), f32)
    large = select(compare(size, "<", number(2.0**64)), number(2.0**63), number(1))
    return select(compare(size, "<", number(1)), number(2.0**126), large)


def _before(map: MapOp, expression: Expression, like: SSAValue, hint: str) -> SSAValue:
    new = build_map(expression, like.type, hint, map.location)
    Rewriter.insert_op(new, InsertPoint.before(map))
    return new.result


def _is_rounded(value: SSAValue) -> bool:
    """Whether every element carries a rounding of its own size: sums of products in f32."""
    return isinstance(value.owner, ContractOp) and value.owner.accumulate == f32


def _is_maximum(value: SSAValue, of: SSAValue) -> bool:
    """Whether no element of `of` is above the element of `value` that belongs to it, but where nothing is above
    -inf: a maximum over it and perhaps others, or a number in place of a maximum that is -inf."""
    if isinstance(value.owner, ReduceOp):
        return value.owner.kind.data == "max" and value.owner.operand is of
    if not isinstance(value.owner, MapOp) or not is_plain(value.owner):
        return False
    match expression_of(value.owner):
        case Node(kind=arith.SelectOp, operands=(Node(kind=arith.CmpfOp) as bottom, Constant(), Leaf() as inner)):
            is_bottom = bottom.properties["predicate"] == IntegerAttr(EQUAL, 64)
            is_bottom = is_bottom and bottom.operands[0] == inner and is_number(bottom.operands[1], -numbers.inf)
            return is_bottom and _is_maximum(inner.value, of)
        case _:
            return False
