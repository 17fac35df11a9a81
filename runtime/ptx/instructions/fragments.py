"""Which element of a matrix each thread of a warp holds (PTX ISA, section "Warp Level Matrix Multiply-Accumulate
Instructions", "Matrix Fragments for mma...").

A place is an index into the matrix, rows first; `places[lane, i]` is that of element i of a lane's registers, in their
order, the lowest bits of a register first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.machine.threads import WARP

Places = NDArray[np.intp]

_LANE = np.arange(WARP)[:, None]
_GROUP, _IN_GROUP = _LANE // 4, _LANE % 4


def places_a(k: int, packed: int) -> Places:
    """A of m16n8k`k`, 16 x k, with `packed` elements in a register of 32 bits (m16n8k8 of tf32, m16n8k16 of 16 bits,
    m16n8k32 of 8): registers 0 and 2 are of row `lane // 4`, 1 and 3 eight rows below; 2 and 3 of the second half of
    k. (m16n8k8 of 16 bits has no second half.)"""
    i = np.arange(k // 2)[None, :]
    register, inside = i // packed, i % packed
    row = _GROUP + 8 * (register % 2)
    column = packed * _IN_GROUP + inside + k // 2 * (register // 2)
    return row * k + column


def places_b(k: int, packed: int) -> Places:
    """B, k x 8: register 1 is of the second half of k."""
    i = np.arange(k // 4)[None, :]
    register, inside = i // packed, i % packed
    row = packed * _IN_GROUP + inside + k // 2 * register
    return row * 8 + _GROUP


def places_c() -> Places:
    """C and D, 16 x 8 of 32 bits: two neighbours, and two eight rows below."""
    i = np.arange(4)[None, :]
    return (_GROUP + 8 * (i // 2)) * 8 + 2 * _IN_GROUP + i % 2
