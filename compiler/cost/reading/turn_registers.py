"""Registers of a thread during the turns of each stream of a kernel without products."""

from __future__ import annotations

from math import ceil

from treadle.compiler.cost.levels.memory import BASE_REGISTERS, STREAM_REGISTERS
from treadle.compiler.cost.reading.explicit import Walk
from treadle.compiler.cost.reading.moments import held_in_turns
from treadle.dialects.hierarchy import KernelOp, StreamOp


def registers_of_turns(kernel: KernelOp) -> dict[StreamOp, int]:
    """As the footprint counts them for the whole kernel, which has more where another moment holds most. None of a
    kernel with products, of which threads hold much else."""
    walk = Walk(kernel)
    if walk.has_products:
        return {}
    held = held_in_turns(kernel, walk.held_tiles, walk.warps)
    return {stream: BASE_REGISTERS + STREAM_REGISTERS + ceil(words) for stream, words in held.items()}
