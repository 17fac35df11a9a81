"""One axis over all positions along several: where each of these stands, as quotients and remainders of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.dialects.diagram.condition import Linear, quotient, quotient_of, remainder, remainder_of


def places_along(axis: str, sizes: Sequence[int]) -> list[Linear]:
    """As a read says them, the outermost first. The size of that one is not asked."""
    return [_place(axis, sizes, index) for index in range(len(sizes))]


def _place(axis: str, sizes: Sequence[int], index: int) -> Linear:
    within = prod(sizes[index + 1 :])
    blocks = Linear({quotient(axis, within): 1})
    if index == 0:
        return blocks
    if within == 1:
        return remainder(axis, sizes[index])
    return blocks.plus(Linear({quotient(axis, within * sizes[index]): 1}), -sizes[index])


def positions_along(axis: str, sizes: Sequence[int]) -> list[Linear]:
    """As a condition says them."""
    found = list[Linear]()
    for index, size in enumerate(sizes):
        blocks = quotient_of(Linear({axis: 1}), prod(sizes[index + 1 :]))
        found.append(remainder_of(blocks, size) if index else blocks)
    return found


__all__ = ["places_along", "positions_along"]
