"""In which order the threads of a block copy a tile between device and shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.compiler.layouts.accesses import Access, row_copy
from treadle.compiler.layouts.maps import Map
from treadle.compiler.layouts.sectors import LINE_BYTES
from treadle.dialects.cuda.layout import Mode


def copy_access(extents: Mapping[str, int], width: int, threads: int, element_bytes: int) -> Access:
    """A tile by vectors of `width` neighbours, as `cuda.copy` deals them to the threads of the block: line by line
    where `line_span` allows it, else in the order of the tile (LayoutError if the width does not divide a row).

    Consecutive threads take consecutive vectors of a line, so that a warp's request is as many whole lines as it has
    bytes for; the block then goes along the row, and down. In the order of the tile, addresses only grow, so that two
    requests share at most the one sector in which the first ends, and none if rows are multiples of 32 bytes."""
    span = line_span(extents, width, threads, element_bytes)
    if span is None:
        return row_copy(extents, width)
    (row, count), (column, length) = _wide(extents)
    rows = threads * width // span
    order = (
        Mode(row, count // rows, rows),
        Mode(column, length // span, span),
        Mode(row, rows, 1),
        Mode(column, span // width, width),
    )
    return Access(Map.of(item=order), column, width)


def line_span(extents: Mapping[str, int], width: int, threads: int, element_bytes: int) -> int | None:
    """Neighbours of a row that neighbouring threads take before they go down: a line of 128 bytes, or a row that is
    shorter; the whole of a longer row, where only then the block goes down by equal parts of the tile. None unless the
    tile has two axes of more than one element, whole spans a row, and whole rounds of the block."""
    wide = _wide(extents)
    if len(wide) != 2:
        return None
    (_, count), (_, length) = wide
    line = min(length, LINE_BYTES // element_bytes)
    for span in (line, length):
        even = threads * width % span == 0 and count % (threads * width // span) == 0
        if length % span == 0 and even:
            return span
    return None


def _wide(extents: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(axis, extent) for axis, extent in extents.items() if extent != 1]
