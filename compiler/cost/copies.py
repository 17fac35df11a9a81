"""How many threads load the same value: at `cuda` level a tile in registers may be held by several at once.

H counts a value once for each group that takes it. Where lanes or warps share an element (the bias of a column, the
bound of a row), each of them asks for it by itself: as many times more bytes are asked for, though they come from
one sector. Where it goes through shared memory, the block asks for it once."""

from __future__ import annotations

from math import prod

from treadle.compiler.cost.names import name_of
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda import KernelOp, LoadOp, threads_at
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram.array import encoding_of


def copies_of_arrays(kernel: KernelOp, alignment: int) -> dict[str, int]:
    """For each array that a kernel loads into registers, the threads of a block that load each of its elements, in the
    variant for rows aligned to so many bytes. Of a tile that is loaded in several layouts (bounds of rows, once for the
    limits of a stream and once beside its scores) those of all."""
    layouts: dict[str, dict[object, int]] = {}
    for op in kernel.walk():
        if isinstance(op, LoadOp):
            layout = encoding_of(op.result.type).layout
            known = layouts.setdefault(name_of(op.source, "array"), {})
            known[layout] = 1 if op.is_staged(alignment) else _copies(layout, threads_at(op, kernel))
    return {array: sum(known.values()) for array, known in layouts.items()}


def _copies(layout: object, threads: int) -> int:
    """Of a layout of the warps that compute, where so many threads load."""
    if not isinstance(layout, LayoutAttr):
        return 1
    copies = prod(mode.size for modes in (layout.lane, layout.warp) for mode in modes if not mode.axis)
    return copies * threads // (WARP * layout.warps)
