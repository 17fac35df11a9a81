"""Places along an axis: the elements of a lane that differ along one axis alone, in the order of their coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod

from treadle.compiler.layouts.digits import Modes, span
from treadle.dialects.cuda.layout import LayoutAttr, Mode

FEWEST_BITS = 8
"""Places from which on bits tell which of them lie before an end: an instruction moves seven bits to predicates (R2P),
where comparisons take one for each place and each end. What is before them, some ten instructions, is for all rows that
have the same ends."""


def places_along(layout: LayoutAttr, axis: str) -> Modes | None:
    """The digits of a lane's registers along an axis, the slowest first; None if digits carry, so that a register with
    a larger number may have a smaller coordinate."""
    modes = sorted((mode for mode in layout.register if mode.axis == axis), key=lambda mode: -mode.stride)
    if any(slow.stride < span(fast) for slow, fast in pairwise(modes)):
        return None
    return tuple(modes)


def has_bits(layout: LayoutAttr, axis: str) -> bool:
    """Whether a lane has as many elements along an axis as bits are worth it for."""
    return count(places_along(layout, axis) or ()) >= FEWEST_BITS


def count(places: Iterable[Mode]) -> int:
    return prod(mode.size for mode in places)
