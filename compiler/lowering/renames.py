"""Axes under other names: the registers that threads have, and from there wherever the elements are needed."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.lowering.fragments import fragment_of
from treadle.compiler.lowering.names import placed
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.diagram import RenameOp


def lower_rename(lowering: KernelLowering, op: RenameOp) -> SSAValue:
    """The fragment as it lies, under the new names. What uses it asks for a layout of its own (`fragment_of`), in which
    the elements lie elsewhere: they go there by shuffles, or through shared memory."""
    value = fragment_of(lowering, op.operand, lowering.layouts.of(op.operand))
    result = lowering.emit(cuda.RenameOp(value, op.names))
    return placed(result, op, result.result, op.result)


__all__ = ["lower_rename"]
