"""Where the pieces of grouped axes begin and end."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import SSAValue

from treadle.compiler.lowering.names import hinted, named
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import NARROW
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import PieceOp


def locate_group(lowering: KernelLowering) -> None:
    """Split the index of the block into one piece of each grouped axis, the last axis fastest."""
    lowering.bounded |= {axis for axis in lowering.plan.group_axes if _may_reach_past(lowering, axis)}
    counted = [axis for axis in lowering.plan.group_axes if _pieces(lowering, axis) != 1]
    if not counted:
        return
    index = lowering.emit(cuda.BlockIndexOp() if lowering.plan.blocks == 1 else cuda.ClusterIndexOp())
    unit = "block" if lowering.plan.blocks == 1 else f"cluster of {lowering.plan.blocks} blocks"
    cut = ", ".join(f"{axis} in pieces of {lowering.plan.group_axes[axis]}" for axis in counted)
    index.attributes["comment"] = StringAttr(f"tiling: one {unit} for each piece: {cut}")
    rest = named(index.result, "block")
    for axis in reversed(counted):
        piece, static = lowering.plan.group_axes[axis], _pieces(lowering, axis)
        position = rest
        if axis != counted[0]:
            count = lowering.index(static) if static is not None else _count(lowering, axis, piece)
            parts = arith.RemUIOp(rest, count), arith.DivUIOp(rest, count)
            position, rest = (lowering.emit(_counting(lowering, part)).result for part in parts)
            named(rest, "block")
        start = position if piece == 1 else lowering.emit(arith.MuliOp(position, lowering.index(piece))).result
        lowering.offsets[axis] = named(start, f"{axis}0")


def _counting(lowering: KernelLowering, op: arith.RemUIOp | arith.DivUIOp) -> arith.RemUIOp | arith.DivUIOp:
    """Of numbers of blocks, of which a grid has fewer than 2^31: in 32 bits where pieces were chosen for roles, beside
    which a fallback has no registers for 64. Elsewhere ptxas 13.0 may spill what it spills nothing of with 64 (causal
    attention, d 64, on an A100: 28 bytes)."""
    if lowering.is_of_roles:
        op.attributes[NARROW] = UnitAttr()
    return op


def _may_reach_past(lowering: KernelLowering, axis: str) -> bool:
    """Whether the last piece of a grouped axis may reach past its end."""
    size, piece = lowering.plan.sizes[axis], lowering.plan.group_axes[axis]
    return piece != 1 and (size == DYNAMIC or size % piece != 0)


def _pieces(lowering: KernelLowering, axis: str) -> int | None:
    """How many pieces a grouped axis has; None if that is known only at launch."""
    size, piece = lowering.plan.sizes[axis], lowering.plan.group_axes[axis]
    return None if size == DYNAMIC else -(-size // piece)


def _count(lowering: KernelLowering, axis: str, piece: int) -> SSAValue:
    if piece == 1:
        return lowering.size(axis)
    return named(lowering.emit(arith.CeilDivUIOp(lowering.size(axis), lowering.index(piece))).result, f"{axis}_pieces")


def lower_piece(lowering: KernelLowering, op: PieceOp) -> None:
    """Where a piece begins and where it ends."""
    axis = op.axis.data
    first, size = lowering.offset(axis), lowering.size(axis)
    end = size
    if axis in lowering.offsets:
        end = lowering.emit(arith.AddiOp(first, lowering.index(lowering.plan.pieces[axis]))).result
        end = lowering.emit(arith.MinSIOp(end, size)).result if axis in lowering.bounded else end
    lowering.values[op.first], lowering.values[op.end] = first, end
    if axis in lowering.offsets:
        hinted(end, op.end)
