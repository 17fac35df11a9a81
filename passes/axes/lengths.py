"""How long one axis in the place of several may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from treadle.dialects.diagram.array import DYNAMIC, LARGEST_SIZE


def stated_length(axis: str, sizes: Mapping[str, int], stated: Mapping[str, int]) -> int:
    """That of its type, or else what the program states (DYNAMIC where it states none)."""
    return sizes[axis] if sizes[axis] != DYNAMIC else stated.get(axis, DYNAMIC)


def too_many(lengths: Iterable[int]) -> str | None:
    """Why axes of these lengths are not one, if they have more elements together than an axis may. Those whose length
    nothing states (DYNAMIC) count as one element, those of none, too."""
    elements = prod(max(1, length) for length in lengths)
    if elements <= LARGEST_SIZE:
        return None
    return f"they have {elements} elements together: an axis has at most {LARGEST_SIZE}"


__all__ = ["stated_length", "too_many"]
