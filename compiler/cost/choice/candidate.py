"""The sizes that a kernel may have, one choice of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LANE_WARPS = (1, 2, 4, 8)
"""Of a block without products."""


@dataclass(frozen=True)
class Candidate:
    tiles: Mapping[str, int]
    warps: Mapping[str, int]
    vector: int = 1
    """How many values a lane can move at once."""
    rereads: bool = False
    """Whether left operands that all steps of a stream share stay in shared memory."""


def covering(size: int) -> int:
    """The least power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()
