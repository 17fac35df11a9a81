"""A product and a sum, rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.passes.expressions.sources import sources_of

Sum = arith.AddfOp | arith.SubfOp


@dataclass(frozen=True)
class DiagramFuseMultiplyAddsPass(ModulePass):
    """Write `a * b + c` as one multiply-add, which rounds once where two operations round twice.

    That is nearer to the formula, but for one thing: the difference of two equal products is zero only if both are
    rounded. So it is done only where what is added cannot be meant to cancel the product:

    - Nothing that the product is computed from is what the summand is computed from (`sources_of`), back to the
      arguments of the program. `x * x - m` with a mean `m` over `x` stays as it is, and so do distances.
    - The summand is no product of its own, unless one of the factors is a constant: `a * d - b * c` stays.

    The product has no other use, since it would be computed twice. Elsewhere the printed text says `fmaf` where it
    means one operation (a square that is summed where it is made, a product that a sum begins with), and nvcc, which is
    given `-fmad=false`, makes none of two: a kernel computes the same in the emulator and on a GPU.

    Before:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !B = tensor<8xf32, #diagram.array<[x]>>
    func.func @f(%S: !S, %B: !B) -> !S {
      %T = diagram.map (%s = %S : !S, %b = %B : !B) -> !S {
        %c = arith.constant 0.125 : f32
        %scaled = arith.mulf %s, %c : f32
        %t = arith.addf %scaled, %b : f32
        diagram.yield %t : f32
      }
      func.return %T : !S
    }
    ```

    After:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !B = tensor<8xf32, #diagram.array<[x]>>
    func.func @f(%S: !S, %B: !B) -> !S {
      %T = diagram.map (%s = %S : !S, %b = %B : !B) -> !S {
        %c = arith.constant 1.250000e-01 : f32
        %t = math.fma %s, %c, %b : f32
        diagram.yield %t : f32
      }
      func.return %T : !S
    }
    ```
    """

    name = "diagram-fuse-multiply-adds"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for map in [each for each in op.walk() if isinstance(each, MapOp)]:
            for total in [each for each in map.body.block.ops if isinstance(each, Sum)]:
                _fuse(total)


def _fuse(total: Sum) -> None:
    if total.result.type != f32:
        return
    for multiplied, summand in _pairs(total):
        if _may_cancel(multiplied, summand):
            continue
        left, right, is_second = multiplied.lhs, multiplied.rhs, multiplied.result is total.rhs
        if isinstance(total, arith.SubfOp):
            if is_second:
                left = _negated(left, total)
            else:
                summand = _negated(summand, total)
        fused = math.FmaOp(left, right, summand)
        fused.location, fused.result.name_hint = total.location, total.result.name_hint
        Rewriter.replace_op(total, fused)
        return Rewriter.erase_op(multiplied)


def _pairs(total: Sum) -> Iterator[tuple[arith.MulfOp, SSAValue]]:
    """Products that only this sum reads, each with what it is added to."""
    for value, summand in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        if isinstance(value.owner, arith.MulfOp) and value.has_one_use():
            yield value.owner, summand


def _may_cancel(multiplied: arith.MulfOp, summand: SSAValue) -> bool:
    if isinstance(summand.owner, arith.MulfOp) and not any(_is_constant(each) for each in multiplied.operands):
        return True
    return bool(sources_of(multiplied.result) & sources_of(summand))


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, arith.ConstantOp)


def _negated(value: SSAValue, place: Operation) -> SSAValue:
    negated = arith.NegfOp(value)
    negated.location = place.location
    Rewriter.insert_op(negated, InsertPoint.before(place))
    return negated.result
