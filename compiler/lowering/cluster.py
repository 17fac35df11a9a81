"""Groups that the blocks of a cluster share: what one block holds, and how all of them meet.

The schedule says which part of an axis that the group holds whole each block has (`cluster = [x = 16384]`). A block
does with its part what it would do alone with a whole row; only reductions along the axis have the parts of all blocks
to put together. Each block writes its own to its shared memory, all meet, and each reads those of all, in the order of
the blocks, so that all have the same (PTX ISA 9.7.13.3, `barrier.cluster`; 9.7.9.8, `ld.shared::cluster`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.conversions import staging_rows
from treadle.compiler.lowering.names import hinted, named, plain_name
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import tile_of
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp, YieldOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, level_of, sizes_of
from treadle.dialects.hierarchy import KernelOp, SaveOp, StreamOp

FOLDS: Mapping[str, tuple[Callable[[SSAValue, SSAValue], Operation], Callable[[SSAValue, SSAValue], Operation]]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
}
"""What puts two parts of a reduction together, of floating point numbers and of integers."""


def keep_parts(kernel: KernelOp, machine: Machine) -> None:
    """Let the values of a kernel in explicit form be what one block of a cluster holds (Refusal)."""
    parts = {} if kernel.schedule is None else kernel.schedule.cluster.as_dict()
    if not parts:
        return
    _check(kernel, parts, machine)
    for op in kernel.walk():
        for result in op.results if op is not kernel else ():
            if is_array(result.type) and parts.keys() & sizes_of(result.type).keys():
                sizes = {axis: parts.get(axis, size) for axis, size in sizes_of(result.type).items()}
                type = array_type(format_of(result.type), sizes, level_of(result.type) or "register")
                Rewriter.replace_value_with_new_type(result, type)


def _check(kernel: KernelOp, parts: Mapping[str, int], machine: Machine) -> None:
    at, axes = f"@{kernel.kernel_name.data}", ", ".join(map(repr, parts))
    blocks = 1 if kernel.schedule is None else kernel.schedule.blocks
    shared = f"{blocks} blocks of a cluster share axis {axes} of {at}"
    if machine.most_in_cluster == 1:
        raise Refusal(kernel, f"{shared}, and {machine.arch} has no clusters: sm_90 and newer have")
    if blocks > machine.most_in_cluster:
        raise Refusal(kernel, f"{shared}: a cluster has at most {machine.most_in_cluster}; give each a larger part")
    for op in kernel.walk():
        if isinstance(op, StreamOp | ContractOp):
            raise Refusal(op, f"{shared}, which meet around no '{op.name}': leave 'cluster' out of the schedule")
        if isinstance(op, SaveOp) and not parts.keys() <= set(axes_of(op.value.type)):
            saved = f"each of them would save all of %{plain_name(op.value)}, which lacks it"
            raise Refusal(op, f"{shared}, and {saved}: leave 'cluster' out of the schedule")


def locate_block(lowering: KernelLowering) -> None:
    """Where the part of this block begins, along the axis that the blocks of its cluster share."""
    for axis, piece in lowering.plan.cluster.items():
        number = named(lowering.emit(cuda.BlockInClusterOp()).result, f"{axis}_block")
        start = lowering.emit(arith.MuliOp(number, lowering.index(piece)))
        lowering.offsets[axis] = named(start.result, f"{axis}0")
        if lowering.plan.sizes[axis] % piece:
            lowering.bounded.add(axis)


def is_shared_by_blocks(lowering: KernelLowering, reduce: ReduceOp) -> bool:
    """Whether the blocks of a cluster each have a part of what is reduced."""
    return any(axis in lowering.plan.cluster for axis in reduce.over_axes)


def of_blocks(lowering: KernelLowering, reduce: ReduceOp, value: SSAValue, init: SSAValue | None) -> SSAValue:
    """The whole, of what each block has as its part; `init` is what it begins with."""
    layout = layout_of(value.type)
    tile = tile_of(lowering, (reduce, "blocks"), value, staging_rows(layout, layout, value.type))
    lowering.emit(cuda.WriteOp(value, tile))
    lowering.emit(cuda.ClusterArriveOp())
    lowering.emit(cuda.ClusterWaitOp())
    whole = init
    for block in range(lowering.plan.blocks):
        read = lowering.emit(cuda.ReadClusterOp(tile, lowering.index(block), value.type))
        part = named(read.result, plain_name(value))
        whole = part if whole is None else hinted(lowering.emit(_folded(reduce.kind.data, whole, part)).result, value)
    assert whole is not None
    return whole


def _folded(kind: str, one: SSAValue, other: SSAValue) -> MapOp:
    format = format_of(one.type)
    block = Block(arg_types=[format, format])
    for argument, name in zip(block.args, "ab", strict=True):
        argument.name_hint = name
    fold = FOLDS[kind][isinstance(format, IntegerType)](block.args[0], block.args[1])
    block.add_ops([fold, YieldOp(fold.results[0])])
    return MapOp([one, other], one.type, Region(block))


def leave_cluster(lowering: KernelLowering) -> None:
    """No block ends while another may read its memory: all have read when they arrive after their last read."""
    if lowering.plan.blocks == 1:
        return
    reads = [op for op in lowering.top.ops if isinstance(op, cuda.ReadClusterOp)]
    if not reads:
        return
    Rewriter.insert_op(cuda.ClusterArriveOp(), InsertPoint.after(reads[-1]))
    lowering.top.add_op(cuda.ClusterWaitOp())
