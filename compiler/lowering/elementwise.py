"""Maps and casts: each thread on its own elements."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.lowering.fragments import fragment_type, operand_of
from treadle.compiler.lowering.names import placed
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects.diagram import CastOp, MapOp


def lower_map(lowering: KernelLowering, op: MapOp) -> SSAValue:
    layout = lowering.layouts.of(op.result)
    inputs = [operand_of(lowering, operand, layout) for operand in op.inputs]
    body = op.body.clone()
    result = lowering.emit(MapOp(inputs, fragment_type(lowering, op.result, layout), body))
    return placed(result, op, result.result, op.result)


def lower_cast(lowering: KernelLowering, op: CastOp) -> SSAValue:
    layout = lowering.layouts.of(op.result)
    result = lowering.emit(CastOp(operand_of(lowering, op.operand, layout), fragment_type(lowering, op.result, layout)))
    return placed(result, op, result.result, op.result)
