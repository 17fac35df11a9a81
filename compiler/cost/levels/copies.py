"""How many threads load the same value: at `cuda` level a tile in registers may be held by several at once.

H counts a value once for each group that takes it. Where lanes or warps share an element (the bias of a column, the
bound of a row), each of them asks for it by itself: as many times more bytes are asked for, though they come from
one sector. Where it goes through shared memory, the block asks for it once."""

from __future__ import annotations

from math import prod

from treadle.compiler.cost.kernel.names import name_of
from treadle.compiler.layouts.operations import dealt_runs, span_of_rows, width_at
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda import WHOLE_SECTORS, CopyOp, KernelOp, LoadOp, StoreOp, threads_at
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import rows_of
from treadle.dialects.diagram.array import encoding_of, sizes_of
from treadle.dialects.diagram.condition import Entry
from treadle.dialects.diagram.place import entries_in


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
    copies = {array: sum(known.values()) for array, known in layouts.items()}
    return {**_copies_of_entries(kernel, alignment), **copies}


def _copies_of_entries(kernel: KernelOp, alignment: int) -> dict[str, int]:
    """The threads that load each entry of a piece of an array that is scattered: one for each vector that they find by
    it, or where a copy goes along rows, for each thread of a row."""
    found: dict[str, int] = {}
    for op in kernel.walk():
        if isinstance(op, LoadOp | CopyOp | StoreOp) and (scatter := op.scatter) is not None:
            for entry in entries_in(scatter.place.forms):
                times = _times(op, entry, threads_at(op, kernel), alignment)
                name = name_of(scatter.entries[entry.name], "array")
                found[name] = max(found.get(name, 0), times)
    return found


def _times(op: LoadOp | CopyOp | StoreOp, entry: Entry, threads: int, alignment: int) -> int:
    sizes, width = sizes_of(op.piece_type), width_at(op, alignment)
    positions = prod(sizes[axis] for axis in entry.axes)
    if isinstance(op, LoadOp | StoreOp):
        layout = encoding_of(op.piece_type).layout
        assert isinstance(layout, LayoutAttr)
        registers = prod(mode.size for mode in layout.register)
        return -(-registers * threads // (width * positions))
    if positions == 1:
        return threads
    if (runs := dealt_runs(op, alignment)) is not None:  # each warp asks for the entries of all
        return -(-runs.total * threads // (WARP * positions))
    span = span_of_rows(op, threads) if alignment >= WHOLE_SECTORS else None
    return -(-prod(rows_of(op.piece_type).shape) // (width * positions)) if span is None else span // width


def _copies(layout: object, threads: int) -> int:
    """Of a layout of the warps that compute, where so many threads load."""
    if not isinstance(layout, LayoutAttr):
        return 1
    copies = prod(mode.size for modes in (layout.lane, layout.warp) for mode in modes if not mode.axis)
    return copies * threads // (WARP * layout.warps)
