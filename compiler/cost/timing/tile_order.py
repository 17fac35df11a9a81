"""What the pieces of a grid share, and so in which order blocks that take one after another should take them."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from typing import Literal

import numpy as np

KEPT = 0.5
"""The part of the L2 cache that a section may fill: the rest holds what streams through. Not measured."""

UNEVEN = 1.25
"""Pieces are dealt by their length where the longest brings so many times the bytes of the shortest."""

TRIED, MOST_PIECES = 8, 1 << 13
"""Sections of a grid that are compared, the largest that fit, and pieces that are looked at for each."""

EXACT = 64
"""Of so many rows at most every number is tried for a section; of more, powers of two."""


@dataclass(frozen=True)
class Sharing:
    """Bytes that pieces read, with `rows` rows of pieces of which `slots` are worked on at a time."""

    rows: int
    slots: int
    row_bytes: int
    """Of one row, shared by its pieces."""
    column_bytes: int
    pieces: tuple[int, ...]
    """Of each piece of a row. The time of a piece grows with them: what it brings it multiplies."""


def longest(sharing: Sharing) -> Literal["first", "last"] | None:
    """Which pieces of a row take longest; None where all are about alike."""
    if max(sharing.pieces) < UNEVEN * max(min(sharing.pieces), 1):
        return None
    return "first" if sharing.pieces[0] > sharing.pieces[-1] else "last"


def best_section(sharing: Sharing, cache_bytes: int) -> int:
    """How many rows to take together, of those that fit the cache: as many as read the fewest different bytes at a
    time; where pieces are uneven, as few as leave all blocks about as much to do."""
    fitting = [rows for rows in _candidates(sharing) if rows * sharing.row_bytes <= KEPT * cache_bytes] or [1]
    if longest(sharing) is not None:
        return min(fitting, key=lambda rows: (round(imbalance(sharing, rows), 2), rows))
    return min(fitting, key=lambda rows: (different_bytes(sharing, rows), rows))


def section_of_grid(sharing: Sharing, cache_bytes: int) -> int:
    """How many rows to take together, of those that fit the cache, where pieces are uneven and a processor takes the
    next when it has ended one: as few as end about as early as any. Sections are about equal, for a small last one
    would end with its longest pieces."""
    equal = sorted({-(-sharing.rows // count) for count in range(1, min(sharing.rows, EXACT) + 1)}, reverse=True)
    fitting = [rows for rows in equal if rows * sharing.row_bytes <= KEPT * cache_bytes] or [1]
    return min(fitting[:TRIED], key=lambda rows: (round(end_of_grid(sharing, rows), 2), rows))


def end_of_grid(sharing: Sharing, section: int) -> float:
    """How many times the mean the last of the slots ends after, where each takes the next piece when it has ended one.
    Of many sections the last decide."""
    all_rows = -(-MOST_PIECES // len(sharing.pieces) // section) * section
    rows = sharing.rows if sharing.rows <= all_rows else all_rows + sharing.rows % section
    pieces = sharing.pieces[::-1] if longest(sharing) == "last" else sharing.pieces
    runs = [(piece, len(list(alike))) for piece, alike in groupby(pieces)]
    busy = _Busy(sharing.slots)
    for begin in range(0, rows, section):
        for piece, count in runs:
            busy.deal(piece, count * min(section, rows - begin))
    return busy.last() * sharing.slots / max(busy.total(), 1)


class _Busy:
    """Until when slots are busy. As pieces are of few lengths, many slots end together."""

    def __init__(self, slots: int) -> None:
        self._slots = {0: slots}
        self._ends = [0]
        """A heap of what `_slots` has."""

    def deal(self, piece: int, count: int) -> None:
        """Gives so many alike pieces, each to a slot that ends first."""
        while count:
            first = self._ends[0]
            given = min(self._slots[first], count)
            count -= given
            self._slots[first] -= given
            if not self._slots[first]:
                del self._slots[heappop(self._ends)]
            if first + piece not in self._slots:
                heappush(self._ends, first + piece)
            self._slots[first + piece] = self._slots.get(first + piece, 0) + given

    def last(self) -> int:
        return max(self._ends)

    def total(self) -> int:
        return sum(until * slots for until, slots in self._slots.items())


def different_bytes(sharing: Sharing, section: int) -> int:
    """What the pieces that are worked on at a time read, each byte once."""
    columns = -(-sharing.slots // section)
    return min(section, sharing.slots) * sharing.row_bytes + columns * sharing.column_bytes


def imbalance(sharing: Sharing, section: int) -> float:
    """How many times the mean the most is that falls to one of the slots, where pieces are dealt there and back
    (`passes/grids/serpentine.py`)."""
    sections, left = divmod(sharing.rows, section)
    whole = _dealt(sharing, section)
    loads = (sections + 1) // 2 * whole + sections // 2 * whole[::-1]
    last = _dealt(sharing, left)
    loads += last[::-1] if sections % 2 else last
    return float(loads.max() / loads.mean())


def _dealt(sharing: Sharing, rows: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What falls to each slot of one section of so many rows."""
    pieces = np.array(sharing.pieces, np.float64)
    sequence = np.repeat(pieces[::-1] if longest(sharing) == "last" else pieces, rows)
    rounds = -(-len(sequence) // sharing.slots)
    table = np.zeros(rounds * sharing.slots)
    table[: len(sequence)] = sequence
    table = table.reshape(rounds, sharing.slots)
    table[1::2] = table[1::2, ::-1]
    return table.sum(axis=0)


def _candidates(sharing: Sharing) -> list[int]:
    """Numbers of rows that a section may have."""
    powers = [1 << power for power in range(max(sharing.rows, 1).bit_length())]
    return powers if longest(sharing) is None else [*range(1, min(sharing.rows, EXACT) + 1), *powers]
