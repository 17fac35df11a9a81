"""What is scattered, as kernels need it: who makes its elements adds them to a buffer where others lie already."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f32, i32
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import FillOp, ReadOp, ScatterOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.law import ApplyOp
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.passes.expressions.scalars import Leaf, build_map


def begin_scatters(block: Block) -> None:
    """Let what is scattered be made by a kernel that does nothing else with it, and added to an array that another one
    has made for that: of zeros, unless the program says with what the sums begin."""
    for op in [each for each in block.ops if isinstance(each, ScatterOp)]:
        if not _is_made_for(op, op.operand):
            op.operands[0] = _copy(op, op.operand)
        if op.init is None:
            zeros = FillOp(
                IntegerAttr(0, i32) if format_of(op.result.type) == i32 else FloatAttr(0, f32), op.result.type
            )
            zeros.location = op.location
            zeros.result.name_hint = f"{op.result.name_hint}_zeros" if op.result.name_hint else "zeros"
            block.insert_op_before(zeros, op)
            begun = ScatterOp(op.operand, op.place, op.result.type, op.named, zeros.result)
            begun.attributes |= op.attributes
            _put(op, begun)
        elif not _is_made_for(op, op.init):
            op.operands[1] = _copy(op, op.init)


def must_follow(op: Operation) -> Iterator[tuple[Operation, Operation]]:
    """What must run before what so that an operation is right: who adds elements to an array asks where, and finds the
    array as it was."""
    if isinstance(op, ScatterOp) and isinstance(adds := op.operand.owner, Operation):
        for value in (*op.inputs, *([] if op.init is None else [op.init])):
            if isinstance(owner := value.owner, Operation) and owner is not adds:
                yield owner, adds


def _is_made_for(op: ScatterOp, value: SSAValue) -> bool:
    """Whether a kernel can make an array for nobody else."""
    owner = value.owner
    is_apart = not isinstance(owner, DiagramOperation) or isinstance(owner, ApplyOp | ReadOp | Regrouping | ScatterOp)
    return not is_apart and [use.operation for use in value.uses] == [op]


def _copy(op: ScatterOp, value: SSAValue) -> SSAValue:
    copy = build_map(Leaf(value), value.type, value.name_hint, op.location)
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(copy, op)
    return copy.result


def _put(op: ScatterOp, new: ScatterOp) -> None:
    new.location, new.result.name_hint = op.location, op.result.name_hint
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(new, op)
    op.result.replace_all_uses_with(new.result)
    op.detach()
    op.erase()


__all__ = ["begin_scatters", "must_follow"]
