"""What a scan has made of all elements of its axis: a stream along it begins each piece with what that is so far."""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import ReduceOp, ScanOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, level_of, sizes_of
from treadle.passes._functions import fresh_hint


def add_totals(block: Block) -> None:
    """Name for each scan the reduction of the same elements, which is made if there is none."""
    for op in [each for each in block.ops if isinstance(each, ScanOp)]:
        if op.total is not None or op.init is not None:
            continue
        new = op.of(op.operand, op.result.type, _total_before(op) or _made(block, op))
        block.insert_op_before(new, op)
        op.result.replace_all_uses_with(new.result)
        op.detach()
        op.erase()


def _total_before(op: ScanOp) -> SSAValue | None:
    """The result of a reduction that stands before a scan and is its total."""
    before = op.prev_op
    while before is not None:
        if isinstance(before, ReduceOp) and _is_total_of(before, op):
            return before.result
        before = before.prev_op
    return None


def _is_total_of(reduce: ReduceOp, op: ScanOp) -> bool:
    same = reduce.operand is op.operand and reduce.kind == op.kind and reduce.over_axes == (op.axis.data,)
    return same and reduce.init is None and format_of(reduce.result.type) == format_of(op.result.type)


def _made(block: Block, op: ScanOp) -> SSAValue:
    axis, type = op.axis.data, op.result.type
    sizes = {each: size for each, size in sizes_of(type).items() if each != axis}
    total = ReduceOp(op.kind.data, op.operand, [axis], array_type(format_of(type), sizes, level_of(type)))
    total.location = op.location
    total.result.name_hint = fresh_hint(op.result, f"{op.result.name_hint or axes_of(type)[0]}_total")
    block.insert_op_before(total, op)
    return total.result


__all__ = ["add_totals"]
