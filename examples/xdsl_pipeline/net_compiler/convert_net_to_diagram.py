"""`convert-net-to-diagram`: what of the dialect `net` treadle can make kernels of."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import ImplicitBuilder
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, TensorType, UnrealizedConversionCastOp, f16, f32
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from net_compiler.dialect import AttendOp
from treadle.dialects.diagram import ApplyOp, CastOp, ContractOp, MapOp, YieldOp
from treadle.dialects.diagram.array import array_type


@dataclass
class ConvertAttend(RewritePattern):
    """`net.attend`, whose dimensions get names: q queries, x keys, d and e their widths."""

    made: int = 0

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttendOp, rewriter: PatternRewriter) -> None:
        q, x, d, e = (f"{axis}{self.made or ''}" for axis in "qxde")
        self.made += 1
        sizes = {q: size(op.queries, 0), x: size(op.keys, 0), d: size(op.queries, 1), e: size(op.values, 1)}

        def array(format: Attribute, *axes: str) -> Attribute:
            return array_type(format, {axis: sizes[axis] for axis in axes})

        with ImplicitBuilder(rewriter):
            Q, K = named(op.queries, array(f16, q, d)), named(op.keys, array(f16, x, d))
            V = named(op.values, array(f16, x, e))
            S = hinted("S", ContractOp(Q, K, [d], array(f32, q, x), f32).result)
            T = hinted("T", MapOp([S], array(f32, q, x), times(op.scale)).result)
            P = hinted("P", ApplyOp("softmax", [T], [x], [array(f32, q, x)]).results[0])
            P16 = hinted("P16", CastOp(P, array(f16, q, x)).result)
            A = hinted("A", ContractOp(P16, V, [x], array(f32, q, e), f32).result)
            result = hinted("O", CastOp(A, array(f16, q, e)).result)
            plain = hinted(op.result.name_hint, named(result, op.result.type))
        rewriter.replace(op, [], [plain])


def size(value: SSAValue, dimension: int) -> int:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()[dimension]


def named(value: SSAValue, type: Attribute) -> SSAValue:
    """A plain tensor as an array with named axes, or the other way round."""
    return hinted(value.name_hint, UnrealizedConversionCastOp.get([value], [type]).results[0])


def hinted(name: str | None, value: SSAValue) -> SSAValue:
    """Derivations name what they rewrite by these names."""
    value.name_hint = name
    return value


def times(scale: Attribute) -> Region:
    body = Block(arg_types=[f32])
    with ImplicitBuilder(body) as (element,):
        YieldOp(arith.MulfOp(element, arith.ConstantOp(scale).result).result)
    return Region(body)


@dataclass(frozen=True)
class ConvertNetToDiagramPass(ModulePass):
    """`net.attend` becomes a diagram. `net.embed` stays: treadle's calculus has nothing that looks up."""

    name = "convert-net-to-diagram"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(ConvertAttend(), apply_recursively=False).rewrite_module(op)
