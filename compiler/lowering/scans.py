"""Scans: each thread combines what it has up to each element, and with what lanes and registers before it have."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.absent import neutral_number
from treadle.compiler.lowering.conditions import present
from treadle.compiler.lowering.fragments import fragment_of, fragment_type, is_filled, masked
from treadle.compiler.lowering.names import placed
from treadle.compiler.lowering.numbers import neutral_of
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects.cuda.parts import warps_along
from treadle.dialects.diagram import ScanOp
from treadle.dialects.diagram.array import axes_of, format_of


def lower_scan(lowering: KernelLowering, op: ScanOp) -> SSAValue:
    """A scan of what the threads of one warp have of each row: elements that are not there are neutral."""
    axis, kind = op.axis.data, op.kind.data
    layout = lowering.layouts.of(op.result)
    if warps_along(layout, [axis]) > 1 or axis in lowering.plan.cluster:
        raise Refusal(op, f"several warps would share axis '{axis}', along which '{kind}' is scanned by one")
    value = fragment_of(lowering, op.operand, layout)
    value = present(lowering, op.operand, value, layout, neutral_number(kind, value))
    if not is_filled(lowering, op.operand, axis):
        value = masked(lowering, value, axis, neutral_of(kind, format_of(value.type)), layout)
    rows = layout.slice(each for each in axes_of(op.result.type) if each != axis)
    init = None if op.init is None else fragment_of(lowering, op.init, rows)
    result = lowering.emit(op.of(value, fragment_type(lowering, op.result, layout), init=init))
    return placed(result, op, result.result, op.result)


__all__ = ["lower_scan"]
