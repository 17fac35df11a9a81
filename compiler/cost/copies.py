"""How many threads load the same value: at `cuda` level a tile in registers may be held by several at once.

H counts a value once for each group that takes it. Where lanes or warps share an element (the bias of a column, the
bound of a row), each of them asks for it by itself: as many times more bytes are asked for, though they come from
one sector. Where it goes through shared memory, the block asks for it once."""

from __future__ import annotations

from math import prod

from treadle.compiler.cost.names import name_of
from treadle.dialects.cuda import KernelOp, LoadOp
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram.array import encoding_of


def copies_of_arrays(kernel: KernelOp, alignment: int) -> dict[str, int]:
    """For each array that a kernel loads into registers, the threads of a block that load each of its elements, in the
    variant for rows aligned to so many bytes."""
    loads = [op for op in kernel.walk() if isinstance(op, LoadOp)]
    by_threads = {name_of(op.source, "array"): _copies(encoding_of(op.result.type).layout) for op in loads}
    by_block = {name_of(op.source, "array"): 1 for op in loads if op.is_staged(alignment)}
    return by_threads | by_block


def _copies(layout: object) -> int:
    if not isinstance(layout, LayoutAttr):
        return 1
    return prod(mode.size for modes in (layout.lane, layout.warp) for mode in modes if not mode.axis)
