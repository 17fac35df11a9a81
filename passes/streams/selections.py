"""Which pieces of a stream a table or a remainder leaves out: conditions on data that are constant in blocks of
positions, and on distances that come again.

A range (`streams.ranges`) has two ends; a table leaves out any pieces between them. Where the data that a condition
compares are read at quotients of positions, `table[q // 64, x // 64]`, they are constant in *cells* of the piece of a
group and of that of the stream: along each axis as long as what divides both the piece and all blocks. So a few
elements tell whether a condition may hold somewhere in a piece, and a group asks them before its stream
(`hierarchy.select`). What is compared otherwise (positions, data along single positions) may be anything then:

- *and* leaves out what one of its parts leaves out, *or* what all do; a comparison of positions takes what is best in
  the cell;
- a remainder that some of a cell have, as of `(q - x) % 512 == 0`, is one of where the cell begins that is not much
  larger (`solved.furthest`); what so leaves out few pieces is not asked for;
- a part of a conjunction that compares nothing but such data holds throughout a selected piece, if the piece is one
  cell: it is not tested there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from xdsl.ir import BlockArgument, SSAValue

from treadle.compiler.cost.kernel.blocks import blocks_of
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Atom,
    Both,
    Condition,
    Either,
    Linear,
    Term,
    forms_of,
    terms_of,
)
from treadle.dialects.diagram.linear import Remainder
from treadle.dialects.diagram.solved import ends_of_remainders, furthest, is_along
from treadle.passes._functions import label
from treadle.passes.expressions.conditions import parts_of, spelled

MOST_CELLS = 32
"""Cells of a piece in the piece of a group: each is a load, and what is asked of them stands there written out."""

ROOM = 1024
"""Pieces that a list has room for where only the launch knows how many there are: 4 KB of shared memory."""


SPARED = 4
"""Of so many pieces a remainder has to leave out one, or it is not asked for."""


def room_of(size: int, piece: int) -> int:
    """How many pieces a list of those of an axis has room for."""
    return ROOM if size == DYNAMIC else max(-(-size // piece), 1)


@dataclass(frozen=True)
class Selection:
    """What is asked of the pieces of a stream."""

    condition: Condition
    """Over positions and arguments of the kernel: where it does not hold in a piece, no state needs that."""
    cells: tuple[tuple[str, int], ...]
    """How many positions along each axis have the same data."""
    certain: tuple[Condition, ...]
    """The parts of it that hold throughout each piece that is selected."""


def selection_of(axis: str, pieces: Mapping[str, int], states: Sequence[Sequence[Condition]]) -> Selection | str | None:
    """The selection along a streamed axis where axes are cut into these pieces: for each state the conditions that all
    must hold for an element to count. None if there is no table, and why it leaves out nothing if that is so."""
    reader = _Reader(axis, pieces)
    if not any(reader.leaves_out(condition) for conditions in states for condition in conditions):
        return None
    parts = list(dict.fromkeys(tuple(reader.told(conditions)) for conditions in states))
    if not all(parts):
        is_of_table = any(reader.is_of_table(condition) for conditions in states for condition in conditions)
        return "of a table alone no piece can be told to count for nothing" if is_of_table else None
    condition = Both(parts[0]) if len(parts) == 1 else Either(tuple(Both(each) for each in parts))
    cells = reader.cells(terms_of(condition))
    if (count := prod(pieces[name] // cell for name, cell in cells.items())) > MOST_CELLS:
        return f"{_spelled_cells(cells)} are {count} cells in a piece, of {MOST_CELLS} at most"
    is_one = all(pieces[name] == cell for name, cell in cells.items())
    certain = [part for part in parts[0] if is_one and len(parts) == 1 and not _compares_positions(part)]
    return Selection(condition, tuple(cells.items()), tuple(certain))


@dataclass(frozen=True)
class _Reader:
    axis: str
    pieces: Mapping[str, int]

    def told(self, conditions: Iterable[Condition]) -> Iterator[Condition]:
        """Of conditions that all must hold, the parts that tables tell of."""
        found = (self._may(part) for condition in conditions for part in parts_of(condition))
        yield from dict.fromkeys(part for part in found if part is not None and self.leaves_out(part))

    def _may(self, condition: Condition) -> Condition | None:
        """Where a condition may hold, as far as cells tell; None if they tell nothing."""
        match condition:
            case AtLeastZero(form):
                return condition if all(map(self._is_known, form.atoms)) else None
            case Both(parts):
                known = tuple(each for part in parts if (each := self._may(part)) is not None)
                return Both(known) if known or not parts else None
            case Either(parts):
                each = tuple(self._may(part) for part in parts)
                return None if None in each else Either(tuple(part for part in each if part is not None))

    def _is_known(self, term: Atom) -> bool:
        """Whether a cell has one value of a term: a position of it, a scalar, or an argument with few of them."""
        if isinstance(term, str):
            return term in self.pieces
        if not isinstance(term, BlockArgument):
            return False
        cells = self.cells([term])
        return all(axis in self.pieces for axis in cells) and self._count(cells) <= MOST_CELLS

    def leaves_out(self, condition: Condition) -> bool:
        """Whether it compares what tables tell, or remainders that many pieces lack."""
        return self.is_of_table(condition) or any(map(self._is_of_few, forms_of(condition)))

    def is_of_table(self, condition: Condition) -> bool:
        """Whether it compares data that lie in blocks along the streamed axis."""
        values = [term for term in terms_of(condition) if isinstance(term, SSAValue)]
        return any(blocks_of(value).get(self.axis, 1) > 1 for value in values)

    def _is_of_few(self, form: Linear) -> bool:
        """Whether a comparison of remainders along the streamed axis holds nowhere in a good part of all pieces."""
        is_along_axis = any(is_along(term, self.axis) for term in form.divided)
        if not is_along_axis or any(not isinstance(term, Remainder) for term in form.terms):
            return False
        if any(axis not in self.pieces for axis in form.atoms):
            return False
        ahead = {axis: self.pieces[axis] - 1 for axis in form.atoms if isinstance(axis, str)}
        low, high = ends_of_remainders(furthest(form, ahead, 1))
        return -low * SPARED >= high - low + 1

    def _count(self, cells: Mapping[str, int]) -> int:
        return prod(-(-self.pieces[axis] // cell) for axis, cell in cells.items())

    def cells(self, terms: Iterable[Term]) -> dict[str, int]:
        """The cells of all that is compared."""
        found: dict[str, int] = {}
        for term in terms:
            if isinstance(term, str):
                found[term] = gcd(found.get(term, 0), self.pieces[term])
            elif isinstance(term, SSAValue) and is_array(term.type):
                blocks = blocks_of(term)
                for axis in axes_of(term.type):
                    found[axis] = gcd(found.get(axis, 0), self.pieces.get(axis, 1), blocks.get(axis, 1))
        return found


def _compares_positions(condition: Condition) -> bool:
    return any(isinstance(term, str) for term in terms_of(condition))


# -- in words -------------------------------------------------------------------------------------


def _spelled_cells(cells: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in cells.items())


def spell_selection(selection: Selection) -> str:
    """`pieces in which 'M[q, x] == 1' may hold, asked once for q = 64, x = 64`"""
    values = {term for term in terms_of(selection.condition) if isinstance(term, SSAValue)}
    text = spelled(selection.condition, {value: label(value)[1:] for value in values})
    return f"pieces in which '{text}' may hold, asked once for each cell of {_spelled_cells(dict(selection.cells))}"
