"""Fragments that go through shared memory where lanes, as they hold elements, would ask for a sector twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    those of accesses that follow each other lie behind one another, so that the block meets once for all, as long as a
    multiprocessor holds the blocks that the kernel states. There is room as long as it holds two, or one if it never
    holds more.

    The widths of all accesses must be known. Kernels whose warps have roles do not meet as a block. What is loaded
    beside products goes through shared memory only where that spares more sectors than it costs."""
    if cuda.roles_of(kernel) is not None:
        return
    stager = _Stager(kernel, cuda.alignments(kernel), any(isinstance(op, cuda.ProductOp) for op in kernel.walk()))
    stated = FEW_BLOCKS if kernel.resident is None else max(FEW_BLOCKS, kernel.resident.data)
    for access in accesses:
        if isinstance(access, cuda.CopyOp):
            continue
        access.staged = None
        begin = 0 if _is_after_tiles(access, kernel) else _rounded(kernel.shared_bytes.data)
        if (before := _before(access)) is not None and before.staged is not None:
            behind = _rounded(before.staged.end(before.piece_type))
            found = stager.staged(access, behind, before.staged.below.data)
            access.staged = _within(found, access, most_bytes(kernel, machine, stated))
        if access.staged is None:
            access.staged = _within(stager.staged(access, begin), access, most_bytes(kernel, machine, FEW_BLOCKS))


@dataclass(frozen=True)
class _Stager:
    """What decides on the accesses of one kernel: its variants, and whether what it loads stands beside products."""

    kernel: cuda.KernelOp
    variants: tuple[int, ...]
    has_products: bool

    def staged(self, op: GlobalAccess, at: int, together: int = 0) -> cuda.StagedAttr | None:
        """How an access goes through a tile that lies `at` so many bytes; None if it need not, or beside products, if
        that costs more than it spares. In variants for rows aligned to fewer than `together` bytes the block meets for
        another access anyway."""
        if (below := self._below(op, together)) is None:
            return None
        layout = layout_of(op.piece_type)
        return cuda.StagedAttr(at, below, staging_rows(layout, layout, op.piece_type))

    def _below(self, op: GlobalAccess, together: int) -> int | None:
        """The bytes, those of a variant if there is one, such that an access asks too often in variants for rows
        aligned to fewer; None if it never does."""
        if max(op.width_list) == 1 and len(self.variants) > 1:
            # What is accessed by single elements has no say in which variant is launched: it may lie anywhere in each.
            asks = self._asks_too_often(op, format_bytes(op.buffer_type), self.variants[0], together)
            return EVERYWHERE if asks else None
        every = sorted({cuda.WHOLE_SECTORS, *self.variants, EVERYWHERE})
        asking = [each for each in every[:-1] if self._asks_too_often(op, each, each, together)]
        return min((each for each in every if each > max(asking)), default=None) if asking else None

    def _asks_too_often(self, op: GlobalAccess, alignment: int, entry: int, together: int) -> bool:
        """Whether lanes, as they hold elements, ask for a sector twice where rows are aligned to so many bytes; beside
        products, more often than is worth it."""
        moved, barriers = _moved(op, alignment, self.kernel.threads.data), 0 if entry < together else 2
        has_to_gain = self.has_products and isinstance(op, cuda.LoadOp)
        most = way_costs(op, self.kernel, alignment, entry, barriers) - moved.requests if has_to_gain else 0
        return moved.sectors - moved.fewest_sectors > most


def most_bytes(kernel: cuda.KernelOp, machine: Machine, blocks: int) -> int:
    """Of shared memory, for a block of an entry with tiles on the way, if a multiprocessor is to hold so many blocks,
    or as many as without."""
    capacity, reserved = int(machine.levels["shared"].capacity), machine.limits.shared_reserved
    held = min(capacity // (kernel.shared_bytes.data + reserved), blocks)
    return min(capacity // max(held, 1) - reserved, machine.limits.shared_per_block)


def _within(staged: cuda.StagedAttr | None, op: GlobalAccess, room: int) -> cuda.StagedAttr | None:
    return staged if staged is not None and staged.end(op.piece_type) <= room else None


def _rounded(bytes: int) -> int:
    return -(-bytes // TILE_UNIT) * TILE_UNIT


def _before(op: GlobalAccess) -> GlobalAccess | None:
    """The access of its kind right before an access."""
    before: Operation | None = op.prev_op
    return before if isinstance(before, GlobalAccess) and type(before) is type(op) else None


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
