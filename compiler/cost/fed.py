"""How much of its axis a stream with limits is fed (`hierarchy.stream ... from .. to ..`), over all groups.

The limits follow from where the pieces of other axes begin and end, so each group is asked: exact, but for limits that
only data gives, which count as no limit. What is said is then the most that can be moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil
from typing import TypeAlias

from treadle.compiler.amounts import Amount, ceil_div
from treadle.compiler.cost.plan import Pieces

Places: TypeAlias = Mapping[str, tuple[int, int]]
"""Where the piece of each axis begins and ends."""


def extent_of(axis: str) -> str:
    """The place that stands for the whole of an axis, whatever piece of it a group holds."""
    return f"whole {axis}"


Limit: TypeAlias = Callable[[Places], int | None]
"""An end of a range of positions; None if only data gives it."""


@dataclass(frozen=True)
class Share:
    """What the stream is fed in groups that hold pieces of these lengths, in positions."""

    lengths: tuple[tuple[str, int], ...]
    fed: int
    border: int
    """Of these, in pieces that are tested."""
    steps: int


@dataclass(frozen=True)
class Fed:
    """A stream with limits."""

    stream: Pieces
    around: tuple[Pieces, ...]
    """The other axes that the limits depend on."""
    some: tuple[Limit, Limit]
    every: tuple[Limit, Limit] | None
    """The range within which pieces are not tested; None if all are."""
    by_data: bool
    """Whether an input limits it too, so that less may be fed than is said here."""
    extents: frozenset[str] = frozenset()
    """The axes on whose sizes the limits depend."""

    def shares(self, sizes: Mapping[str, int]) -> tuple[Share, ...]:
        axes = {self.stream.axis, *(pieces.axis for pieces in self.around), *self.extents}
        return _shares(self, tuple((axis, sizes[axis]) for axis in sorted(axes)))

    def part(self, sizes: Mapping[str, int], asked: int) -> float:
        """About how much of its pieces the stream is fed: so many of the groups along each axis are asked."""
        whole = dict(sizes)
        cut = [_pieces(pieces, whole)[:: max(1, pieces.count(sizes) // asked)] for pieces in self.around]
        axes = [pieces.axis for pieces in self.around]
        size = whole[self.stream.axis]
        known = _extents(self, whole)
        steps = [_share(self, size, dict(zip(axes, places, strict=True)), known).steps for places in product(*cut)]
        return sum(steps) / max(len(steps), 1) / max(self.stream.count(sizes), 1)

    def positions(self, sizes: Mapping[str, int], axes: tuple[str, ...], part: str) -> int:
        """The elements that an array with these axes has in the pieces of a part of the stream, added up over the
        groups that the limits tell apart: `all`, `whole` or `border`."""
        total = 0
        for share in self.shares(sizes):
            fed = {"all": share.fed, "whole": share.fed - share.border, "border": share.border}[part]
            for axis, length in share.lengths:
                fed *= length if axis in axes else 1
            total += fed
        return total

    def __str__(self) -> str:
        return f"visited({', '.join(str(pieces) for pieces in (self.stream, *self.around))})"


def _pieces(pieces: Pieces, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """Where each of them begins and ends."""
    end = sizes[pieces.axis]
    return [(i, min(i + pieces.size, end)) for i in range(0, end, pieces.size)]


@lru_cache(maxsize=256)
def _shares(fed: Fed, sizes: tuple[tuple[str, int], ...]) -> tuple[Share, ...]:
    whole = dict(sizes)
    cut = [_pieces(pieces, whole) for pieces in fed.around]
    axes = [pieces.axis for pieces in fed.around]
    size, known = whole[fed.stream.axis], _extents(fed, whole)
    return tuple(_share(fed, size, dict(zip(axes, places, strict=True)), known) for places in product(*cut))


def _extents(fed: Fed, sizes: Mapping[str, int]) -> Places:
    return {extent_of(axis): (0, sizes[axis]) for axis in fed.extents}


def _share(fed: Fed, size: int, places: Places, extents: Places) -> Share:
    step = fed.stream.size
    everywhere = {**places, **extents, fed.stream.axis: (0, size)}
    low, high = (limit(everywhere) for limit in fed.some)
    first = max(low or 0, 0) // step * step
    end = size if high is None else min(high, size)
    steps = max(-(-(end - first) // step), 0)
    positions = min(first + steps * step, size) - first if steps else 0
    border = positions - _tested_nowhere(fed, size, everywhere, first, first + positions)
    lengths = tuple((axis, stop - start) for axis, (start, stop) in places.items())
    return Share(lengths, positions, border, steps)


def _tested_nowhere(fed: Fed, size: int, places: Places, first: int, end: int) -> int:
    """The positions, of those from `first` to `end`, in pieces in which the conditions hold."""
    if fed.every is None:
        return 0
    step = fed.stream.size
    low, high = (limit(places) for limit in fed.every)
    if low is None or high is None:
        return 0
    start = max(-(-max(low, 0) // step) * step, first)
    stop = size if high >= size else max(high, 0) // step * step
    return max(min(stop, end) - start, 0)


@dataclass(frozen=True)
class FedPieces(Pieces):
    """The pieces that a stream with limits is fed; a group has as many as the groups have on average."""

    fed: Fed

    def count(self, sizes: Mapping[str, int]) -> int:
        return ceil(self.mean(sizes))

    def mean(self, sizes: Mapping[str, int]) -> float:
        shares = self.fed.shares(sizes)
        return sum(share.steps for share in shares) / max(len(shares), 1)


@dataclass(frozen=True)
class AboutFed:
    """A stream of which conditions leave about a part, for many candidates at once."""

    stream: Pieces
    part: Amount
    around: tuple[Pieces, ...] = ()
    by_data: bool = False

    def positions(self, sizes: Mapping[str, int], axes: tuple[str, ...], part: str) -> Amount:
        return sizes[self.stream.axis] * self.part


@dataclass(frozen=True)
class AboutPieces(Pieces):
    """Their pieces: a group has as many as the groups have on average."""

    fed: AboutFed

    def count(self, sizes: Mapping[str, int]) -> Amount:
        return ceil_div(self.mean(sizes), 1)

    def mean(self, sizes: Mapping[str, int]) -> Amount:
        return super().count(sizes) * self.fed.part
