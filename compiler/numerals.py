"""Whole numbers as a user writes them."""

from __future__ import annotations

MOST_DIGITS = 20
"""More than any size, seed or limit has; Python refuses to read some thousands of them."""


def whole_number(text: str) -> int | None:
    """The number that plain digits write; None for anything else, and for more digits than `MOST_DIGITS`."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None
