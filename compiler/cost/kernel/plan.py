"""What one kernel moves, computes and holds: the common ground of the decorated and the explicit form.

Everything the cost model says is read off a `Plan`. It is made by `sketch.py` from a decorated kernel and
chosen sizes, and by `explicit.py` from expanded streams, where it is a plain walk and so right by
construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Protocol, TypeAlias

from treadle.compiler.amounts import Amount, ceil_div, choice, is_many, least, most
from treadle.compiler.cost.kernel.blocks import Source, Step, Window
from treadle.compiler.cost.kernel.neighbours import sector_share


@dataclass(frozen=True)
class Pieces:
    """An axis cut into pieces of one size: as many as are needed to cover it, the last perhaps smaller."""

    axis: str
    size: Amount

    def count(self, sizes: Mapping[str, int]) -> Amount:
        return -(-sizes[self.axis] // self.size)

    def mean(self, sizes: Mapping[str, int]) -> Amount:
        """How many a group has, on average: all, but of a stream that conditions limit."""
        return self.count(sizes)

    def mean_loops(self, sizes: Mapping[str, int]) -> Amount:
        """How many loops of a group follow another, on average: none, but of a stream that conditions limit."""
        return 0

    def __str__(self) -> str:
        return self.axis if self.size == 1 else f"ceil({self.axis}/{self.size})"


class Selected(Protocol):
    """A stream that is fed part of its axis (`fed.Fed`)."""

    @property
    def stream(self) -> Pieces: ...

    @property
    def around(self) -> tuple[Pieces, ...]: ...

    @property
    def by_data(self) -> bool: ...

    def positions(self, sizes: Mapping[str, int], axes: tuple[str, ...], part: str) -> Amount: ...


Terms: TypeAlias = tuple[tuple[str, int], ...]
"""Axes with factors, of a sum of positions."""


@dataclass(frozen=True)
class Transfer:
    """An array crossing between device memory and a nearer level, in every group and step around it.

    The pieces of an axis that the array has add up to the axis, edges included; for every other axis that
    is cut around it, the whole crossing happens again. So the count is exact at every size."""

    array: str
    level: str
    """The near end."""
    saves: bool
    axes: tuple[str, ...]
    width: int
    """Bytes of a value."""
    again: tuple[Pieces, ...]
    """What is cut around it and not an axis of the array."""
    fed: Selected | None = None
    """The stream around it, if that is fed part of its axis only."""
    part: str = "all"
    """The pieces of that stream in which it crosses: `all`, `whole` (not tested) or `border`."""
    tile: tuple[Amount, ...] = ()
    """The shape of its tile in shared memory; empty where it has none."""
    in_boxes: bool = False
    """Whether tensor copies could bring that tile by whole boxes, whose rows lie in their order (`boxes.py`)."""
    is_limited: bool = False
    """Whether conditions may leave out part of an axis that groups hold whole (`passes/streams/held.py`), or entries
    or positions may lie outside of an array: then no more is read than is said, and by how much less depends on data,
    on sizes and on the width of a copy."""
    blocks: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """The axes along which so many neighbours are one element of the array, which is read at quotients."""
    cells: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """The axes along which one value is loaded for so many neighbours, where a group asks which pieces there are."""
    windows: tuple[Window, ...] = ()
    """The axes that step along one axis of the array together, so that windows share elements."""
    near: tuple[tuple[str, Amount], ...] = ()
    """How much of each axis a group takes at a time, the one whose neighbours lie side by side in memory first; empty
    where that is not known."""
    added: int = 0
    """Over how many elements of another array what is saved is added up; 0 for what is not. Where additions fall
    depends on data: all that lie in the array are counted."""
    among: int = 0
    """Of how many elements of an array data choose what is loaded: one may be chosen many times; 0 where they choose
    nothing, and where that is not known."""
    source: Source | None = field(default=None, compare=False)
    """Where what is loaded lies, if that is known."""
    taken: Mapping[str, Amount] = field(default_factory=dict[str, Amount], compare=False)
    """How much of each of its axes a group takes at a time, where its source is known."""

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors of the number of values, as text."""
        if self.fed is None:
            own = (str(Pieces(axis, self.cells.get(axis, 1))) for axis in self.axes)
            return (*own, *map(str, self.again))
        axes = {self.fed.stream.axis, *(pieces.axis for pieces in self.fed.around)}
        text = str(self.fed) if self.part == "all" else f"{self.part} of {self.fed}"
        own = [axis for axis in self.axes if axis not in axes]
        return (*own, *(str(pieces) for pieces in self.again if pieces.axis not in axes), text)

    @property
    def is_at_most(self) -> bool:
        """Whether conditions may leave out more than is said here."""
        return self.is_limited or (self.fed is not None and self.fed.by_data)

    def lies_near(self, other: Transfer, sizes: Mapping[str, int]) -> Amount:
        """Whether groups take elements of one array that lie where those of another transfer do, of which there are no
        fewer, or no further from them than a piece is long."""
        if self.array == other.array:
            return True
        if self.source is None or other.source is None or self.source.array is not other.source.array:
            return False
        near: Amount = self.seen(sizes) <= other.seen(sizes)
        for own, others in zip(self.source.places, other.source.places, strict=True):
            alike = own[0] == others[0] and abs(own[1] - others[1]) <= self._reach(own[0])
            within = bool(others[0]) & self._takes_all(own[0], sizes) & other._takes_all(others[0], sizes)
            near = near & (alike | within)
        return near

    def _reach(self, terms: Terms) -> Amount:
        return sum(abs(factor) * self.taken[axis] for axis, factor in terms)

    def _takes_all(self, terms: Terms, sizes: Mapping[str, int]) -> Amount:
        whole: Amount = True
        for axis, _ in terms:
            whole = whole & (self.taken[axis] >= sizes[axis])
        return whole

    def values(self, sizes: Mapping[str, int]) -> Amount:
        if self.fed is not None:
            axes = {self.fed.stream.axis, *(pieces.axis for pieces in self.fed.around)}
            others = prod(sizes[axis] for axis in self.axes if axis not in axes)
            others *= prod(pieces.count(sizes) for pieces in self.again if pieces.axis not in axes)
            return others * self.fed.positions(sizes, self.axes, self.part)
        return self.unlimited(sizes)

    def whole(self, sizes: Mapping[str, int]) -> Amount:
        """The elements of its array; of one of which data choose elements, no more than it has."""
        found = self.in_view(sizes)
        return least(found, self.among) if self.among else found

    def in_view(self, sizes: Mapping[str, int]) -> Amount:
        """The elements of its array, those that data choose as often as they do; of one in windows, those that lie in
        any; of one that is added to, those."""
        if self.added:
            return least(self.seen(sizes), self.added)
        if not self.windows:
            return self.seen(sizes)
        within = {step.axis for window in self.windows for step in window}
        covered = self._seen(sizes, within) * prod(_covered(window, sizes) for window in self.windows)
        return least(self.seen(sizes), covered)

    def seen(self, sizes: Mapping[str, int]) -> Amount:
        """The elements of its array, those in several windows as often."""
        return self._seen(sizes, frozenset())

    def _seen(self, sizes: Mapping[str, int], but: Set[str]) -> Amount:
        return prod(ceil_div(sizes[axis], self.blocks.get(axis, 1)) for axis in self.axes if axis not in but)

    def elements(self, sizes: Mapping[str, int]) -> Amount:
        """The values, one for each block of neighbours that are one element of the array, edges aside."""
        values = self.values(sizes)
        if self.cells:
            return values
        return ceil_div(values, prod(self.blocks.values())) if self.blocks else values

    def sector_bytes(self, sizes: Mapping[str, int]) -> Amount:
        """The bytes of the sectors of L2 in which its elements come, edges aside."""
        share = sector_share(self.near, self.width, sizes) if self.near else 1
        return self.elements(sizes) * self.width * share

    def unlimited(self, sizes: Mapping[str, int]) -> Amount:
        """The values if no condition left anything out."""
        own = (ceil_div(sizes[axis], self.cells.get(axis, 1)) for axis in self.axes)
        return prod(own) * prod(pieces.count(sizes) for pieces in self.again)


def _covered(window: Window, sizes: Mapping[str, int]) -> Amount:
    """How many elements of an axis lie in windows along it."""
    counts = [_count(step, sizes) for step in window]
    reach = 1 + sum(abs(step.by) * (count - 1) for step, count in zip(window, counts, strict=True))
    return least(prod(counts), most(reach, 0))


def _count(step: Step, sizes: Mapping[str, int]) -> Amount:
    """How many positions there are along an axis, or quotients or remainders of them."""
    quotients = ceil_div(sizes[step.axis], step.divisor)
    return least(quotients, step.modulus) if step.modulus else quotients


@dataclass(frozen=True)
class Issue:
    """Instructions of one kind that each warp issues in one execution of an operation, edges aside. The kinds are
    the keys of `issue.KINDS`."""

    kind: str
    count: Amount
    streams: tuple[Pieces, ...]
    """The streams around the operation: it runs once in each step."""
    stream: int | None = None
    """The place of the innermost of these among the streams of an explicit kernel: those of two that run one after
    another may be equal. None outside of streams, and of a decorated kernel, whose streams are counted together."""


LEAVING = ("leaving", "turned")
"""Roles of results on their way out."""

RENAMED = 3
"""Where elements go to where they are under other names of their axes: a write, a barrier and a read, as long as so
many exchanges of lanes. Not measured."""

LEAVING_WIDTHS = (2, 4)
"""Bytes of their elements."""


@dataclass(frozen=True)
class Tile:
    """What a group holds. `role` says where and how. In shared memory: `shared`; `staged`, which every step of a stream
    loads anew; `listed`, where the pieces begin that a stream is fed; `leaving`, a result on its way out, in the place
    of all others, and `turned`, one whose last axis is that of the rows; `parts`, by the warps along the last axis,
    what each of those that share a row has of its result. In registers: `carried`, an accumulator that a stream carries
    or the kernel gives; `passing`, what a step makes and uses up; `ahead`, what it makes before its products are there;
    `kept`, a left operand that warpgroups have read before it; `partial`, sums that it promotes, a part at a time;
    `dividing`, what it divides; `capped`, what it bounds by a `tanh`; `value` (spread over all lanes); `row` (a copy in
    each lane that shares the row); `column` (a copy in each lane that shares the column: what a step loads for scores
    and has no rows, so that all warps, and eight lanes of each, hold the same); `bound` (a copy as of `row`, of whole
    numbers with which conditions compare). Beside products, of what lies in rows over the lanes: `loaded`, what a step
    loads of it; `next`, the same where a step begins with it, which may be loaded in the step before; `reduced`, what a
    step reduces of it along other axes; `moving`, an operand on its way to its tile in shared memory, in whose place;
    `address`, of a row that a lane loads; `state` and `repairing`, states of reductions over it, of which the latter
    repairs others when it changes."""

    role: str
    shape: tuple[Amount, ...]
    width: int
    stream: int | None = None
    """The stream whose steps alone hold it, by number: streams run one after another. None if it stays."""
    of_lane: Amount | None = None
    """Elements that a lane has, where that is no even share of them."""
    repeats: Amount = 1
    """How many warps hold the same part of it."""

    @property
    def elements(self) -> Amount:
        return prod(self.shape)


def row_of(shape: Sequence[Amount]) -> Amount:
    """Elements of one row of a tile: those along the last axis that has any neighbours."""
    row: Amount = 1
    for extent in reversed(shape):
        row = choice(row == 1, extent, row)
        if not is_many(row) and row != 1:
            break  # of one candidate, as of most that are asked, all else is along other axes
    return row


@dataclass(frozen=True)
class Work:
    """A product: every index of these axes is one multiplication and one addition."""

    format: str
    axes: tuple[str, ...]
    stream: int | None = None
    """The stream that it is done in, by number; None outside of streams."""

    def flop(self, sizes: Mapping[str, int]) -> int:
        return 2 * prod(sizes[axis] for axis in self.axes)


@dataclass(frozen=True)
class Plan:
    name: str
    groups: tuple[Pieces, ...]
    streams: tuple[Pieces, ...]
    warps: Mapping[str, Amount]
    transfers: tuple[Transfer, ...]
    issues: tuple[Issue, ...]
    tiles: tuple[Tile, ...]
    work: tuple[Work, ...]
    """What multiplies matrices, in the order of the program; what a second stream does again is there twice."""
    row: str | None = None
    """The axis of the rows of products, along which warps lie."""
    suits_warpgroups: bool = False
    """Whether operands and formats are such that warpgroups can do the products (`warpgroups.py`)."""
    kept_registers: Amount = 0
    """Of a thread, for left operands that it keeps during a stream."""
    spared_registers: Amount = 0
    """Of a thread, for those of which subloops hold a piece at a time."""
    held: Amount = 0
    """Registers of a thread for the values and addresses that it holds at once, where there are no products."""
    static: frozenset[str] = frozenset()
    """The axes whose sizes the kernel knows."""
    parts: tuple[Pieces, ...] = ()
    """What each block of a cluster has of an axis that the group holds whole, where they share a group."""
    cluster: Amount = 1
    """How many they are."""
    exchanged: Amount = 0
    """Bytes of all parts of results that a thread reads from each of them."""
    phases: int = 1
    """In how many groups a step reads its tiles, one after another, of the stream that has fewest: where there are
    several, tiles can come in turn (`passes/loops/in_place.py`)."""
    limited_twice: bool = False
    """Whether conditions on positions limit a stream at both ends."""
    across: str | None = None
    """The axis along which warps lie across those of the rows (`roles.axis_across`)."""
    exchanges: Amount | None = None
    """Of a recurrence: how often lanes exchange what they sum in a step, each time waiting for the last; None of
    others."""
    resident: Amount | None = None
    """Blocks that share an SM, since their producers give registers to the consumers (`levels/residents.py`); None
    where that is not decided yet."""

    @property
    def has_products(self) -> bool:
        return bool(self.work)

    @cached_property
    def warp_count(self) -> Amount:
        return prod(self.warps.values())

    @property
    def sharing(self) -> Amount:
        """How many warps of a block share a row of what is reduced, and exchange their parts of the result."""
        return most(1, *(tile.shape[-1] for tile in self.tiles if tile.role == "parts"))

    def blocks(self, sizes: Mapping[str, int]) -> Amount:
        return prod(pieces.count(sizes) for pieces in self.groups) * self.cluster

    @property
    def has_scores(self) -> bool:
        """Whether a step makes values and uses them up."""
        return any(tile.role == "passing" for tile in self.tiles)

    @property
    def delays(self) -> bool:
        """Whether warpgroups do the last product of a step in the step after it (`passes/loops/delay.py`)."""
        promotes = any(tile.role == "partial" for tile in self.tiles)  # and awaits each sum where it stands
        return self.has_scores and not promotes and max(Counter(work.stream for work in self.work).values()) > 1

    @property
    def algorithm(self) -> tuple[Work, ...]:
        """The products of the algorithm: what several streams do is one, what one of them does twice is two."""
        found: Counter[Work] = Counter()
        for stream in {work.stream for work in self.work}:
            found |= Counter(replace(work, stream=None) for work in self.work if work.stream == stream)
        return tuple(found.elements())

    def last_product(self, sizes: Mapping[str, int]) -> float:
        """Its part of the FLOP of all."""
        return self.work[-1].flop(sizes) / max(sum(work.flop(sizes) for work in self.work), 1)

    @property
    def is_at_most(self) -> bool:
        """Whether conditions may leave out more than the counts say."""
        return any(transfer.is_at_most for transfer in self.transfers)

    @property
    def has_unknown_steps(self) -> bool:
        """Whether data decides how many steps a stream has."""
        return any(transfer.fed is not None and transfer.fed.by_data for transfer in self.transfers)

    def unlimited(self) -> Plan:
        """The plan if conditions left nothing out: an upper bound, which closed forms are of."""

        def plain(streams: tuple[Pieces, ...]) -> tuple[Pieces, ...]:
            return tuple(Pieces(pieces.axis, pieces.size) for pieces in streams)

        return replace(
            self,
            streams=plain(self.streams),
            transfers=tuple(replace(transfer, fed=None, part="all") for transfer in self.transfers),
            issues=tuple(replace(issue, streams=plain(issue.streams)) for issue in self.issues),
        )

    def steps(self, sizes: Mapping[str, int]) -> Amount:
        return sum(pieces.count(sizes) for pieces in self.streams)
