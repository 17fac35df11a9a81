"""What the pieces of a grid share, and so in which order blocks that take one after another should take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KEPT = 0.5
"""The part of the L2 cache that a section may fill: the rest holds what streams through. Not measured."""

UNEVEN = 1.25
"""Pieces are taken longest first where the last of a row brings so many times the bytes of the first."""


@dataclass(frozen=True)
class Sharing:
    """Bytes that pieces read, with `rows` rows of pieces of which `slots` are worked on at a time."""

    rows: int
    slots: int
    row_bytes: int
    """Of one row, shared by its pieces."""
    column_bytes: int
    first_bytes: int
    """Of the first piece of a row, and of the last."""
    last_bytes: int


def is_uneven(sharing: Sharing) -> bool:
    return sharing.last_bytes >= UNEVEN * max(sharing.first_bytes, 1)


def best_section(sharing: Sharing, cache_bytes: int) -> int:
    """How many rows to take together: of those that fit the cache, as many as read the fewest different bytes at a
    time; where pieces are uneven, as many as fit, so that the long ones of all come first."""
    fitting = [rows for rows in _powers(sharing.rows) if rows * sharing.row_bytes <= KEPT * cache_bytes] or [1]
    if is_uneven(sharing):
        return fitting[-1]
    return min(fitting, key=lambda rows: (different_bytes(sharing, rows), rows))


def different_bytes(sharing: Sharing, section: int) -> int:
    """What the pieces that are worked on at a time read, each byte once."""
    columns = -(-sharing.slots // section)
    return min(section, sharing.slots) * sharing.row_bytes + columns * sharing.column_bytes


def _powers(most: int) -> Iterable[int]:
    rows = 1
    while rows <= max(most, 1):
        yield rows
        rows *= 2
