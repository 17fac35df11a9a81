"""What it costs a thread that a tile leaves shared memory: by its own loads and stores, or by a tensor copy."""

from __future__ import annotations

from treadle.compiler.amounts import Amount, ceil_div, choice, least
from treadle.compiler.cost.issue import VECTOR
from treadle.compiler.cost.plan import LEAVING, Plan, Tile, row_of
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.boxes import MOST_ROWS, SPANS
from treadle.dialects.cuda.tensor_maps import MOST_AXES

COPY_STEPS = 3
"""Instructions of a thread for each vector that it copies itself: LDS, STG, and the step of the address."""

STORE_STEPS = 6
"""Of a thread where one of them starts a tensor copy: the fence, what that thread does for all, and the wait at the
end. Counted in what ptxas 13.0 makes of a matrix product; not measured on a GPU."""


def copying_slots(bytes: Amount, threads: Amount) -> Amount:
    """Instructions of a thread that copies its part of a tile of so many bytes."""
    return COPY_STEPS * ceil_div(bytes, VECTOR * threads)


def saved_by_tensor_store(bytes: Amount, threads: Amount) -> Amount:
    """Instructions of a thread that a tensor copy saves; below 1 it does not pay."""
    return copying_slots(bytes, threads) - STORE_STEPS


def leaving_slots(vectors: Amount, grouped: Amount) -> Amount:
    """Instructions of a thread whose part of a tile is so many vectors; in kernels of warpgroups the tile leaves by a
    tensor copy where that pays."""
    copying = COPY_STEPS * ceil_div(vectors, 1)
    return choice(grouped, least(copying, STORE_STEPS), copying)


def leave_by_tensor_copies(plan: Plan) -> Amount:
    """Whether all tiles of results do, if the machine has them and warpgroups compute."""
    leaving: Amount = True
    for tile in plan.tiles:
        if tile.role in LEAVING:
            leaving = leaving & _leaves_by_tensor_copy(tile, WARP * plan.warp_count)
    return leaving


def _leaves_by_tensor_copy(tile: Tile, threads: Amount) -> Amount:
    """As `passes/cuda_store_tensors.py` decides it of the lowered tile: a tensor map describes it, and it pays."""
    if not 2 <= len(tile.shape) <= MOST_AXES:
        return False
    fits: Amount = saved_by_tensor_store(tile.elements * tile.width, threads) >= 1
    for extent in tile.shape:
        fits = fits & (extent <= MOST_ROWS)
    return fits & (row_of(tile.shape) * tile.width % min(SPANS) == 0)
