"""What accesses to device memory ask for beyond the fewest sectors, and why they do."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.layouts.boxes import TensorCopyOp, box_traffic, mapped_strides
from treadle.compiler.layouts.gathers import gather_traffic
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.layouts.sectors import Traffic
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.diagram.array import axes_of
from treadle.passes.staging.told import why_not_staged

BoxesOp = TensorCopyOp | cuda.TensorGatherOp

BOXES = "boxes have at most 128 bytes of a row, and where it begins inside a sector two of them share one"
"""Each asks for a sector once, and no instruction asks for those of two: so many are the fewest of tensor copies."""


def moved_at(op: GlobalAccess | BoxesOp, kernel: cuda.KernelOp, alignment: int) -> Traffic:
    """What an access moves, made once by a block, in the entry of its kernel for rows aligned to so many bytes. (Arrays
    that have a tensor map are aligned to 16 in any.)"""
    if isinstance(op, GlobalAccess):
        strides, base = strides_at(op, alignment)
        return traffic_of(op, cuda.threads_at(op, kernel), alignment, strides, base)
    strides, base = mapped_strides(op, alignment)
    if isinstance(op, cuda.TensorGatherOp):
        return gather_traffic(op, strides, base)
    return box_traffic(op, strides, base)


def beyond_lines(kernel: cuda.KernelOp, alignment: int) -> Iterator[str]:
    """A line for each access that asks for more than the fewest, the same ones together: how much more, and why."""
    found: dict[str, int] = {}
    for op in kernel.walk():
        if not isinstance(op, GlobalAccess | cuda.TensorLoadOp | cuda.TensorStoreOp | cuda.TensorGatherOp):
            continue
        moved = moved_at(op, kernel, alignment)
        if moved.is_fewest:
            continue
        if isinstance(op, GlobalAccess):
            least, why = f"the fewest are {moved.fewest_sectors:,}", why_not_staged(op, kernel, alignment)
        else:
            least, why = f"the fewest of boxes, {moved.fewest_sectors:,} of rows that are not cut", BOXES
        told = f"{_name(op)}: {moved.sectors:,} sectors, {least}: {why}"
        found[told] = found.get(told, 0) + 1
    for told, times in found.items():
        yield told if times == 1 else f"{told} (in {times} places)"


def _name(op: GlobalAccess | BoxesOp) -> str:
    """`K[b, h, x, d] loaded`"""
    match op:
        case cuda.TensorLoadOp() | cuda.TensorStoreOp() | cuda.TensorGatherOp():
            array, type, stores = op.map, op.map_type.buffer, isinstance(op, cuda.TensorStoreOp)
            hint = (array.name_hint or "an array").removesuffix("_map")
        case _:
            array = next(value for value in op.operands if value.type == op.buffer_type)
            type, stores = op.buffer_type, isinstance(op, cuda.StoreOp) or op.piece_type == op.operands[0].type
            hint = array.name_hint or "an array"
    return f"{hint}[{', '.join(axes_of(type))}] {'stored' if stores else 'loaded'}"
