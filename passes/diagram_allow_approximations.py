"""`diagram-allow-approximations`: which quotients and functions may be computed by shorter forms."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.passes import ModulePass

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.approximations import (
    APPROXIMATE,
    BY_RECIPROCAL,
    EXACT,
    constant_of,
    is_one_plus,
    softplus_of,
)
from treadle.passes._functions import functions, label, note
from treadle.passes.expressions.distances import least_of_sum
from treadle.passes.expressions.exponents import gain_in_exponents
from treadle.passes.expressions.scalars import Expression, expressions_of, is_plain
from treadle.passes.expressions.signs import least

PASS = "diagram-allow-approximations"

LEAST_DIVISOR = 2.0**-124
"""A quarter of it is the least normal number of f32, which the reciprocal of the machine takes."""

MOST_GAIN = 128.0
"""A `tanh` that is off by 2^-21 makes powers off by 2^-14 of themselves, which is an eighth of a rounding to f16."""


@dataclass(frozen=True)
class DiagramAllowApproximationsPass(ModulePass):
    """Say of quotients, of `tanh` and of `log(1 + exp(x))` where a shorter form is as exact as it has to be, by flags
    of `fastmath`:

    - *`arcp`*, a quotient may be a product with a reciprocal: if the divisor is proved to be at least 2^-124, as
      `1 + exp(x)` is. A quarter of it has a reciprocal that is a normal number, or zero if the divisor is infinite, so
      that nothing is to be scaled at run time. The quotient is as exact as before, to 2^-22, infinities and NaN
      included; a reciprocal below the least normal number may be zero. It may also be zero: the reciprocal of that is
      infinite, and a product with it what the quotient is. So is a sum of powers of distances from a maximum, as in
      softmax, if it is of nothing; else one of the powers is that of zero.
    - *`afn`*, `tanh x` may be `2 / (1 + exp(-2 x)) - 1`, which is off by 2^-21 at most, but not to 2^-21 of `tanh x`
      near zero: if only exponents are made of it (`expressions.exponents`), and are then off by 2^-14 at most; or if it
      only stands in `1 + tanh x`, which is `2 / (1 + exp(-2 x))`, where no digits cancel.

      `log(1 + exp(x))` may be `max(x, 0)` and a polynomial in `exp(-|x|)`, which is at most 1: off by 2^-22 of itself,
      as the function is, and a number where `exp(x)` is none.

    Flags that a program comes with are dropped: of what they allow no error is known. What the flags allow is done
    late, by `diagram-expand-approximations`, so that passes in between see the formula.

    Before:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    func.func @f(%S: !S) -> (!S, !S) {
      %P = diagram.map (%s = %S : !S) -> !S {
        %t = math.tanh %s : f32
        %cap = arith.constant 30.0 : f32
        %capped = arith.mulf %t, %cap : f32
        %p = math.exp %capped : f32
        diagram.yield %p : f32
      }
      %G = diagram.map (%s = %S : !S) -> !S {
        %one = arith.constant 1.0 : f32
        %e = math.exp %s : f32
        %divisor = arith.addf %one, %e : f32
        %g = arith.divf %s, %divisor : f32
        diagram.yield %g : f32
      }
      func.return %P, %G : !S, !S
    }
    ```

    After:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    func.func @f(%S: !S) -> (!S, !S) {
      %P = diagram.map (%s = %S : !S) -> !S {
        %t = math.tanh %s fastmath<afn> : f32
        %cap = arith.constant 30.0 : f32
        %capped = arith.mulf %t, %cap : f32
        %p = math.exp %capped : f32
        diagram.yield %p : f32
      }
      %G = diagram.map (%s = %S : !S) -> !S {
        %one = arith.constant 1.0 : f32
        %e = math.exp %s : f32
        %divisor = arith.addf %one, %e : f32
        %g = arith.divf %s, %divisor fastmath<arcp> : f32
        diagram.yield %g : f32
      }
      func.return %P, %G : !S, !S
    }
    ```
    """

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for map in [each for each in function.walk() if isinstance(each, MapOp)]:
                _flag_quotients(function, map)
                _flag_functions(function, map)
                _flag_logarithms(function, map)


def _flag_quotients(function: func.FuncOp, map: MapOp) -> None:
    known = expressions_of(map) if is_plain(map) else {}
    for op in [each for each in map.body.block.ops if isinstance(each, arith.DivfOp)]:
        smallest, told = _least_divisor(known[op.rhs]) if op.rhs in known else (0.0, "")
        op.fastmath = EXACT
        if op.result.type != f32 or constant_of(op.rhs) is not None or smallest < LEAST_DIVISOR:
            continue
        op.fastmath = BY_RECIPROCAL
        subject, reason = f"{label(op.result)} in {label(map.result)}", f"the divisor is {told}at least {smallest:.3g}"
        note(function, PASS, subject, "a quotient is a product with a reciprocal", reason)


def _least_divisor(divisor: Expression) -> tuple[float, str]:
    """What a divisor is at least, and what else it may be."""
    if (smallest := least(divisor)) >= LEAST_DIVISOR:
        return smallest, ""
    return least_of_sum(divisor), "zero or "


def _flag_functions(function: func.FuncOp, map: MapOp) -> None:
    for op in [each for each in map.body.block.ops if isinstance(each, math.TanhOp)]:
        op.fastmath = EXACT
        if op.result.type != f32 or not op.result.uses:
            continue
        subject = f"{label(op.result)} in {label(map.result)}"
        if all(is_one_plus(use.operation) for use in op.result.uses):
            note(function, PASS, subject, "1 + tanh x = 2 / (1 + exp(-2 x))", "no digits cancel there")
        elif (gain := gain_in_exponents(op.result)) <= MOST_GAIN:
            reason = f"only exponents are made of it, which are off by {gain:.3g} times 2^-21 at most"
            note(function, PASS, subject, "tanh x = 2 / (1 + exp(-2 x)) - 1", reason)
        else:
            continue
        op.fastmath = APPROXIMATE


def _flag_logarithms(function: func.FuncOp, map: MapOp) -> None:
    for op in [each for each in map.body.block.ops if isinstance(each, math.Log1pOp | math.LogOp)]:
        op.fastmath = EXACT
        if softplus_of(op) is not None:
            op.fastmath = APPROXIMATE
            law = "log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))"
            subject, reason = f"{label(op.result)} in {label(map.result)}", "a polynomial is off by 2^-22 of it"
            note(function, PASS, subject, law, reason)
