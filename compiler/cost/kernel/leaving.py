"""What it costs a thread that a tile leaves shared memory: by its own loads and stores, or by a tensor copy; and which
results of words leave so (those of 16 bits and fewer all do)."""

from __future__ import annotations

from treadle.compiler.amounts import Amount, ceil_div, choice, least
from treadle.compiler.cost.kernel.issue import VECTOR
from treadle.compiler.cost.kernel.plan import LEAVING, Plan, Tile, row_of
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.boxes import MOST_ROWS
from treadle.dialects.cuda.tensor_maps import MOST_AXES
from treadle.dialects.cuda.tiles import WORD

COPY_STEPS = 3
"""Instructions of a thread for each vector that it copies itself: LDS, STG, and the step of the address."""

STORE_STEPS = 6
"""Of a thread where one of them starts a tensor copy: the fence, what that thread does for all, and the wait at the
end. Counted in what ptxas 13.0 makes of a matrix product; not measured on a GPU."""


PAIRS = 2
"""Stores of a pair of words, of 16 bytes: to shared memory, or straight to device memory."""

MAPPED_BYTES = 16
"""What rows of an array are multiples of that has a tensor map."""

WORDS = 120
"""Registers of a block's warps, a lane of each, from which words leave in whole lines. As lanes hold them a pair takes
an instruction and 8 lines. Through shared memory it takes an instruction and 2 wavefronts, and 16 bytes two
instructions, 4 wavefronts and 4 lines: half a slot less a register, and 60 for meeting twice
(`compiler/lowering/leaving.py` counts them for one layout)."""

WORDS_OF_ROLES, WORDS_OF_WARP = 30, 3
"""The same where tensor copies take them from boxes, in which a pair meets another's banks: 2 slots less a register,
and for each warp `STORE_STEPS`."""


def words_leave(elements: Amount, warps: Amount, grouped: Amount) -> Amount:
    """Whether a result of words is large enough to leave by way of shared memory."""
    least = choice(grouped, WORDS_OF_ROLES + WORDS_OF_WARP * warps, WORDS)
    return elements / WARP > least


def copying_slots(bytes: Amount, threads: Amount) -> Amount:
    """Instructions of a thread that copies its part of a tile of so many bytes."""
    return COPY_STEPS * ceil_div(bytes, VECTOR * threads)


def saved_by_tensor_store(bytes: Amount, threads: Amount) -> Amount:
    """Instructions of a thread that a tensor copy saves; below 1 it does not pay."""
    return copying_slots(bytes, threads) - STORE_STEPS


def leaving_slots(vectors: Amount, grouped: Amount, width: int = 2, warps: Amount = 1) -> Amount:
    """Instructions of a thread whose part of a tile is so many vectors, of elements of so many bytes; in kernels of
    warpgroups the tile leaves by a tensor copy where that pays. Of words it counts what writes them there, too, or
    what stores them straight."""
    copying = COPY_STEPS * ceil_div(vectors, 1)
    copying = choice(grouped, least(copying, STORE_STEPS), copying)
    if width < WORD:
        return copying
    leave = words_leave(vectors * warps * WARP * VECTOR / width, warps, grouped)
    return PAIRS * ceil_div(vectors, 1) + choice(leave, copying, 0)


def takes_a_place(tile: Tile, plan: Plan) -> Amount:
    """Whether a result leaves from a tile where warpgroups compute: of words, if tensor copies take it."""
    return True if tile.width < WORD else _leaves_by_tensor_copy(tile, WARP * plan.warp_count)


def leave_by_tensor_copies(plan: Plan) -> Amount:
    """Whether all tiles of results do, if the machine has them and warpgroups compute: but for words, which leave from
    registers else."""
    leaving: Amount = True
    for tile in plan.tiles:
        if tile.role in LEAVING and tile.width < WORD:
            leaving = leaving & _leaves_by_tensor_copy(tile, WARP * plan.warp_count)
    return leaving


def _leaves_by_tensor_copy(tile: Tile, threads: Amount) -> Amount:
    """As `passes/cuda_store_tensors.py` decides it of the lowered tile: a tensor map describes it, and it pays."""
    if not 2 <= len(tile.shape) <= MOST_AXES:
        return False
    pays = saved_by_tensor_store(tile.elements * tile.width, threads) >= 1
    fits: Amount = pays if tile.width < WORD else words_leave(tile.elements, ceil_div(threads, WARP), True)
    for extent in tile.shape:
        fits = fits & (extent <= MOST_ROWS)
    return fits & (row_of(tile.shape) * tile.width % MAPPED_BYTES == 0)
