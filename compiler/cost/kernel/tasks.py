"""What a group of a decorated kernel moves, does and holds, by axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.kernel.blocks import Source, Window
from treadle.compiler.cost.kernel.issue import Product, issued_by_copy, issued_by_product, issued_by_reduction
from treadle.compiler.cost.kernel.plan import Tile
from treadle.compiler.cost.kernel.spread import Spread
from treadle.compiler.cost.kernel.work import Labour
from treadle.dialects.diagram import ReduceOp, WhereOp


@dataclass(frozen=True)
class Crossing:
    array: str
    level: str
    saves: bool
    axes: tuple[str, ...]
    width: int
    streamed: bool
    stream: int | None = None
    """The stream that it is loaded in."""
    tested_by: frozenset[WhereOp] = frozenset()
    """The conditions that alone need it there; empty if something else does."""
    in_boxes: tuple[bool, bool] = (False, False)
    """Whether tensor copies could bring its tile by whole boxes in their order: where its stream has no limits, and
    where it has."""
    leaves: bool = False
    """Whether it goes out by way of shared memory."""
    blocks: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """The axes along which so many neighbours are one element of the array."""
    windows: tuple[Window, ...] = ()
    """The axes that step along one axis of the array together."""
    near: tuple[str, ...] = ()
    """Its axes, the one whose neighbours lie side by side in memory first; empty where that is not known."""
    spared: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """The blocks of tables that say which pieces there are: where each lies in one block, steps load none of it."""
    by_lanes: bool = False
    """Whether the lanes of a producer copy it, where warpgroups multiply it."""
    added: int = 0
    """Over how many elements of another array it is added up; 0 for what is not."""
    among: int = 0
    """Of how many elements of an array data choose what is loaded; 0 where they do not, or that is not known."""
    source: Source | None = field(default=None, compare=False)
    """Where what is loaded lies, if that is known."""


Done: TypeAlias = Labour | Product | ReduceOp | Crossing


@dataclass(frozen=True)
class Task:
    """Something that the warps of a group do."""

    work: Done
    streams: tuple[int | None, ...]
    """Those that do it; one None where it is done outside of them."""
    streamed: bool
    """Whether every step does it."""
    reads_left: bool = True
    """Whether a product is the first that reads its left operand: what is kept is read once, for all."""

    @property
    def times(self) -> int:
        return len(self.streams)

    def issued(self, spread: Spread) -> Iterator[tuple[str, Amount]]:
        match self.work:
            case Labour(kind, factor, axes):
                yield kind, factor * spread.of_lane(axes)
            case Product():
                yield from issued_by_product(self.work, spread)
            case ReduceOp():
                yield from issued_by_reduction(self.work, spread)
            case Crossing():
                at = self.work
                is_asked = is_asked_in(at.spared, spread.tiles)
                for kind, count in issued_by_copy(
                    at.axes, at.width, spread, at.level == "shared", at.leaves, at.blocks, at.by_lanes
                ):
                    yield kind, count * is_asked


def is_asked_in(blocks: Mapping[str, int], tiles: Mapping[str, Amount]) -> Amount:
    """Whether steps load what conditions compare of tables with these blocks; 1 or 0."""
    if not blocks:
        return 1
    spared: Amount = 1
    for axis, block in blocks.items():
        spared = spared * (block % tiles[axis] == 0)
    return 1 - spared


ADDRESS = 8
"""Bytes of one in device memory."""


@dataclass(frozen=True)
class Holding:
    role: str
    axes: tuple[str, ...]
    width: int
    stream: int | None = None
    """The stream whose steps hold it; none if it is there in all."""
    in_rows_of: tuple[str, ...] | None = None
    """The axes of what lies in rows over the lanes, of which this is all, a factor or a result; None if it does not."""
    summed: tuple[str, ...] | None = None
    """The axes of those over which it is reduced; None for those that this lacks."""
    reduced: tuple[str, ...] | None = None
    """Where these are the parts of a result by warps: the axes along which warps share what is reduced."""

    def tile(self, padded: Mapping[str, Amount], spread: Spread) -> Tile:
        shape = tuple(padded[axis] for axis in self.axes)
        if self.reduced is not None:
            shape = (*shape, spread.sharing(self.reduced))
        return Tile(self.role, shape, self.width, self.stream, self._of_lane(spread), spread.repeats(self.axes))

    def _of_lane(self, spread: Spread) -> Amount | None:
        if self.in_rows_of is None:
            return None
        lacking = tuple(axis for axis in self.in_rows_of if axis not in self.axes)
        return spread.in_rows(self.in_rows_of, self.axes, lacking if self.summed is None else self.summed)
