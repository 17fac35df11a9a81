"""Views that leave their arrays or are none, where something else than a kernel takes them."""

from __future__ import annotations

from xdsl.ir import Block, Operation

from treadle.dialects.diagram import CollapseOp, ExpandOp, ReadOp, ScatterOp
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.padding import padding_of, scattered_read
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.expressions.scalars import Leaf, build_map


def copy_padded(block: Block) -> None:
    """Copy what is padded, or scattered, where it is no operand of a diagram operation: its zeros are in no memory, no
    strides say where its elements are, and only kernels know."""
    for op in list(block.ops):
        if not isinstance(op, ReadOp) or not (padding_of(op.result) or scattered_read(op.result)):
            continue
        if taken := [use for use in op.result.uses if _is_outside(use.operation)]:
            copy = build_map(Leaf(op.result), op.result.type, op.result.name_hint, op.location)
            block.insert_op_after(copy, op)
            for use in taken:
                use.operation.operands[use.index] = copy.result


def _is_outside(op: Operation) -> bool:
    """Whether memory is what it takes: axes that become one, or several, are other strides of what lies there, and
    entries are asked for where they lie."""
    return isinstance(op, CollapseOp | ExpandOp | ScatterOp) or not isinstance(op, DiagramOperation | KernelOp)
