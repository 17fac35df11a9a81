"""What banks of shared memory the copies of a kernel meet, and why some take more wavefronts than the fewest."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.layouts.copy_banks import Banked, banks_of
from treadle.compiler.layouts.operations import dealt_tile, strides_at
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import rows_of
from treadle.dialects.diagram.array import sizes_of


def banks_told(kernel: cuda.KernelOp, alignment: int) -> Iterator[str]:
    """`copies take 1,640 wavefronts of shared memory, no order fewer than 1,490: ..`, if some meet a bank twice; copies
    of whole sectors, by vectors that fill rows, meet none."""
    found = [(op, banks) for op, banks in copies_of(kernel, alignment) if not banks.is_fewest]
    every = [banks for _, banks in copies_of(kernel, alignment)]
    if not found:
        return
    total, fewest = sum(each.wavefronts for each in every), sum(each.fewest for each in every)
    reasons = dict.fromkeys(_why(op) for op, _ in found)
    yield f"copies take {total:,} wavefronts, no order fewer than {fewest:,}: {', and '.join(reasons)}"


def copies_of(kernel: cuda.KernelOp, alignment: int) -> Iterator[tuple[GlobalAccess, Banked]]:
    """The copies that look where in its sector each row begins, and the wavefronts of each."""
    for op in kernel.walk():
        if isinstance(op, GlobalAccess):
            banks = banks_of(op, alignment, *strides_at(op, alignment))
            if banks is not None:
                yield op, banks


def _why(op: GlobalAccess) -> str:
    tile = dealt_tile(op)
    rows = rows_of(tile)
    axis = 0 if rows.row_axis is None else rows.row_axis
    length, wide = list(sizes_of(tile).values())[axis], rows.pitch.data
    if length < wide:
        return f"rows of {length} elements are {wide} apart in their tile"
    return f"requests go on from row to row of {length} elements, which are swizzled differently"
