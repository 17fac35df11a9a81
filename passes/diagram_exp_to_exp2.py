"""Powers of e as powers of 2, which the machine computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.array import axes_of, is_array

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class DiagramExpToExp2Pass(ModulePass):
    """Write `exp(x)` as `exp2(x log2 e)`, with the factor moved inwards to where it costs nothing: into a constant
    factor, or over a sum or difference, whose terms then each take one fused multiply-add and no more.

    Legal over the real numbers, because multiplication distributes over sums; rounding changes by one unit of each
    term. `exp(c s - c m)` becomes `exp2(c' s - c' m)`: one multiply-add for each score, since `c' m` is shared by a
    row.

    Before:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%S: !S, %m: !m) -> !S {
      %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
        %difference = arith.subf %s, %r : f32
        %p = math.exp %difference : f32
        diagram.yield %p : f32
      }
      func.return %P : !S
    }
    ```

    After:
    ```
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%S: !S, %m: !m) -> !S {
      %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
        %log2_e = arith.constant 1.44269502 : f32
        %0 = arith.mulf %s, %log2_e : f32
        %log2_e_1 = arith.constant 1.44269502 : f32
        %1 = arith.mulf %r, %log2_e_1 : f32
        %difference = arith.subf %0, %1 : f32
        %p = math.exp2 %difference : f32
        diagram.yield %p : f32
      }
      func.return %P : !S
    }
    ```
    """

    name = "diagram-exp-to-exp2"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for map in op.walk():
            if isinstance(map, MapOp):
                shared = _has_shared_operand(map)
                for inner in list(map.body.block.ops):
                    if isinstance(inner, math.ExpOp) and inner.result.type == f32:
                        _rewrite(inner, shared)
                _erase_dead(map)


def _has_shared_operand(map: MapOp) -> bool:
    """Whether an operand is the same for many elements, so that what is computed of it alone costs next to nothing."""
    axes = axes_of(map.result.type)
    return any(is_array(operand.type) and len(axes_of(operand.type)) < len(axes) for operand in map.inputs)


def _rewrite(op: math.ExpOp, shared: bool) -> None:
    scaled = _scaled(op.operand, LOG2_E, op, shared)
    power = math.Exp2Op(scaled)
    power.location = op.location
    power.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, power)


def _scaled(value: SSAValue, factor: float, place: Operation, shared: bool) -> SSAValue:
    """`factor * value`, computed before `place`. Without a shared operand a difference stays one, and a constant
    factor of both its sides leaves it: the power of equal numbers is then exactly 1, as the repair of a state that did
    not move must be."""
    source = value.owner
    if isinstance(source, arith.SubfOp | arith.AddfOp) and shared:
        left, right = (_scaled(operand, factor, place, shared) for operand in source.operands)
        return _insert(type(source)(left, right), value, place)
    if isinstance(source, arith.SubfOp) and (common := _common_factor(source)) is not None:
        left, right, constant = common
        difference = _insert(arith.SubfOp(left, right), value, place)
        return _insert(arith.MulfOp(difference, _constant(factor * constant, None, place)), None, place)
    if isinstance(source, arith.ConstantOp):
        return _constant(factor * _number(source), value, place)
    if isinstance(source, arith.MulfOp) and (split := _constant_factor(source)) is not None:
        one, constant = split
        return _insert(arith.MulfOp(one, _constant(factor * constant, None, place)), value, place)
    constant = _constant(factor, None, place)
    constant.name_hint = "log2_e"
    return _insert(arith.MulfOp(value, constant), None, place)


def _constant_factor(op: arith.MulfOp) -> tuple[SSAValue, float] | None:
    for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if isinstance(other.owner, arith.ConstantOp):
            return one, _number(other.owner)
    return None


def _common_factor(op: arith.SubfOp) -> tuple[SSAValue, SSAValue, float] | None:
    """`a c - b c` as (a, b, c)."""
    if not isinstance(op.lhs.owner, arith.MulfOp) or not isinstance(op.rhs.owner, arith.MulfOp):
        return None
    left, right = _constant_factor(op.lhs.owner), _constant_factor(op.rhs.owner)
    if left is None or right is None or left[1] != right[1]:
        return None
    return left[0], right[0], left[1]


def _number(op: arith.ConstantOp) -> float:
    return cast(FloatAttr[AnyFloat], op.value).value.data


def _constant(number: float, named: SSAValue | None, place: Operation) -> SSAValue:
    return _insert(arith.ConstantOp(FloatAttr(number, f32)), named, place)


def _insert(op: Operation, named: SSAValue | None, place: Operation) -> SSAValue:
    op.location = place.location
    result = op.results[0]
    result.name_hint = None if named is None else named.name_hint
    Rewriter.insert_op(op, InsertPoint.before(place))
    return result


def _erase_dead(map: MapOp) -> None:
    for op in reversed(list(map.body.block.ops)):
        if op.results and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)
