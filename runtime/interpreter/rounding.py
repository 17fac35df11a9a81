"""Which casts the reference rounds. Over the real numbers a cast is the identity, and rewrites may round at another
moment than the program says: what is rounded before it is scaled by a sum, or while a maximum still rises, differs
from what is rounded after. So a cast in whose way such a rewrite may come is not rounded, and has a bound. Of a cast
to 8 bits, where a rounding is large, the others are: their bound is that of what they round, and nothing more."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    ReadOp,
    RecurrenceOp,
    ReduceOp,
    ScanOp,
    ScatterOp,
    WhereOp,
)
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.dialects.hierarchy import StreamOp


def is_rounded(op: CastOp) -> bool:
    """Whether the reference rounds: where the program fixes the rounding, or no rewrite has a reason to move it."""
    if op.fixed is not None:
        return True
    return str(format_of(op.result.type)) in EIGHT_BIT and not _depends_on_reduction(op)


def _depends_on_reduction(op: CastOp) -> bool:
    """Whether what is cast depends on a reduction over one of its own axes. Which elements there are, or which are
    read, may depend on any: rounding stays with the element."""
    axes = set(axes_of(op.result.type))
    seen: set[SSAValue] = set()
    stack = [op.operand]
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        owner = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
        if isinstance(owner, RecurrenceOp) or (isinstance(owner, StreamOp) and owner.axis in axes):
            return True
        if isinstance(value.owner, Operation):
            if isinstance(owner, ApplyOp | ContractOp | ReduceOp) and set(owner.over_axes) & axes:
                return True
            if isinstance(owner, ScanOp) and owner.axis.data in axes:
                return True
            if isinstance(owner, ScatterOp):  # a sum of elements from anywhere
                return True
            stack += [owner.operand] if isinstance(owner, ReadOp | WhereOp) else value.owner.operands
    return False
