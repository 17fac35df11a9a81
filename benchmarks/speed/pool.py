"""Random numbers for large arrays, in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTH = 2**20 + 7
"""Of the pool: a prime, so that no two rows of an array begin at the same of its numbers."""


class Pool(np.random.Generator):
    """Standard normal numbers out of a pool that is drawn once, repeated as often as an array is larger; each array
    begins elsewhere in it. Random enough for what a kernel takes and for seeing what is wrong."""

    def __init__(self, seed: int):
        super().__init__(np.random.PCG64(seed))
        self._pool = super().standard_normal(LENGTH, np.float32)

    def standard_normal(self, size: Any = None, dtype: Any = np.float32, out: Any = None) -> Any:
        return np.resize(np.roll(self._pool, self.integers(LENGTH)), size)
