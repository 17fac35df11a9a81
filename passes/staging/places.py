"""Where tiles on the way through shared memory lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import is_for_sectors
from treadle.passes.staging.meeting import is_after_tiles
from treadle.passes.staging.stager import Stager

FEW_BLOCKS = 2
"""Blocks on a multiprocessor of which one computes while the other meets."""

TILE_UNIT = 128
"""Bytes that tiles begin at multiples of."""


@dataclass(frozen=True)
class Places:
    """Where tiles on the way lie: behind the kernel's own, or in their place where those are needed no more."""

    kernel: cuda.KernelOp
    rooms: tuple[int, int]
    """Bytes for what lies behind an access it meets with, and for what begins anew."""
    most: int
    """Bytes for what has to have a place, and finds none there."""
    dead: int
    """Bytes that the kernel's own tiles take, without the barriers behind them."""

    @classmethod
    def of(cls, kernel: cuda.KernelOp, machine: Machine) -> Places:
        stated = FEW_BLOCKS if kernel.resident is None else max(FEW_BLOCKS, kernel.resident.data)
        rooms = most_bytes(kernel, machine, stated), most_bytes(kernel, machine, FEW_BLOCKS)
        rings = [op.offset.data for op in kernel.body.block.ops if isinstance(op, cuda.RingOp)]
        most = machine.limits.shared_per_block if is_for_sectors(kernel) else 0
        return cls(kernel, rooms, most, min(rings, default=max(rooms)))

    def give(self, run: Sequence[GlobalAccess], stager: Stager, together: int) -> None:
        """Let accesses that follow each other go through tiles, if there is room: side by side, or in one place. In
        variants for rows aligned to fewer than `together` bytes the block meets for one of them anyway."""
        before: GlobalAccess | None = None
        for access in run:
            access.staged = None
            anew = together if before is None else 0
            if before is not None and before.staged is not None:
                begin = _rounded(before.staged.end(before.piece_type))
                room = self.dead if before.staged.at.data < self._behind else self.rooms[0]
                access.staged = stager.staged(access, begin, min(room, self.rooms[0]), together)
            if access.staged is None and is_after_tiles(access, self.kernel):
                access.staged = stager.staged(access, self._behind_those_of_others, min(self.dead, self.rooms[1]), anew)
            if access.staged is None:
                access.staged = stager.staged(access, self._behind, self.rooms[1], anew)
            if access.staged is None and self.most:
                access.staged = stager.staged(access, self._behind, self.most, anew)
            before = access

    @property
    def _behind_those_of_others(self) -> int:
        """Where no tile lies that other blocks of the cluster read: they may until the kernel ends."""
        tiles = [op.source.owner for op in self.kernel.body.block.ops if isinstance(op, cuda.ReadClusterOp)]
        ends = (op.offset.data + op.stages.data * op.stage_bytes for op in tiles if isinstance(op, cuda.SharedOp))
        return _rounded(max(ends, default=0))

    @property
    def _behind(self) -> int:
        return _rounded(self.kernel.shared_bytes.data)


def most_bytes(kernel: cuda.KernelOp, machine: Machine, blocks: int) -> int:
    """Of shared memory, for a block of an entry with tiles on the way, if a multiprocessor is to hold so many blocks,
    or as many as without."""
    capacity, reserved = int(machine.levels["shared"].capacity), machine.limits.shared_reserved
    held = min(capacity // (kernel.shared_bytes.data + reserved), blocks)
    return min(capacity // max(held, 1) - reserved, machine.limits.shared_per_block)


def _rounded(bytes: int) -> int:
    return -(-bytes // TILE_UNIT) * TILE_UNIT
