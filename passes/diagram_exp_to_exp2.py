"""Powers of e as powers of 2, which the machine computes."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias, TypeGuard, cast

from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes.expressions.below_maximum import LOWEST, below_maximum
from treadle.passes.expressions.forms import is_positive_scalar
from treadle.passes.expressions.lagging import kept_for
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    expression_of,
    expressions_of,
    is_number,
    is_plain,
    number,
    product,
)
from treadle.passes.expressions.spans import past_conditions

LOG2_E = 1.4426950408889634
EQUAL = 1
"""Predicate of `arith.cmpf`: ordered and equal."""


@dataclass(frozen=True)
class DiagramExpToExp2Pass(ModulePass):
    """Write `exp(x)` as `exp2(x log2 e)`, with a constant factor of `x` folded into log2 e.

    Three laws, all equal over the real numbers; what they do to rounding:

    - *A factor.* `exp(c x) = exp2(c' x)` with `c' = c log2 e`: one rounding of the exponent, as `exp` itself has.
    - *A difference.* `exp(c a - c b) = exp2(c' (a - b))`: the difference comes first, because that of close numbers is
      exact. It is never a factor over each side, whose roundings would be as large as the sides are: the difference of
      two equal numbers would not be zero, nor that of two infinite products a number. What else is added, if several
      elements have it together, is multiplied once for them: `exp2(c' (a - b) + g log2 e)`, a multiply-add.
    - *Below a maximum.* One multiply-add an element, `exp2(slope a - offset)` with `slope = c'` and `offset = c' b`
      rounded, if `b` is the maximum of `a`, `a` was rounded, and `0 < c' < 2`: by a contraction, or as a sum or product
      of such a number and others, as with a bias. The power is then too large or too small by `2^(offset - c' b)`,
      which is less than what a rounding of the elements does to it, or of a multiple of `b` that stands in its place,
      while `|offset| < 2^24`. Beyond that the elements are further apart than 1 in the exponent, and what matters is
      that equal ones count alike: there `slope` is the power of two next to `c'`, at most 1, so that `offset` is exact
      and finite. So no power overflows, and that of the maximum is never 0. The factor may hold a number of the
      program that is above zero; then the slope beyond is a power of two so large that neighbours are 1 apart, whatever
      the factor is. What is added to the exponent is taken from the offset, but beyond, where it would only be rounded:
      all powers of a row then lack the same factor. Where what the contraction multiplies has few exponents, one such
      power of two does for every maximum, and beside it what is added vanishes by itself (`expressions.spans`).

    A finite number stands for a maximum that is -inf: the lowest one, if all that is made of it are such powers, for
    those of -inf are 0 below it, too. It takes one operation (`max`), another number two.

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
        below: Below = {}
        for map in list(op.walk()):
            if isinstance(map, MapOp) and (powers := [*filter(_is_power, map.body.block.ops)]):
                for power in powers:
                    _rewrite(power, map, below)
                _erase_dead(map)
                _drop_unused(map)
        for map in list(op.walk()):
            if isinstance(map, MapOp) and (maximum := _at_bottom(map)) is not None:
                _stand_low(map, maximum, below)


Below: TypeAlias = dict[Operation, float]
"""What is made of a maximum, or of a number in its place, so that a power of what is -inf is 0 beside this number
or a higher one, which is below every finite maximum: maps, and differences inside of maps."""


def _is_power(op: Operation) -> TypeGuard[math.ExpOp]:
    return isinstance(op, math.ExpOp) and op.result.type == f32


def _rewrite(op: math.ExpOp, map: MapOp, below: Below) -> None:
    power = math.Exp2Op(_exponent(op, map, below))
    power.location = op.location
    power.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, power)


def _exponent(op: math.ExpOp, map: MapOp, below: Below) -> SSAValue:
    """log2 e times what `op` takes the power of, computed before `op`."""
    inside = expressions_of(map) if is_plain(map) else {}
    terms, plus = _linear(op.operand, lambda value: value in inside and is_positive_scalar(inside[value]))
    terms = _past_multiples(terms, map)
    pair = _difference_in(terms)
    if pair is not None:
        a, b = pair
        others = [(each, c) for each, c in terms.items() if each not in pair]
        found = None
        if not others or (not plus and all(_is_of_rows(each, c, map) for each, c in others)):
            found = _of_difference(op, map, a, b, terms[a], inside, plus, below)
        if found is not None:
            return _add_rows(op, found, others)
    if len(terms) == 1 and not plus:
        ((x, c),) = terms.items()
        if x.scale is None and _is_safe(c):
            return _insert(arith.MulfOp(x.value, _constant(c * LOG2_E, op)), op)
    return _insert(arith.MulfOp(op.operand, _constant(LOG2_E, op)), op)


def _difference_in(terms: Mapping[_Term, float]) -> tuple[_Term, _Term] | None:
    """Two terms that are one multiple of their difference."""
    for (a, c), (b, other) in combinations(terms.items(), 2):
        if c == -other and a.scale is b.scale and _is_safe(c):
            return a, b
    return None


def _past_multiples(terms: _Terms, map: MapOp) -> _Terms:
    """Terms with a maximum of one of them in place of a constant multiple of it that a map of its own makes, because
    something else reads that, too, such as a logarithm of the sum."""
    outer: dict[SSAValue, SSAValue] = dict(zip(map.body.block.args, map.inputs, strict=True))
    found: dict[_Term, float] = {}
    for term, factor in terms.items():
        multiple = None if term.scale is not None else _multiple(outer.get(term.value))
        if multiple is not None and any(
            each.value in outer and _is_maximum(multiple[0], outer[each.value]) and times == -factor * multiple[1]
            for each, times in terms.items()
        ):
            argument = map.body.block.insert_arg(f32, len(map.body.block.args))
            map.operands = (*map.operands, multiple[0])
            term, factor = _Term(argument, None), factor * multiple[1]
        found[term] = factor
    return found


def _multiple(value: SSAValue | None) -> tuple[SSAValue, float] | None:
    """The array that each element of a map is a constant multiple of, and that constant."""
    if value is None or not isinstance(value.owner, MapOp) or not is_plain(value.owner):
        return None
    match expression_of(value.owner):
        case Node(kind=arith.MulfOp, operands=(Leaf() as leaf, Constant() as factor)):
            return leaf.value, factor.number
        case Node(kind=arith.MulfOp, operands=(Constant() as factor, Leaf() as leaf)):
            return leaf.value, factor.number
        case _:
            return None


def _is_of_rows(term: _Term, factor: float, map: MapOp) -> bool:
    """Whether a term is one number for several elements, which its multiple is computed once for."""
    outer = next((given for arg, given in zip(map.body.block.args, map.inputs, strict=True) if arg is term.value), None)
    if outer is None or term.scale is not None or not _is_safe(factor):
        return False
    return set(axes_of(outer.type)) < set(axes_of(map.result.type))


def _add_rows(op: math.ExpOp, exponent: SSAValue, terms: Iterable[tuple[_Term, float]]) -> SSAValue:
    """An exponent and log2 e times others: a multiply-add where it is a product that nothing else reads."""
    for term, factor in terms:
        added = _insert(arith.MulfOp(term.value, _constant(factor * LOG2_E, op)), op)
        match exponent.owner:
            case arith.MulfOp(lhs=left, rhs=right) as multiplied if not exponent.uses:
                exponent = _insert(math.FmaOp(left, right, added), op)
                Rewriter.erase_op(multiplied)
            case _:
                exponent = _insert(arith.AddfOp(exponent, added), op)
    return exponent


def _of_difference(
    op: math.ExpOp,
    map: MapOp,
    a: _Term,
    b: _Term,
    c: float,
    inside: Mapping[SSAValue, Expression],
    plus: float,
    below: Below,
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
        made = below_maximum(map, left, right, _maximum(right), slope, plus * LOG2_E)
        below.update({each.owner: made.lowest for each in (made.slope, made.offset) if isinstance(each.owner, MapOp)})
        return _multiply_add(op, map, a.value, (made.slope, made.offset))
    if plus:
        return None
    apart, factor = _insert(arith.SubfOp(a.value, b.value), op), _constant(c * LOG2_E, op)
    if left is not None and right is not None and _is_maximum(right, left) and isinstance(apart.owner, Operation):
        below[apart.owner] = LOWEST
    if a.scale is not None:
        factor = _insert(arith.MulfOp(a.scale, factor), op)
    return _insert(arith.MulfOp(apart, factor), op)


# -- what stands in a body --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Term:
    """A value of a body, or that times another, which is the same for all elements."""

    value: SSAValue
    scale: SSAValue | None


_Terms: TypeAlias = dict[_Term, float]
"""A sum of constant multiples."""

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


def _multiply_add(op: math.ExpOp, map: MapOp, a: SSAValue, given: tuple[SSAValue, SSAValue]) -> SSAValue:
    """`slope a - offset`, of arrays for all elements that share a maximum."""
    block = map.body.block
    slope, offset = (block.insert_arg(f32, len(block.args)) for _ in given)
    slope.name_hint, offset.name_hint = "slope", "offset"
    map.operands = (*map.operands, *given)
    return _insert(math.FmaOp(a, slope, _insert(arith.NegfOp(offset), op)), op)


def _is_rounded(value: SSAValue) -> bool:
    """Whether every element that is there carries a rounding of its own size: sums of products in f32, and sums and
    products of these and others, which are rounded anew."""
    value = past_conditions(value)
    match value.owner:
        case ContractOp() as product:
            return product.accumulate == f32
        case MapOp() as op:
            return _rounds(op) and any(map(_is_rounded, op.inputs))
        case _:
            return False


def _rounds(map: MapOp) -> bool:
    """Whether the last operation on each element is one of arithmetic in f32."""
    last = map.yielded
    return last.type == f32 and isinstance(last.owner, arith.AddfOp | arith.SubfOp | arith.MulfOp | math.FmaOp)


def _is_maximum(value: SSAValue, of: SSAValue) -> bool:
    """Whether no element of `of` is above the element of `value` that belongs to it, but where nothing is above
    -inf: a maximum over it and perhaps others, or a number in place of a maximum that is -inf."""
    owner = _maximum(value).owner
    return isinstance(owner, ReduceOp) and owner.kind.data == "max" and of in (owner.operand, owner.init)


def _maximum(value: SSAValue) -> SSAValue:
    """What a number stands for where it is -inf, and what a stream may keep an older one of, or the value itself."""
    inner = _at_bottom(value.owner) if isinstance(value.owner, MapOp) else None
    return kept_for(value if inner is None else inner.value)


def _at_bottom(map: MapOp) -> Leaf | None:
    """Of a map that puts a number in place of -inf, what it is in the other places."""
    if not is_plain(map) or format_of(map.result.type) != f32:
        return None
    match expression_of(map):
        case Node(kind=arith.SelectOp, operands=(Node(kind=arith.CmpfOp) as bottom, Constant(), Leaf() as inner)):
            is_bottom = bottom.properties["predicate"] == IntegerAttr(EQUAL, 64)
            is_bottom = is_bottom and bottom.operands[0] == inner and is_number(bottom.operands[1], -numbers.inf)
            return inner if is_bottom else None
        case _:
            return None


def _stand_low(map: MapOp, maximum: Leaf, below: Below) -> None:
    """Let a number that is below every finite maximum stand for one that is -inf, if all users allow it."""
    users = [user for use in map.result.uses for user in _users(use.operation, map.result, below)]
    if not users or any(user not in below for user in users):
        return
    lowest = Node(arith.MaximumfOp, (maximum, number(max(below[user] for user in users))), f32)
    new = build_map(lowest, map.result.type, None, map.location)
    new.result.name_hint = map.result.name_hint
    Rewriter.replace_op(map, new)


def _users(op: Operation, value: SSAValue, below: Below) -> Iterator[Operation]:
    """What makes something of a value: a map as a whole, or what its body does with it."""
    if op in below or not isinstance(op, MapOp):
        yield op
        return
    arguments = [arg for arg, given in zip(op.body.block.args, op.inputs, strict=True) if given is value]
    yield from (use.operation for arg in arguments for use in arg.uses)
