"""What a group of a decorated kernel moves, does and holds, by axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.issue import Product, issued_by_copy, issued_by_product, issued_by_reduction
from treadle.compiler.cost.spread import Spread
from treadle.compiler.cost.work import Labour
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


Done: TypeAlias = Labour | Product | ReduceOp | Crossing


@dataclass(frozen=True)
class Task:
    """Something that the warps of a group do."""

    work: Done
    streams: tuple[int | None, ...]
    """Those that do it; one None where it is done outside of them."""
    streamed: bool
    """Whether every step does it."""

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
                yield from issued_by_copy(self.work.axes, self.work.width, spread, self.work.level == "shared")


@dataclass(frozen=True)
class Holding:
    role: str
    axes: tuple[str, ...]
    width: int
    stream: int | None = None
    """The stream whose steps hold it; none if it is there in all."""
