"""How long one axis in the place of several may be."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from treadle.dialects.diagram.array import LARGEST_SIZE


def too_many(lengths: Iterable[int]) -> str | None:
    """Why axes of these lengths are not one, if they have more elements together than an axis may. Those whose length
    nothing states (DYNAMIC) count as one element, those of none, too."""
    elements = prod(max(1, length) for length in lengths)
    if elements <= LARGEST_SIZE:
        return None
    return f"they have {elements} elements together: an axis has at most {LARGEST_SIZE}"


__all__ = ["too_many"]
