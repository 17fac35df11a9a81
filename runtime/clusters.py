"""Which clusters of blocks can be launched (CUDA driver API, cuLaunchKernelEx; PTX ISA 5.1, clusters)."""

from __future__ import annotations

MOST_BLOCKS = 8
"""Blocks of a cluster that every device with clusters takes."""


def why_no_cluster(cluster: int, blocks: int) -> str | None:
    """Why a grid of so many blocks along x is not launched in clusters of `cluster` of them; None if it is."""
    if not 1 <= cluster <= MOST_BLOCKS:
        return f"a cluster of {cluster} blocks: 1 to {MOST_BLOCKS} can be launched"
    if blocks % cluster:
        return f"a cluster of {cluster} blocks does not divide a grid of {blocks} along x"
    return None
