"""How much of its axis a stream with limits is fed (`hierarchy.stream ... from .. to ..`), over all groups.

The limits follow from where the pieces of other axes begin and end, so each group is asked, all of them at once: exact,
but for limits that only data gives, which count as no limit. What is said is then the most that can be moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod
from typing import TypeAlias

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.cost.kernel.plan import Pieces

Places: TypeAlias = Mapping[str, tuple[Amount, Amount]]
"""Where the piece of each axis begins and ends, of one group or of many."""


def extent_of(axis: str) -> str:
    """The place that stands for the whole of an axis, whatever piece of it a group holds."""
    return f"whole {axis}"


Limit: TypeAlias = Callable[[Places], Amount]
"""An end of a range of positions, in each group; None if only data gives it."""


MOST_ASKED = 1 << 17
"""Groups that are asked, of all axes together: of more, as many at most, evenly spread."""


@dataclass(frozen=True)
class Shares:
    """What the stream is fed, in positions: arrays with a dimension for each axis around it, or what all groups along
    one have in common."""

    groups: tuple[int, ...]
    """How many are asked along each axis."""
    lengths: Mapping[str, Amount]
    """Of the pieces that a group holds."""
    fed: Amount
    border: Amount
    """Of these, in pieces that are tested."""
    steps: Amount
    loops: Amount
    """Of pieces that are tested, and of pieces that are not: how many of them have a turn."""
    of: int = 0
    """How many groups there are, where those that are asked stand for others, too."""
    _positions: dict[tuple[tuple[str, ...], str], int] = field(
        default_factory=dict[tuple[tuple[str, ...], str], int], compare=False, repr=False
    )

    @property
    def count(self) -> int:
        return self.of or prod(self.groups)

    def in_all(self, amount: Amount) -> int:
        """Added up over the groups."""
        asked = int(np.broadcast_to(amount, self.groups).sum())
        return asked * self.of // prod(self.groups) if self.of else asked

    @cached_property
    def mean_steps(self) -> float:
        return self.in_all(self.steps) / max(self.count, 1)

    @cached_property
    def mean_loops(self) -> float:
        """That follow another."""
        return self.in_all(most(self.loops - 1, 0)) / max(self.count, 1)

    def positions(self, axes: tuple[str, ...], part: str) -> int:
        """As `Fed.positions`."""
        told = tuple(axis for axis in self.lengths if axis in axes)
        if (found := self._positions.get((told, part))) is None:
            fed = {"all": self.fed, "whole": self.fed - self.border, "border": self.border}[part]
            found = self.in_all(prod((self.lengths[axis] for axis in told), start=fed))
            self._positions[told, part] = found
        return found


@dataclass(frozen=True)
class Routed:
    """Rows that lie by what they are multiplied with, as after sorting tokens by expert: data say between which rows
    each block of positions of the stream is there. The model takes it that no two such ranges overlap, and that they
    follow each other. So each group of rows is fed one block, and one more wherever a range ends within a group."""

    rows: str
    block: int
    """Positions of the stream that have one range."""

    @property
    def axis(self) -> str:
        """The axis of groups on which it depends."""
        return self.rows

    def fed(self, rows: int, groups: int, blocks: int, begins: Amount) -> Amount:
        """How many of the blocks groups are fed that begin at such rows, if there are so many groups of so many."""
        more, rest = divmod(blocks - 1, groups)
        return 1 + more + (begins // rows < rest)


@dataclass(frozen=True)
class Parted:
    """Positions of a stream that lie by what sums are made of them, as the rows of each expert after sorting: data say
    between which positions each group is fed. The model takes it that no two such ranges overlap, that they are equally
    long, and begin anywhere."""

    axis: str
    """The axis that has a range at each position."""

    def fed(self, size: int, parts: int, step: int) -> int:
        """How many pieces groups are fed, of so many positions in all."""
        return int(least(ceil_div(ceil_div(size, parts) - 1, step) + 1, ceil_div(size, step)))


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
    routed: Routed | Parted | None = None
    """Rows, or positions of the stream, of which each is in one range, by data."""
    _shares: dict[tuple[int, ...], Shares] = field(
        default_factory=dict[tuple[int, ...], Shares], compare=False, repr=False
    )

    def shares(self, sizes: Mapping[str, int]) -> Shares:
        told = tuple(sizes[axis] for axis in self._axes)
        if (found := self._shares.get(told)) is None:
            found = self._shares[told] = _shares(self, dict(zip(self._axes, told, strict=True)))
        return found

    @cached_property
    def _axes(self) -> list[str]:
        return sorted({self.stream.axis, *(pieces.axis for pieces in self.around), *self.extents})

    def part(self, sizes: Mapping[str, int], asked: int) -> tuple[float, float]:
        """About how much of its pieces the stream is fed, on average and where it is fed most: so many of the groups
        along each axis are asked."""
        shares = _asked(self, sizes, [max(1, pieces.count(sizes) // asked) for pieces in self.around])
        count = max(self.stream.count(sizes), 1)
        return shares.mean_steps / count, float(np.max(shares.steps, initial=0)) / count

    def positions(self, sizes: Mapping[str, int], axes: tuple[str, ...], part: str) -> int:
        """The elements that an array with these axes has in the pieces of a part of the stream, added up over the
        groups that the limits tell apart: `all`, `whole` or `border`."""
        return self.shares(sizes).positions(axes, part)

    def __str__(self) -> str:
        return f"visited({', '.join(str(pieces) for pieces in (self.stream, *self.around))})"


def _shares(fed: Fed, sizes: Mapping[str, int]) -> Shares:
    counts = [pieces.count(sizes) for pieces in fed.around]
    if prod(counts) <= MOST_ASKED:
        return _asked(fed, sizes, [1] * len(counts))
    return replace(_asked(fed, sizes, _spread(counts)), of=prod(counts))


def _spread(counts: Sequence[int]) -> list[int]:
    """Every which group along each axis is asked, where there are too many; of most groups the fewest."""
    every = [1] * len(counts)
    while prod(asked := [ceil_div(count, step) for count, step in zip(counts, every, strict=True)]) > MOST_ASKED:
        every[asked.index(max(asked))] *= 2
    return every


def _asked(fed: Fed, sizes: Mapping[str, int], every: Sequence[int]) -> Shares:
    """What every so-manieth group along each axis around is fed."""
    places: dict[str, tuple[Amount, Amount]] = {extent_of(axis): (0, sizes[axis]) for axis in fed.extents}
    groups: list[int] = []
    for number, (pieces, step) in enumerate(zip(fed.around, every, strict=True)):
        end = sizes[pieces.axis]
        starts = np.arange(0, end, pieces.size * step, dtype=np.int64)
        along = [-1 if other == number else 1 for other in range(len(fed.around))]
        begin = starts.reshape(along)
        places[pieces.axis] = (begin, least(begin + pieces.size, end))
        groups.append(len(starts))
    lengths = {pieces.axis: places[pieces.axis][1] - places[pieces.axis][0] for pieces in fed.around}
    size, step = sizes[fed.stream.axis], fed.stream.size
    places[fed.stream.axis] = (0, size)
    low, high = (limit(places) for limit in fed.some)
    if fed.routed is not None and size > 0:
        nothing = Shares(tuple(groups), lengths, 0, 0, 0, 0)
        if isinstance(fed.routed, Parted):
            return _parted(fed, fed.routed, sizes, nothing)
        return _routed(fed, fed.routed, sizes, nothing, places)
    first = 0 if low is None else most(low, 0) // step * step
    end = size if high is None else least(high, size)
    steps = most(ceil_div(end - first, step), 0)
    positions = choice(steps > 0, least(first + steps * step, size) - first, 0)
    stop = first + positions
    begin, end = _tested_nowhere(fed, size, places, first, stop)
    has_whole = end > begin
    apart = (begin > first) + 1 + (end < stop)
    loops = choice(has_whole, apart, 1) * (positions > 0)
    return Shares(tuple(groups), lengths, positions, positions - most(end - begin, 0), steps, loops)


def _routed(fed: Fed, routed: Routed, sizes: Mapping[str, int], asked: Shares, places: Places) -> Shares:
    """Where each row is in one range: of the groups that two or more ranges meet, all pieces are tested."""
    size, step = sizes[fed.stream.axis], fed.stream.size
    (rows,) = (pieces for pieces in fed.around if pieces.axis == routed.rows)
    blocks = ceil_div(size, routed.block)
    if sizes[routed.rows] == 0:
        return asked
    begins = np.asarray(places[routed.rows][0])
    count = routed.fed(rows.size, ceil_div(sizes[routed.rows], rows.size), blocks, begins)
    positions = least(count * routed.block, size)
    border = choice(count > 1, positions, 0) if fed.every is not None else positions
    return replace(asked, fed=positions, border=border, steps=ceil_div(positions, step), loops=1)


def _parted(fed: Fed, parted: Parted, sizes: Mapping[str, int], asked: Shares) -> Shares:
    """Where each position is in one range: a group is fed the pieces of its own."""
    size, step = sizes[fed.stream.axis], fed.stream.size
    if sizes[parted.axis] == 0:
        return asked
    steps = parted.fed(size, sizes[parted.axis], step)
    positions = min(steps * step, size)
    return replace(asked, fed=positions, border=positions, steps=steps, loops=1)


def _tested_nowhere(fed: Fed, size: int, places: Places, first: Amount, end: Amount) -> tuple[Amount, Amount]:
    """Of the positions from `first` to `end`: where the pieces begin and end in which the conditions hold."""
    nowhere = first, first
    if fed.every is None:
        return nowhere
    step = fed.stream.size
    low, high = (limit(places) for limit in fed.every)
    if low is None or high is None:
        return nowhere
    start = most(ceil_div(most(low, 0), step) * step, first)
    stop = choice(high >= size, size, most(high, 0) // step * step)
    return start, least(stop, end)


@dataclass(frozen=True)
class FedPieces(Pieces):
    """The pieces that a stream with limits is fed; a group has as many as the groups have on average."""

    fed: Fed

    def count(self, sizes: Mapping[str, int]) -> int:
        return ceil(self.mean(sizes))

    def mean(self, sizes: Mapping[str, int]) -> float:
        return self.fed.shares(sizes).mean_steps

    def mean_loops(self, sizes: Mapping[str, int]) -> float:
        return self.fed.shares(sizes).mean_loops


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
