"""How a result of words leaves the registers of a block: as lanes hold it, or through shared memory in whole lines."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.compiler.layouts.accesses import Access
from treadle.compiler.layouts.conflicts import boxed_wavefronts
from treadle.compiler.layouts.conversions import BARRIER
from treadle.compiler.layouts.copies import copy_access
from treadle.compiler.layouts.operations import assumed_strides, ends_within_rows, widest
from treadle.compiler.layouts.sectors import traffic
from treadle.compiler.layouts.swizzle import Choice, choose_rows
from treadle.compiler.layouts.vectors import MOST_BYTES, widest_copy
from treadle.compiler.lowering.conversions import vectors_of
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.layout import LANES, RowsAttr
from treadle.dialects.cuda.tiles import format_bytes, layout_of
from treadle.dialects.diagram.array import axes_of, sizes_of

WORD = 4
"""Bytes of a result for which the ways are compared: narrower ones are gathered where they are lowered."""


@dataclass(frozen=True)
class Ways:
    """What each way costs a block, as conversions are counted: instructions of warps, the wavefronts of those that go
    to shared memory, the lines that those to device memory reach into."""

    held: int
    """As lanes hold it."""
    through: int
    """Written to a tile and copied out 16 bytes a thread, but for meetings."""
    rows: RowsAttr
    """Of that tile."""
    vector: int
    """Elements in 16 bytes."""

    def with_meetings(self, count: int) -> int:
        """The way through shared memory, around which all meet so often."""
        return self.through + count * BARRIER


def ways_of(op: cuda.StoreOp, threads: int) -> Ways | None:
    """Both ways of a store of words by so many threads, dense arrays assumed; None if there is one row, or no copy of
    it would move 16 bytes a thread."""
    sizes, bytes = sizes_of(op.piece_type), format_bytes(op.buffer_type)
    wide = {axis: size for axis, size in sizes.items() if size != 1}
    vector = MOST_BYTES // bytes
    if bytes != WORD or len(wide) < 2 or op.place is not None or op.divisors or ends_within_rows(op):
        return None
    if next(reversed(wide)) != axes_of(op.piece_type)[-1] or widest_copy(wide.values()) % vector:
        return None
    return tiled(op, wide, vector, threads, held_cost(op))


def tiled(op: GlobalAccess, wide: dict[str, int], vector: int, threads: int, held: int) -> Ways:
    """The way through a tile that all copy by so many elements at once, beside what it costs as lanes hold it. (What is
    loaded is copied to the tile by one instruction, what is stored is read from it by another.)"""
    sizes, bytes = sizes_of(op.piece_type), format_bytes(op.buffer_type)
    own = vectors_of(layout_of(op.piece_type), next(reversed(wide)), bytes, wide)
    copy = copy_access(wide, vector, threads, bytes)
    moved = traffic(copy, assumed_strides(op.buffer_type), bytes)
    choice: Choice = choose_rows(tuple(wide), tuple(wide.values()), bytes, own, copy)
    ours, copied = choice.accesses
    through = _instructions(own) + ours.wavefronts + copied.wavefronts + moved.requests + moved.lines
    through += moved.requests if isinstance(op, cuda.StoreOp) else 0
    rows = RowsAttr(tuple(sizes.values()), choice.rows.pitch.data, (bits.data for bits in choice.rows.swizzle))
    return Ways(held, through, rows, vector)


def held_cost(op: cuda.StoreOp) -> int:
    """What it costs a block to store a fragment as lanes hold it: instructions, and the lines that they reach into."""
    sizes, bytes = sizes_of(op.piece_type), format_bytes(op.buffer_type)
    stores = vectors_of(layout_of(op.piece_type), axes_of(op.piece_type)[-1], bytes, sizes, widest(op))
    held = traffic(stores, assumed_strides(op.buffer_type), bytes, limits=sizes)
    return held.requests + held.lines


def boxes_cost(op: cuda.StoreOp, boxes: BoxesAttr) -> int:
    """What it costs a block, counted so, to write a fragment of an accumulator to a tile in boxes, from which tensor
    copies take it: but for what all threads do for these."""
    axes, layout, bytes = axes_of(op.piece_type), layout_of(op.piece_type), format_bytes(op.buffer_type)
    write = vectors_of(layout, axes[boxes.row_axis], bytes, sizes_of(op.piece_type))
    return _instructions(write) + boxed_wavefronts(write, boxes, axes, bytes)


def _instructions(access: Access) -> int:
    return access.count // access.width // LANES
