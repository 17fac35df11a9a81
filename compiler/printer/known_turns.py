"""Turns of a loop that nvcc would write out, as it knows how many there are: how they stay apart.

Products of warpgroups run beside what lanes compute, and ptxas puts off what nothing waits for. A turn of a loop ends
with its sums. If turns are written out, ptxas adds up the elements of one behind the products of the next, so that a
lane holds the elements of both: in more registers than the model counts, and often than there are. So

- a loop whose turns hand on sums that nothing in them asks for stays a loop: a zero is added to its end, of which
  neither nvcc nor ptxas know that it is one;
- if lanes vote on the sums of each turn, or no turn of the loop is left, only the turn before it could do that. What it
  summed is settled (`primitives/wgmma.cuh`), by one instruction that does nothing, and nvcc may write turns out."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.execution import number_of
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL
from treadle.dialects.diagram import ReduceOp


def keep_turns_apart(writer: KernelWriter, loop: scf.ForOp) -> str:
    """Settle what a loop begins with, or give what is added to its end, so that it stays a loop: nothing for most."""
    begin, end = loop.iter_args, loop.body.block.last_op
    assert isinstance(end, scf.YieldOp)
    if not any(map(_is_put_off, (*begin, *end.operands))) or not _is_known(loop.lb, loop.ub):
        return ""
    has_turns = number_of(loop.lb, {}) != number_of(loop.ub, {})
    if not any(map(_makes_elements, (*(loop.walk() if has_turns else ()), *_behind(loop)))):
        return ""
    stays = has_turns and any(map(_is_put_off, end.operands))
    zero = writer.names.fresh("zero")
    writer.text.line(
        f"const int {zero} = {writer.call('kept')}(uint32_t(blockIdx.x)) >> 31;  // which nvcc cannot know"
    )
    if stays:
        return f" + {zero}"
    for value, arg in zip(begin, loop.body.block.args[1:], strict=True):
        if _is_put_off(value):
            writer.text.line(f"{writer.call('settle')}({writer.values[arg]}, {zero});")
    return ""


def _is_put_off(value: SSAValue) -> bool:
    """Whether it is a sum of what each lane holds, which nothing but the next turn asks for."""
    return isinstance(value.owner, ReduceOp) and PARTIAL in value.owner.attributes and value.has_one_use()


def _is_known(*values: SSAValue) -> bool:
    """Whether numbers are computed from constants alone."""
    owners = [value.owner for value in values]
    return all(isinstance(op, Operation) and op.dialect_name() == "arith" and _is_known(*op.operands) for op in owners)


def _makes_elements(op: Operation) -> bool:
    """Whether products of warpgroups make an array, rather than add to one."""
    return isinstance(op, cuda.ProductOfWarpgroupsOp) and op.accumulator is None


def _behind(op: Operation) -> Iterator[Operation]:
    """Operations of a kernel that stand behind another one, in its block and those around it."""
    around: Operation | None = op
    while around is not None and not isinstance(around, cuda.KernelOp):
        after = around.next_op
        while after is not None:
            yield from after.walk()
            after = after.next_op
        around = around.parent_op()
