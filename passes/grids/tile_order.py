"""In which order the blocks of a persistent grid take pieces: a bijection of their numbers, as index arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import PassFailedException

from treadle.passes.grids.arithmetic import Arithmetic
from treadle.passes.grids.serpentine import Serpentine

Longest: TypeAlias = Literal["first", "last"]
"""Which pieces of a row take longest."""
Told: TypeAlias = Literal["first", "last", "none"]
"""The same as an option says it: `none` where all are alike, or are to be taken as if they were."""


def check_section(section: int | None) -> None:
    """Refuse an option that says how many rows are taken together."""
    if section is not None and section < 1:
        raise PassFailedException(f"section is {section}; a section has 1 row of pieces or more")


@dataclass(frozen=True)
class Units:
    """What is taken one after another: the number of the block's first, how many there are, in how many columns, and
    how many are worked on at a time."""

    first: SSAValue
    count: SSAValue
    columns: SSAValue
    at_a_time: SSAValue


@dataclass(frozen=True)
class Walk:
    """The loop of a block over what it takes, and the piece of a turn."""

    begin: SSAValue
    end: SSAValue
    step: SSAValue
    name: str
    piece: Callable[[Arithmetic, SSAValue], SSAValue]


@dataclass(frozen=True)
class TileOrder:
    """Pieces are numbered row by row, `inner` to a row. Rows are taken in sections of `section`, all of a section
    column by column before the next, so that what the pieces of a row share, and what those of a column share, is used
    again while it is in the L2 cache.

    Where pieces are alike, a block takes every so-many-th. Where they are not, the longest come first, and they are
    dealt to blocks there and back (`serpentine.py`): else the first block had the longest of each round.

    So many neighbours in a row as a `cluster` has blocks are taken together, as if they were one piece."""

    section: int
    longest: Longest | None = None
    cluster: int = 1

    @property
    def told(self) -> Told:
        return self.longest or "none"

    @property
    def is_plain(self) -> bool:
        return self.section == 1 and self.longest is None

    def place(self, number: int, pieces: int, inner: int) -> int:
        """The piece that is taken as number so many, where whichever block is free takes the next."""
        begin = number // (self.section * inner) * self.section
        rows = min(self.section, pieces // inner - begin)
        column, row = divmod(number - begin * inner, rows)
        return (begin + row) * inner + (inner - 1 - column if self.longest == "last" else column)

    def taken_by(self, block: int, blocks: int, pieces: int, inner: int) -> list[int]:
        """The pieces that one of so many blocks takes, of so many pieces, in order."""
        unit, place = divmod(block, self.cluster)
        units, columns = blocks // self.cluster, inner // self.cluster
        count = pieces // self.cluster
        if self.longest is None:
            taken = [self.place(number, count, columns) for number in range(unit, count, units)]
        else:
            taken = self._serpentine.taken_by(unit, units, count, columns)
        return [each * self.cluster + place for each in taken]

    @property
    def _serpentine(self) -> Serpentine:
        return Serpentine(self.section, self.longest == "last")

    # -- as operations -----------------------------------------------------------------------------

    def walk(self, units: Units, before: Arithmetic) -> Walk:
        """The same as a loop; what the block finds out once is computed `before`."""
        if self.longest is None:
            return Walk(
                units.first, units.count, units.at_a_time, "number", lambda at, number: self._number(units, at, number)
            )
        alone = self._of_clusters(units, before)
        end, piece = self._serpentine.walk(alone.first, alone.at_a_time, alone.count, alone.columns, before)
        none, one = before.constant(0), before.constant(1)

        def of_turn(at: Arithmetic, turn: SSAValue) -> SSAValue:
            return self._of_block(units, at, piece(at, turn))

        return Walk(none, end, one, "piece_turn", of_turn)

    def _number(self, units: Units, at: Arithmetic, number: SSAValue) -> SSAValue:
        if self.is_plain:
            return number
        if self.cluster == 1:
            return self.emit(at, number, units.count, units.columns)
        alone = self._of_clusters(units, at)
        cluster = at.quotient(number, at.constant(self.cluster))
        return self._of_block(units, at, self.emit(at, cluster, alone.count, alone.columns))

    def _of_clusters(self, units: Units, at: Arithmetic) -> Units:
        """The same counted in clusters."""
        if self.cluster == 1:
            return units
        blocks = at.constant(self.cluster)
        return Units(
            *(at.quotient(each, blocks) for each in (units.first, units.count, units.columns, units.at_a_time))
        )

    def _of_block(self, units: Units, at: Arithmetic, cluster: SSAValue) -> SSAValue:
        """The piece of this block, of those of its cluster."""
        if self.cluster == 1:
            return cluster
        blocks = at.constant(self.cluster)
        return at.sum(at.product(cluster, blocks), at.rest(units.first, blocks), "piece")

    def emit(self, at: Arithmetic, number: SSAValue, pieces: SSAValue, inner: SSAValue) -> SSAValue:
        """The piece that is taken as number so many, by whichever block is free."""
        section = at.constant(self.section)
        begin = at.product(at.quotient(number, at.product(section, inner)), section, "section")
        rows = at.least(section, at.difference(at.quotient(pieces, inner), begin), "rows")
        rest = at.difference(number, at.product(begin, inner))
        column, row = at.quotient(rest, rows), at.rest(rest, rows)
        if self.longest == "last":
            column = at.difference(at.difference(inner, at.constant(1)), column)
        return at.sum(at.product(at.sum(begin, row), inner), column, "piece")
