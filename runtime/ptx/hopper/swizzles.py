"""The swizzles of shared memory: which 16 bytes of a pattern of 8 rows lie where."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPANS = (0, 32, 64, 128)
"""Bytes that a swizzle spans; 0 is none."""


def swizzled(addresses: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """Where the bytes at these addresses of shared memory lie: the number of a unit of 16 bytes within a line of 128
    is exclusive-ored with as many bits of the line's number as the span has units (PTX ISA 5.5.7, swizzling modes: the
    pattern follows the address, and repeats every 8 spans)."""
    if span not in SPANS:
        raise ValueError(f"a swizzle spans 32, 64 or 128 bytes or is 0, not {span}")
    if span == 0:
        return addresses
    return addresses ^ ((addresses >> 7 & (span // 16 - 1)) << 4)
