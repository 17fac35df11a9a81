"""Blocks that run now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.types import Lanes


@dataclass
class Block:
    """A block of the batch."""

    index: tuple[int, int, int]
    """In the grid."""
    slot: int
    """In the batch; the blocks of a cluster are neighbours."""
    rank: int
    """In its cluster."""
    lanes: Lanes
    window: int
    """The shared address at which its window begins (`SharedMemory`)."""
    shared: NDArray[np.uint8]
    """Its shared memory: the byte at address `window + i` is `shared[i]`."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a topic keeps for a block, by the topic's name."""
