"""Fragments that lanes, as they hold them, move in parts of lines, though a block could move each line at once."""

from __future__ import annotations

from treadle.compiler.layouts.copies import copy_access
from treadle.compiler.layouts.operations import assumed_strides, ends_within_rows, held_access, widest
from treadle.compiler.layouts.sectors import Traffic, traffic
from treadle.compiler.layouts.vectors import MOST_BYTES, widest_copy
from treadle.compiler.lowering.leaving import Ways, tiled
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import format_bytes
from treadle.dialects.diagram.array import axes_of, sizes_of


def lines_of(op: GlobalAccess, threads: int) -> Ways | None:
    """Both ways of a load or store of a fragment by so many threads, dense arrays assumed, where a copy of its tile, 16
    bytes a thread, asks for fewer lines than lanes do as they hold it; None where it does not, or where no such copy is
    possible."""
    sizes, bytes = sizes_of(op.piece_type), format_bytes(op.buffer_type)
    wide = {axis: size for axis, size in sizes.items() if size != 1}
    vector = MOST_BYTES // bytes
    if not wide or op.place is not None or op.divisors or ends_within_rows(op):
        return None
    if len(wide) == 1 and widest(op) == 1:  # a line of words, whose alignment has no say
        return None
    if next(reversed(wide)) != axes_of(op.piece_type)[-1] or widest_copy(wide.values()) % vector:
        return None
    held = _held(op, threads)
    moved = traffic(copy_access(wide, vector, threads, bytes), assumed_strides(op.buffer_type), bytes)
    return tiled(op, wide, vector, threads, held.requests + held.lines) if moved.lines < held.lines else None


def _held(op: GlobalAccess, threads: int) -> Traffic:
    access = held_access(op, threads, widest(op))
    return traffic(
        access, assumed_strides(op.buffer_type), format_bytes(op.buffer_type), limits=sizes_of(op.piece_type)
    )
