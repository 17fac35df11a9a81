# pyright: standard
"""A table whose elements count for blocks of positions, as an operation of PyTorch: in a graph, which blocks there are
can still be asked for each of them, and tiles of blocks that are not there are never visited."""

from __future__ import annotations

from collections.abc import Sequence

import torch


@torch.library.custom_op("treadle::at_blocks", mutates_args=())
def at_blocks(table: torch.Tensor, blocks: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """`table[i // 64, j // 32]` for `blocks` of 64 and 32 positions, of so many along each dimension."""
    for dim, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        table = table.repeat_interleave(block, dim).narrow(dim, 0, size)
    return table.clone()


@at_blocks.register_fake
def _(table: torch.Tensor, blocks: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    return table.new_empty(tuple(sizes))


__all__ = ["at_blocks"]
