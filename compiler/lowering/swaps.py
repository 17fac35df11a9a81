"""Swaps of blocks along an axis: other registers of the same threads."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.fragments import fragment_of
from treadle.compiler.lowering.names import placed
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.swap import may_swap
from treadle.dialects.diagram import SwapOp


def lower_swap(lowering: KernelLowering, op: SwapOp) -> SSAValue:
    """A swap where every thread has both blocks of each pair of what it holds (Refusal otherwise)."""
    layout, axis = lowering.layouts.of(op.result), op.axis.data
    value = fragment_of(lowering, op.operand, layout)
    if not may_swap(value.type, axis, op.length):
        raise Refusal(
            op,
            f"blocks of {op.length} along '{axis}' lie in different threads, and a swap moves nothing between them: "
            "save the array first, and read it at the other positions",
        )
    result = lowering.emit(cuda.SwapOp(value, axis, op.length))
    return placed(result, op, result.result, op.result)


__all__ = ["lower_swap"]
