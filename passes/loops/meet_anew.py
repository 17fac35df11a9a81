"""The barriers of a kernel whose loops copy ahead, and its copies outside of these."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.barriers import PIPELINED, insert_barriers
from treadle.dialects import cuda


def meet_anew(block: Block) -> None:
    """Place the barriers of a kernel anew, and start its other copies without waiting."""
    remove_barriers_but(block)
    insert_barriers(block)
    for each in (block, *(op.true_region.block for op in block.ops if isinstance(op, scf.IfOp))):
        _ask_for_the_last(each)


def remove_barriers_but(block: Block) -> None:
    """Remove all barriers but those that stand right after the wait of a pipelined loop."""
    for op in [op for op in block.walk() if isinstance(op, cuda.BarrierOp)]:
        if not (isinstance(op.prev_op, cuda.WaitOp) and PIPELINED in (op.parent_op() or op).attributes):
            Rewriter.erase_op(op)


def _ask_for_the_last(block: Block) -> None:
    """Make the copies outside of loops asynchronous, too, up to the barrier after which they are read: on their way
    through registers they would take those of everything that is alive, where a kernel has none left."""
    pending = False
    for op in list(block.ops):
        if isinstance(op, cuda.CopyOp) and not op.is_outward and op.asynchronous is None:
            op.asynchronous = UnitAttr()
            pending = True
        elif pending and (isinstance(op, cuda.BarrierOp) or _may_read(op) or op is block.last_op):
            Rewriter.insert_op([cuda.CommitOp(), cuda.WaitOp(0)], InsertPoint.before(op))
            pending = False


def _may_read(op: Operation) -> bool:
    """Whether what is inside of an operation may read tiles; what selects pieces reads none."""
    return bool(op.regions) and not isinstance(op, cuda.SelectOp)
