"""What is known of an access before its kernel has variants."""

from __future__ import annotations

from treadle.compiler.layouts.operations import is_dealt_by_sectors
from treadle.compiler.lowering.conversions import staging_rows
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import layout_of
from treadle.passes.staging.meeting import may_meet
from treadle.passes.staging.stager import Stager
from treadle.passes.staging.widths import planned_widths


def always_staged(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether lanes, as they hold the elements of an access, ask for sectors twice however rows are aligned, so that it
    goes through shared memory in every variant. The widths of accesses need not be known yet."""
    with planned_widths(kernel):
        return may_meet(op, kernel) and Stager(kernel).below(op, 0) == EVERYWHERE


def always_dealt(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether copies to the tile of an access look where in its sector each row begins, however rows are aligned: the
    kernel then states no blocks, and takes registers for that."""
    layout = layout_of(op.piece_type)
    with planned_widths(kernel):
        op.staged = cuda.StagedAttr(0, EVERYWHERE, staging_rows(layout, layout, op.piece_type))
        try:
            return is_dealt_by_sectors(op, cuda.WHOLE_SECTORS)
        finally:
            op.staged = None
