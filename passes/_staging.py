"""Fragments that go through shared memory where rows of their array begin anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.lowering.conversions import staging_rows
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import layout_of

MOST_BYTES = 48 * 1024
"""Shared memory up to the end of a tile: what every block gets without asking (CUDA C++ Programming Guide, compute
capabilities), so that no entry needs what its machine may not have."""

TILE_UNIT = 128
"""Bytes that tiles begin at multiples of."""


def stage(accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp) -> None:
    """Let each load and store of a fragment go through shared memory in those variants of its kernel where lanes, as
    they hold elements, would ask for a sector twice. Legal always: the same elements move, by other threads. All tiles
    begin where the kernel's own end, since the block meets around each.

    The widths of all accesses must be known. Kernels whose warps have roles do not meet as a block. In kernels with
    products only results are staged: what is loaded beside them may lie so that every turn would read it with bank
    conflicts (32 bytes a lane)."""
    if cuda.roles_of(kernel) is not None:
        return
    variants, at = cuda.alignments(kernel), -(-kernel.shared_bytes.data // TILE_UNIT) * TILE_UNIT
    has_products = any(isinstance(op, cuda.ProductOp) for op in kernel.walk())
    for access in accesses:
        if isinstance(access, cuda.StoreOp) or (isinstance(access, cuda.LoadOp) and not has_products):
            access.staged = _staged(access, variants, at, kernel.threads.data)


def _staged(op: GlobalAccess, variants: Sequence[int], at: int, threads: int) -> cuda.StagedAttr | None:
    """How an access goes through a tile that lies `at` so many bytes; None if it need not, or there is no room."""
    if max(op.width_list) == 1 and len(variants) > 1:
        return None  # what is accessed by single elements has no say in which variant is launched
    asking_twice = [each for each in variants if each < cuda.WHOLE_SECTORS and not _is_fewest(op, each, threads)]
    if not asking_twice:
        return None
    wider = [each for each in (cuda.WHOLE_SECTORS, *variants) if each > max(asking_twice)]
    layout = layout_of(op.piece_type)
    staged = cuda.StagedAttr(at, min(wider), staging_rows(layout, layout, op.piece_type))
    return staged if staged.end(op.piece_type) <= MOST_BYTES else None


def _is_fewest(op: GlobalAccess, alignment: int, threads: int) -> bool:
    """Whether lanes ask for each sector once where rows are aligned to so many bytes."""
    strides, base = strides_at(op, alignment)
    return traffic_of(op, threads, alignment, strides, base).is_fewest
