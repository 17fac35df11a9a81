"""What the way through shared memory spares a block, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.compiler.layouts.conversions import BARRIER
from treadle.compiler.layouts.operations import strides_at, traffic_of, width_at
from treadle.compiler.layouts.sectors import Traffic
from treadle.compiler.lowering.conversions import staging_wavefronts
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.tiles import format_bytes, layout_of
from treadle.dialects.diagram.array import sizes_of
from treadle.passes.staging.meeting import is_in_turn


@dataclass(frozen=True)
class Balance:
    """What the way through shared memory spares a block, and what it costs."""

    spared: int
    """Sectors."""
    requests: int
    cost: int
    meetings: int

    @property
    def loses(self) -> bool:
        return self.spared <= self.cost - self.requests

    @property
    def spares(self) -> str:
        return f"{self.spared:,} and {self.requests:,} requests"

    @property
    def costs(self) -> str:
        barriers = "a barrier" if self.meetings == 1 else "two barriers"
        return f"{self.cost:,} (requests, wavefronts, waits of warps at {barriers})"


def way_costs(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int, entry: int, barriers: int) -> int:
    """Of the way through shared memory for the whole block, as conversions are counted: requests that copy the tile,
    wavefronts of what threads read or write of it, and meetings. In entries for the widest vectors tensor cores are
    what a turn waits for, so that the wait of each warp counts; in narrower ones, and where nothing multiplies, it is
    memory, and warps wait side by side."""
    bytes = width_at(op, alignment) * format_bytes(op.buffer_type)
    copied = -(-prod(sizes_of(op.piece_type).values()) * format_bytes(op.buffer_type) // (LANES * bytes))
    waiting = cuda.threads_at(op, kernel) // LANES if entry >= WIDEST_VECTOR and is_in_turn(op) else 1
    return copied + staging_wavefronts(layout_of(op.piece_type), op.piece_type) + barriers * BARRIER * waiting


def moved_as_held(op: GlobalAccess, alignment: int, kernel: cuda.KernelOp) -> Traffic:
    """What lanes ask for, as they hold elements, where rows are aligned to so many bytes."""
    strides, base = strides_at(op, alignment)
    staged, op.staged = op.staged, None
    try:
        return traffic_of(op, cuda.threads_at(op, kernel), alignment, strides, base)
    finally:
        op.staged = staged
