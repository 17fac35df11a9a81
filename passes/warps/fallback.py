"""Make of a kernel one that stands beside another with roles: its pieces were chosen for the registers of theirs."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, UnitAttr

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import format_bytes, is_shared
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import sizes_of

WALKED = {2: 32, 1: 128}
"""Elements of a turn, by their bytes: of 36 attentions on an H100, d 64 to 256, ptxas 13.0 spills nothing in a fallback
so; where nothing is walked, 68 bytes in one of 16 bits, and 140 in one of 8, of which a product is two of 16."""


def stand_beside(kernel: cuda.KernelOp) -> None:
    """Declare a kernel a fallback. Where a loop carries sums, a product that begins anew in each turn stands beside
    them: it is walked by a subloop, so that fewer of its operands are loaded ahead."""
    kernel.fallback = UnitAttr()
    for op in kernel.walk():
        if isinstance(op, cuda.ProductOp) and _begins_anew(op):
            turn, whole = WALKED.get(format_bytes(op.rhs.type), 0), sizes_of(op.rhs.type)[op.axis]
            if is_shared(op.lhs.type) and op.subloop is None and 0 < turn < whole and whole % turn == 0:
                op.subloop = IntAttr(turn)


def _begins_anew(op: cuda.ProductOp) -> bool:
    return isinstance(op.accumulator.owner, FillOp)
