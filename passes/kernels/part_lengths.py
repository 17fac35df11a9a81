"""How long the parts of an axis are that is cut so that more groups stream it: lengths are tried, a clock tells.

More parts fill more of the machine, up to as many as it holds, and each costs a start and a state that is saved and
read. So the time falls with the number of parts, and then rises: the search begins with as many as there are
processors to fill, and goes to fewer and to more as long as that is faster.

The length of a part is decided once, and a launch may bring longer axes. So a length is judged at the sizes that the
program states and at larger ones of what is known only at launch: there parts may lose no more than they must save at
the stated ones. What is saved of each part grows with the axes of a state, and soon groups fill the machine uncut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd, inf
from typing import TypeAlias

WHOLE_PIECES = 64
"""Positions of a piece that a group is fed, at the least: no part is shorter, and such parts of an axis whose size is
known only at launch are whole numbers of them."""

EVEN = 32
"""Elements of a sector, of the narrowest format: parts of whole sectors begin where sectors do."""

LONGER = 8
"""Times its stated size the axis has where parts are judged again, if only the launch tells: it has more parts then."""

MORE = 2
"""Times its stated size each other axis has there that only the launch tells: it has more groups."""

WORTH = 0.9
"""Of the time of one kernel, what two may take: the model is not so exact that less would be a gain."""

NEAR = 1.02
"""Of two times this near to each other none is the longer one: then fewer parts save fewer states."""

CLOSE = 1.05
"""Of lengths this close to the fastest at the stated sizes, the one that is fastest at larger ones is taken."""


@dataclass(frozen=True)
class Times:
    """In microseconds, at the sizes that a program states, and at larger ones that a launch may bring: twice the same
    where all sizes are known."""

    stated: float
    longer: float


Clock: TypeAlias = Callable[[int], Times]
"""What parts of a length take; infinite where they cannot be."""


@dataclass(frozen=True)
class Lengths:
    """The lengths that the parts of an axis may have."""

    size: int
    """Of the axis, at the likely sizes."""
    granule: int
    """What divides all of them."""

    @property
    def most_parts(self) -> int:
        return self.size // WHOLE_PIECES

    @property
    def are_any(self) -> bool:
        """Asked first, for no count of parts has any then, and there may be millions of counts."""
        return self.size // 2 // self.granule * self.granule >= WHOLE_PIECES

    def of(self, most: int) -> int | None:
        """For at most so many parts: all of a length if that takes not much fewer, else that of which the longest part
        is shortest. None where there would be no two, or they would be too short."""
        if not 2 <= most <= self.most_parts:
            return None
        even = (self.size // count for count in range(most, most * 3 // 4, -1) if self.size % count == 0)
        return next((length for length in even if length % self.granule == 0), None) or self._least_uneven(most)

    def _least_uneven(self, most: int) -> int | None:
        """Of so many parts, longer ones leave less to the last. Where parts that leave nothing are longer than the
        longest part of another length, fewer parts are no better."""
        best: int | None = None
        least = max(WHOLE_PIECES, self.size // (most + 1) + 1)
        for count in range(self.size // least, 1, -1):
            length = self.size // count // self.granule * self.granule
            if best is not None and length > self._longest(best):
                break
            if length >= least and (best is None or self._longest(length) <= self._longest(best)):
                best = length
        return best

    def _longest(self, length: int) -> int:
        """The last part has what is left over."""
        return length + self.size % length


def lengths_of(size: int, is_known: bool, has_neighbours: bool) -> Lengths:
    """Of an axis with this likely size: where its elements are neighbours in memory, the parts begin at no odder
    addresses than the axis does."""
    if not is_known:
        return Lengths(size, WHOLE_PIECES)
    return Lengths(size, gcd(size, EVEN) if has_neighbours else 1)


def tried(lengths: Lengths, parts: int, clock: Clock, alone: Times) -> dict[int, Times]:
    """What parts of some lengths take, in the order tried, from about so many `parts` on. Where these are slower than
    one kernel, others are not tried: what could be saved is little more than a launch."""
    counts = range(max(2, min(parts, lengths.most_parts)), lengths.most_parts + 1)
    if not lengths.are_any:
        return {}
    first = next((length for count in counts if (length := lengths.of(count)) is not None), None)
    if first is None:
        return {}
    found = {first: clock(first)}
    if found[first].stated >= alone.stated:
        return found
    if not _walk(lengths, first, lambda count: 2 * count, clock, found):
        _walk(lengths, first, lambda count: count // 2, clock, found)
    return found


def _walk(lengths: Lengths, length: int, next: Callable[[int], int], clock: Clock, found: dict[int, Times]) -> bool:
    """Try one number of parts after another while that is faster; whether any was."""
    begun = length
    while True:
        other = lengths.of(min(next(lengths.size // length), lengths.most_parts))
        if other is None or other in found:
            break
        found[other] = clock(other)
        if found[other].stated >= found[length].stated:
            break
        length = other
    return length != begun


def fastest(found: Mapping[int, Times], alone: Times) -> int | None:
    """The length that is worth two kernels, if any is, and takes the least time."""
    worthy = {
        length: times
        for length, times in found.items()
        if times.stated <= WORTH * alone.stated and WORTH * times.longer <= alone.longer
    }
    least = min((times.stated for times in worthy.values()), default=inf)
    close = {length: times.longer for length, times in worthy.items() if times.stated <= CLOSE * least}
    return max((length for length, time in close.items() if time <= NEAR * min(close.values())), default=None)
