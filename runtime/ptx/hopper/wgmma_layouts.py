"""Which elements of a product's matrices each thread of a warpgroup holds (PTX ISA 9.7.15.5.1.1)."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

WARPGROUP = 128
"""Threads, four warps whose first is a multiple of 4."""

ROWS = 64
"""Of the accumulators of a warpgroup; each warp has the next 16."""

Places = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns."""


@cache
def accumulators(columns: int) -> Places:
    """Of each f32 register of each thread, (threads, columns / 2): pairs of neighbours in a row, first those of row
    lane / 4, then those 8 rows below, from each 8 columns."""
    thread, register = _grid(columns // 2)
    row = _first_row(thread) + register // 2 % 2 * 8
    return row, register // 4 * 8 + thread % 4 * 2 + register % 2


@cache
def left_operand(element_bytes: int) -> Places:
    """Of each element of the four registers of A of each thread, (threads, 16 / element_bytes), in the order of their
    bits: a register holds neighbours along k; the next one those 8 rows below, the third and fourth the other half of
    k."""
    each = 4 // element_bytes
    thread, element = _grid(4 * each)
    register = element // each
    row = _first_row(thread) + register % 2 * 8
    return row, register // 2 * 4 * each + thread % 4 * each + element % each


def _grid(registers: int) -> Places:
    return np.arange(WARPGROUP)[:, None], np.arange(registers)[None, :]


def _first_row(thread: NDArray[np.int64]) -> NDArray[np.int64]:
    return thread // 32 * 16 + thread % 32 // 4
