"""Fragments that go through shared memory where lanes, as they hold elements, would ask for a sector twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from xdsl.ir import Operation

from treadle.compiler.layouts.conversions import BARRIER
from treadle.compiler.layouts.operations import strides_at, traffic_of, width_at
from treadle.compiler.layouts.sectors import Traffic
from treadle.compiler.lowering.conversions import staging_rows, staging_wavefronts
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import format_bytes, is_shared, layout_of
from treadle.dialects.diagram.array import sizes_of

FEW_BLOCKS = 2
"""Blocks on a multiprocessor of which one computes while the other meets."""

TILE_UNIT = 128
"""Bytes that tiles begin at multiples of."""


def stage(accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp, machine: Machine) -> None:
    """Let each load and store of a fragment go through shared memory in those variants of its kernel where lanes, as
    they hold elements, would ask for a sector twice. Legal always: the same elements move, by other threads. All tiles
    begin where the kernel's own end, or where those are needed no more, with them, since the block meets around each;
    those of accesses that follow each other lie behind one another, so that the block meets once for all. There is room
    as long as a multiprocessor holds two blocks, or one if it never holds more.

    The widths of all accesses must be known. Kernels whose warps have roles do not meet as a block. What is loaded
    beside products goes through shared memory only where that spares more sectors than it costs."""
    if cuda.roles_of(kernel) is not None:
        return
    room = most_bytes(kernel, machine)
    variants, has_products = cuda.alignments(kernel), any(isinstance(op, cuda.ProductOp) for op in kernel.walk())
    for access in accesses:
        if isinstance(access, cuda.CopyOp):
            continue
        begins = [_end_before(access), 0 if _is_after_tiles(access, kernel) else _rounded(kernel.shared_bytes.data)]
        has_to_gain = has_products and isinstance(access, cuda.LoadOp)
        for begin in begins:
            if access.staged is None and begin is not None:
                barriers = 0 if begin == begins[0] else 2
                found = _staged(access, variants, begin, kernel, barriers if has_to_gain else None)
                access.staged = found if found is None or found.end(access.piece_type) <= room else None


def most_bytes(kernel: cuda.KernelOp, machine: Machine) -> int:
    """Of shared memory, for a block of an entry with tiles on the way."""
    capacity, reserved = int(machine.levels["shared"].capacity), machine.limits.shared_reserved
    blocks = min(capacity // (kernel.shared_bytes.data + reserved), FEW_BLOCKS)
    return min(capacity // max(blocks, 1) - reserved, machine.limits.shared_per_block)


def _rounded(bytes: int) -> int:
    return -(-bytes // TILE_UNIT) * TILE_UNIT


def _end_before(op: GlobalAccess) -> int | None:
    """Where the tile of the access of its kind right before it ends; None if there is none."""
    before: Operation | None = op.prev_op
    if not isinstance(before, GlobalAccess) or type(before) is not type(op) or before.staged is None:
        return None
    return _rounded(before.staged.end(before.piece_type))


def _is_after_tiles(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether no tile of the kernel is needed from an access on, nor any copy to one under way."""
    if op.parent is not kernel.body.block:
        return False
    if any(is_shared(value.type) for later in _behind(op) for each in later.walk() for value in each.operands):
        return False
    copies = [each for each in kernel.walk() if isinstance(each, cuda.CopyOp) and each.asynchronous is not None]
    return all(_is_awaited(copy, op) for copy in copies)


def _is_awaited(copy: cuda.CopyOp, op: GlobalAccess) -> bool:
    """Whether on every way from an asynchronous copy to an access on the kernel's own level all copies are awaited."""
    place: Operation | None = copy
    while place is not None:
        for later in _behind(place):
            if later is op:
                return False
            if isinstance(later, cuda.WaitOp) and later.pending.data == 0:
                return True
        place = place.parent_op()
    return False


def _behind(op: Operation) -> Iterator[Operation]:
    """The operations of its block that follow an operation."""
    later = op.next_op
    while later is not None:
        yield later
        later = later.next_op


def _staged(
    op: GlobalAccess, variants: Sequence[int], at: int, kernel: cuda.KernelOp, barriers: int | None
) -> cuda.StagedAttr | None:
    """How an access goes through a tile that lies `at` so many bytes; None if it need not, or, where `barriers` say how
    often the block has to meet for it, that costs more than it spares."""

    def asks_twice(alignment: int, entry: int) -> bool:
        moved = _moved(op, alignment, kernel.threads.data)
        most = 0 if barriers is None else way_costs(op, kernel, alignment, entry, barriers) - moved.requests
        return moved.sectors - moved.fewest_sectors > most

    below = _below(op, variants, asks_twice)
    if below is None:
        return None
    layout = layout_of(op.piece_type)
    return cuda.StagedAttr(at, below, staging_rows(layout, layout, op.piece_type))


def _below(op: GlobalAccess, variants: Sequence[int], asks_twice: Callable[[int, int], bool]) -> int | None:
    """The bytes, those of a variant if there is one, such that an access asks twice in variants for rows aligned to
    fewer; None if it never does. `asks_twice` is given what its rows are aligned to, and the variant."""
    if max(op.width_list) == 1 and len(variants) > 1:
        # What is accessed by single elements has no say in which variant is launched: it may lie anywhere in each.
        return EVERYWHERE if asks_twice(format_bytes(op.buffer_type), variants[0]) else None
    every = sorted({cuda.WHOLE_SECTORS, *variants, EVERYWHERE})
    asking = [alignment for alignment in every[:-1] if asks_twice(alignment, alignment)]
    return min((each for each in every if each > max(asking)), default=None) if asking else None


def way_costs(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int, entry: int, barriers: int) -> int:
    """Of the way through shared memory for the whole block, as conversions are counted: requests that copy the tile,
    wavefronts of what threads read or write of it, and meetings. In entries for the widest vectors tensor cores are
    what a turn waits for, so that the wait of each warp counts; in narrower ones it is memory, and warps wait side by
    side."""
    bytes = width_at(op, alignment) * format_bytes(op.buffer_type)
    copied = -(-prod(sizes_of(op.piece_type).values()) * format_bytes(op.buffer_type) // (LANES * bytes))
    waiting = kernel.threads.data // LANES if entry >= WIDEST_VECTOR else 1
    return copied + staging_wavefronts(layout_of(op.piece_type), op.piece_type) + barriers * BARRIER * waiting


def _moved(op: GlobalAccess, alignment: int, threads: int) -> Traffic:
    """What lanes ask for where rows are aligned to so many bytes."""
    strides, base = strides_at(op, alignment)
    return traffic_of(op, threads, alignment, strides, base)
