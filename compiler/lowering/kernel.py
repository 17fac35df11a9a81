"""Emit the body of one `cuda.kernel` from a kernel in explicit form: what each operation becomes, on one screen."""

from __future__ import annotations

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import i32
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.barriers import insert_barriers
from treadle.compiler.lowering.cluster import leave_cluster, locate_block
from treadle.compiler.lowering.conditions import lower_where
from treadle.compiler.lowering.elementwise import lower_cast, lower_map
from treadle.compiler.lowering.fragments import fragment_of
from treadle.compiler.lowering.intervals import erase_unused
from treadle.compiler.lowering.names import hinted
from treadle.compiler.lowering.pending import PendingFill, PendingIndex
from treadle.compiler.lowering.pieces import locate_group, lower_piece
from treadle.compiler.lowering.products import lower_contract
from treadle.compiler.lowering.reductions import lower_reduce
from treadle.compiler.lowering.renames import lower_rename
from treadle.compiler.lowering.scans import lower_scan
from treadle.compiler.lowering.selections import lower_select
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.streams import lower_stream
from treadle.compiler.lowering.swaps import lower_swap
from treadle.compiler.lowering.transfers import lower_load, lower_save
from treadle.dialects.cuda.shared import place_tiles
from treadle.dialects.diagram import (
    CastOp,
    ContractOp,
    ExtentOp,
    FillOp,
    IndexOp,
    MapOp,
    ReduceOp,
    RenameOp,
    ScanOp,
    SwapOp,
    WhereOp,
)
from treadle.dialects.hierarchy import LoadOp, PieceOp, SaveOp, SelectOp, StreamOp


def lower_body(lowering: KernelLowering, block: Block) -> int:
    """Fill `block`, the body of the new kernel; gives the bytes of shared memory that it takes."""
    lowering.top = lowering.block = block
    lowering.values |= lowering.arguments
    locate_group(lowering)
    locate_block(lowering)
    for op in lowering.plan.group.body.block.ops:
        lowering.lower(op)
    leave_cluster(lowering)
    erase_unused(block)
    shared_bytes = place_tiles(lowering.allocated)
    insert_barriers(block)
    return shared_bytes


def lower_op(lowering: KernelLowering, op: Operation) -> None:
    """Emit what an operation of the group becomes, or note how its result is made where it is used."""
    match op:
        case LoadOp():
            lower_load(lowering, op)
        case SaveOp():
            lower_save(lowering, op)
        case StreamOp():
            lower_stream(lowering, op)
        case SelectOp():
            lower_select(lowering, op)
        case ContractOp():
            lowering.values[op.result] = lower_contract(lowering, op)
        case ReduceOp():
            lowering.values[op.result] = lower_reduce(lowering, op)
        case ScanOp():
            lowering.values[op.result] = lower_scan(lowering, op)
        case RenameOp():
            lowering.values[op.result] = lower_rename(lowering, op)
        case SwapOp():
            lowering.values[op.result] = lower_swap(lowering, op)
        case MapOp():
            lowering.values[op.result] = lower_map(lowering, op)
        case CastOp():
            lowering.values[op.result] = lower_cast(lowering, op)
        case WhereOp():
            lowering.values[op.result] = lower_where(lowering, op)
        case FillOp():
            lowering.values[op.result] = PendingFill(op)
        case IndexOp():
            lowering.values[op.result] = PendingIndex(op.axis, lowering.offset(op.axis))
        case ExtentOp():
            extent = lowering.emit(arith.IndexCastOp(lowering.size(op.axis.data), i32))
            lowering.values[op.result] = hinted(extent.result, op.result)
        case PieceOp():
            lower_piece(lowering, op)
        case tensor.ExtractOp():
            lowering.values[op.result] = _lower_extract(lowering, op)
        case _ if op.dialect_name() == "arith":
            _clone_scalar(lowering, op)
        case _:
            raise Refusal(op, f"'{op.name}' in a kernel has no lowering to cuda")


def _lower_extract(lowering: KernelLowering, op: tensor.ExtractOp) -> SSAValue:
    """The one element of a tile, which every thread holds."""
    fragment = fragment_of(lowering, op.tensor, lowering.layouts.of(op.tensor))
    extract = lowering.emit(
        tensor.ExtractOp(fragment, [lowering.scalar(index) for index in op.indices], op.result.type)
    )
    return hinted(extract.result, op.result)


def _clone_scalar(lowering: KernelLowering, op: Operation) -> None:
    mapping = {operand: lowering.scalar(operand) for operand in op.operands}
    clone = op.clone(value_mapper=mapping)
    lowering.emit(clone)
    lowering.values |= dict(zip(op.results, clone.results, strict=True))
