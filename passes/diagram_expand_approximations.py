"""`diagram-expand-approximations`: shorter forms of quotients and functions, where flags allow them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.approximations import (
    BY_RECIPROCAL,
    constant_of,
    is_approximate,
    is_by_polynomial,
    is_by_reciprocal,
    is_one_plus,
    softplus_of,
)
from treadle.dialects.diagram.map import axes_in_body
from treadle.dialects.diagram.sharing import SHARED, scale_of, sharing_of, tested_sharing_of


@dataclass(frozen=True)
class DiagramExpandApproximationsPass(ModulePass):
    """Write quotients, `tanh` and `log(1 + exp(x))` in a shorter form where `diagram-allow-approximations` found that
    exact enough.

    - *A quotient by what is zero, or at least 2^-124*, is `a / 4` times the reciprocal of `b / 4`, which is a normal
      number, or zero if `b` is infinite. Dividing by 4 is exact; of `b = c + y` with a constant `c` it goes into both.
      If `b` is the same along an axis of `a`, it is `a` times a quarter of that reciprocal, made once for all that `b`
      divides. If `a` is a constant, at most 1, it is `a` times the reciprocal of `b`, which is zero where it is below
      the least normal number. A reciprocal is `1 / b` with the flag `arcp`.
    - *`c tanh x`* is `2 c r - c`, with the reciprocal `r` of `1 + exp(-2 x)`; a constant factor of `x` goes into the 2.
    - *Elements that share a reciprocal* (`hierarchy-share-reciprocals`) have divisors that are multiplied by 2^-62, or
      by 2^-30 where 4 share, and clipped at 1, so that the product of all is a normal number. Where products are
      tested, `a / b` is `a` times the quotient of 1 / 4 and `b / 4`, which they share.
    - *`1 + tanh x`* is the reciprocal of `0.5 + 0.5 exp(-2 x)`.
    - *`log(1 + exp(x))`* is `max(x, 0) + u p(u)` with `u = exp(-|x|)` and a polynomial `p` of degree 8, near
      `log(1 + u) / u`.

    Before `diagram-exp-to-exp2`, which takes factors of exponents together, and `diagram-fuse-multiply-adds`, which
    makes one operation of `2 c r - c`.

    Before:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    func.func @f(%S: !S) -> (!S, !S) {
      %T = diagram.map (%s = %S : !S) -> !S {
        %scale = arith.constant 0.125 : f32
        %cap = arith.constant 30.0 : f32
        %scaled = arith.mulf %s, %scale : f32
        %t = math.tanh %scaled fastmath<afn> : f32
        %capped = arith.mulf %t, %cap : f32
        diagram.yield %capped : f32
      }
      %G = diagram.map (%s = %S : !S) -> !S {
        %one = arith.constant 1.0 : f32
        %e = math.exp %s : f32
        %divisor = arith.addf %one, %e : f32
        %g = arith.divf %s, %divisor fastmath<arcp> : f32
        diagram.yield %g : f32
      }
      func.return %T, %G : !S, !S
    }
    ```

    After:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    func.func @f(%S: !S) -> (!S, !S) {
      %T = diagram.map (%s = %S : !S) -> !S {
        %0 = arith.constant -0.25 : f32
        %1 = arith.mulf %s, %0 : f32
        %2 = math.exp %1 : f32
        %3 = arith.constant 1.0 : f32
        %4 = arith.addf %2, %3 : f32
        %5 = arith.constant 1.0 : f32
        %6 = arith.divf %5, %4 fastmath<arcp> : f32
        %7 = arith.constant 60.0 : f32
        %8 = arith.mulf %6, %7 : f32
        %9 = arith.constant 30.0 : f32
        %capped = arith.subf %8, %9 : f32
        diagram.yield %capped : f32
      }
      %G = diagram.map (%s = %S : !S) -> !S {
        %e = math.exp %s : f32
        %0 = arith.constant 0.25 : f32
        %1 = arith.mulf %s, %0 : f32
        %2 = arith.constant 0.25 : f32
        %3 = arith.mulf %e, %2 : f32
        %4 = arith.constant 0.25 : f32
        %5 = arith.addf %3, %4 : f32
        %6 = arith.constant 1.0 : f32
        %7 = arith.divf %6, %5 fastmath<arcp> : f32
        %g = arith.mulf %1, %7 : f32
        diagram.yield %g : f32
      }
      func.return %T, %G : !S, !S
    }
    ```
    """

    name = "diagram-expand-approximations"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for map in [each for each in op.walk() if isinstance(each, MapOp)]:
            flagged = [each for each in map.body.block.ops if _is_flagged(each)]
            for each in flagged:
                if isinstance(each, arith.DivfOp):
                    _expand_quotient(each)
                elif isinstance(each, math.TanhOp):
                    _expand_tanh(each)
                elif isinstance(each, math.Log1pOp | math.LogOp):
                    _expand_softplus(each)
            if flagged:
                _erase_dead(map)


def _is_flagged(op: Operation) -> bool:
    return is_approximate(op) or is_by_reciprocal(op) or is_by_polynomial(op)


def _expand_quotient(op: arith.DivfOp) -> None:
    constant = constant_of(op.lhs)
    make = _Maker(op)
    if constant is not None and sharing_of(op) is not None:
        return _expand_shared(op, constant, make)
    if tested_sharing_of(op) is not None:
        return _expand_tested(op, constant, make)
    if constant == 1:
        return
    if constant is not None and abs(constant) <= 1:
        return make.instead(op, arith.MulfOp(make.reciprocal(op.rhs), make.number(constant)))
    if _divides_several(op):
        reciprocal = make.times(make.reciprocal(_quarter(op.rhs, make)), 0.25)
        return make.instead(op, arith.MulfOp(op.lhs, reciprocal))
    quarter = make.times(op.lhs, 0.25)
    make.instead(op, arith.MulfOp(quarter, make.reciprocal(_quarter(op.rhs, make))))


def _divides_several(op: arith.DivfOp) -> bool:
    """Whether a divisor is the same along an axis of what it divides."""
    map = op.parent_op()
    assert isinstance(map, MapOp)
    axes = axes_in_body(map)
    return set(axes[op.rhs]) < set(axes[op.lhs])


def _expand_shared(op: arith.DivfOp, constant: float, make: _Maker) -> None:
    """`c / (b + y)` of elements that share a reciprocal, with a power of two `b`."""
    if not isinstance(op.rhs.owner, arith.AddfOp):
        return  # it is done
    lhs, rhs = op.rhs.owner.operands
    other, summand = (rhs, constant_of(lhs)) if constant_of(lhs) is not None else (lhs, constant_of(rhs))
    assert summand is not None
    make.instead(op, make.shared(op, other, summand, constant * scale_of(op) / summand))


def _expand_tested(op: arith.DivfOp, constant: float | None, make: _Maker) -> None:
    """`a / b` as `a (0.25 / (b / 4))`: the quotient in it is shared, and where it is not a quarter's reciprocal is a
    normal number."""
    if constant is not None and _is_quarter(op.rhs):
        return  # it is done
    quotient = make.like(op, make.number(0.25 if constant is None else constant / 4), _quarter(op.rhs, make))
    make.instead(op, quotient if constant is not None else arith.MulfOp(op.lhs, make.add(quotient)))


def _is_quarter(divisor: SSAValue) -> bool:
    """Whether a divisor is a quarter of one already."""
    terms = divisor.owner.operands if isinstance(divisor.owner, arith.AddfOp) else (divisor,)
    return any(isinstance(each.owner, arith.MulfOp) and constant_of(each.owner.rhs) == 0.25 for each in terms)


def _quarter(value: SSAValue, make: _Maker) -> SSAValue:
    """A quarter of a divisor: of each term, if one is a constant."""
    if isinstance(value.owner, arith.AddfOp):
        for term, other in ((value.owner.lhs, value.owner.rhs), (value.owner.rhs, value.owner.lhs)):
            if (constant := constant_of(term)) is not None:
                return make.plus(make.times(other, 0.25), constant / 4)
    return make.times(value, 0.25)


def _expand_tanh(op: math.TanhOp) -> None:
    make = _Maker(op)
    inner, factor = _scaled(op.operand)
    power = make.add(math.ExpOp(make.times(inner, -2 * factor)))
    users = [use.operation for use in op.result.uses]
    if all(map(is_one_plus, users)):
        if tested_sharing_of(op) is None:
            risen = make.reciprocal(make.plus(make.times(power, 0.5), 0.5))
        else:
            risen = make.add(make.like(op, make.number(0.5), make.plus(make.times(power, 0.25), 0.25)))
        for user in users:
            Rewriter.replace_op(user, [], [risen])
        return
    if sharing_of(op) is None:
        risen, scale = make.reciprocal(make.plus(power, 1.0)), 1.0
    else:
        risen, scale = make.add(make.shared(op, power, 1.0, 1.0)), scale_of(op)
    for user in users:
        if (cap := _factor_beside(op.result, user)) is not None:
            there = _Maker(user)
            there.instead(user, arith.SubfOp(there.times(risen, 2 * cap * scale), there.number(cap)))
    if op.result.uses:
        make.instead(op, arith.SubfOp(make.times(risen, 2 * scale), make.number(1.0)))


SOFTPLUS = (
    0.9999999403953552,
    -0.4999949336051941,
    0.3331909775733948,
    -0.2484298199415207,
    0.19106006622314453,
    -0.13663244247436523,
    0.07822594046592712,
    -0.029505232349038124,
    0.005232692696154118,
)
"""Of `log(1 + u) / u` for u from 0 to 1, the constant first, each a number of f32: the largest error relative to the
function is as small as can be (Lawson's weights), 3e-8 with exact arithmetic and 1.8e-7 in f32."""


def _expand_softplus(op: math.Log1pOp | math.LogOp) -> None:
    make, x = _Maker(op), softplus_of(op)
    assert x is not None
    power = make.add(math.ExpOp(make.add(arith.NegfOp(make.add(math.AbsFOp(x))))))
    *others, sum = map(make.number, SOFTPLUS)
    for coefficient in reversed(others):
        sum = make.add(math.FmaOp(sum, power, coefficient))
    make.instead(op, math.FmaOp(power, sum, make.add(arith.MaximumfOp(x, make.number(0.0)))))


def _scaled(value: SSAValue) -> tuple[SSAValue, float]:
    """What a value is a constant multiple of, and that constant."""
    match value.owner:
        case arith.MulfOp(lhs=left, rhs=right) if (factor := constant_of(right)) is not None:
            return left, factor
        case arith.MulfOp(lhs=left, rhs=right) if (factor := constant_of(left)) is not None:
            return right, factor
        case arith.DivfOp(lhs=left, rhs=right) if divisor := constant_of(right):
            return left, 1 / divisor
        case _:
            return value, 1.0


def _factor_beside(value: SSAValue, user: Operation) -> float | None:
    """The constant that an operation multiplies a value by."""
    if not isinstance(user, arith.MulfOp):
        return None
    return constant_of(user.rhs if user.lhs is value else user.lhs)


@dataclass(frozen=True)
class _Maker:
    """Makes operations right before another one, in f32."""

    place: Operation

    def add(self, op: Operation) -> SSAValue:
        op.location = self.place.location
        Rewriter.insert_op(op, InsertPoint.before(self.place))
        return op.results[0]

    def number(self, value: float) -> SSAValue:
        return self.add(arith.ConstantOp(FloatAttr(value, f32)))

    def times(self, value: SSAValue, factor: float) -> SSAValue:
        return self.add(arith.MulfOp(value, self.number(factor)))

    def plus(self, value: SSAValue, summand: float) -> SSAValue:
        return self.add(arith.AddfOp(value, self.number(summand)))

    def reciprocal(self, value: SSAValue) -> SSAValue:
        return self.add(arith.DivfOp(self.number(1.0), value, BY_RECIPROCAL))

    def shared(self, like: Operation, value: SSAValue, summand: float, constant: float) -> Operation:
        """`constant / min(1, scale (value / summand + 1))`, which shares a reciprocal as another operation does."""
        scale = scale_of(like)
        clipped = self.add(arith.MinimumfOp(self.plus(self.times(value, scale / summand), scale), self.number(1.0)))
        return self.like(like, self.number(constant), clipped)

    def like(self, other: Operation, number: SSAValue, divisor: SSAValue) -> Operation:
        """A quotient that shares a reciprocal as another operation does."""
        quotient = arith.DivfOp(number, divisor, BY_RECIPROCAL)
        quotient.attributes[SHARED] = other.attributes[SHARED]
        return quotient

    def instead(self, old: Operation, new: Operation) -> None:
        new.location, new.results[0].name_hint = old.location, old.results[0].name_hint
        Rewriter.replace_op(old, new)


def _erase_dead(map: MapOp) -> None:
    for op in reversed(list(map.body.block.ops)):
        if op.results and not op.results[0].uses:
            Rewriter.erase_op(op)
