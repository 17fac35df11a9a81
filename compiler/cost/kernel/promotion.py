"""Sums that warpgroups promote: what of a kernel's products is, and what that takes of registers and instructions."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.amounts import Amount, ceil_div
from treadle.dialects.cuda.sums import MOST_COLUMNS

MOST_REGISTERS = MOST_COLUMNS // 2
"""Of a thread for a sum on its way: 64 rows by so many columns, over 128 threads."""

FENCES = 5
"""Instructions of a part beside its products and additions: a fence, what closes and awaits its group, the start of its
columns."""


def promoted_parts(registers: Amount) -> Amount:
    """In how many parts sums are promoted, of which a thread has so many."""
    return ceil_div(registers, MOST_REGISTERS)


def issued_by_promotion(registers: Amount, depth: Amount, every: int) -> Iterator[tuple[str, Amount]]:
    """One execution of a product whose sums take so many registers of a thread."""
    times = ceil_div(depth, every)
    yield "promote", registers * times
    yield "turn warpgroup", FENCES * promoted_parts(registers) * times
