"""What groups do to find the pieces that tables leave of streams (`passes/streams/selections.py`): a value crosses
for each cell of each piece, and a list of pieces is in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.ir import SSAValue

from treadle.compiler.cost.kernel.blocks import blocks_of
from treadle.compiler.cost.kernel.names import name_of
from treadle.compiler.cost.kernel.plan import Pieces, Tile, Transfer
from treadle.compiler.cost.kernel.work import width_of
from treadle.dialects.cuda.selections import COUNTS
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.condition import terms_of
from treadle.passes.expressions.conditions import parts_of
from treadle.passes.streams.selections import Selection, room_of
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.visits import Visits, visits_of

ENTRY = 4
"""Bytes of where a piece begins."""


def asked_of(selection: Selection) -> list[SSAValue]:
    """The arrays of which a selection reads cells."""
    terms = dict.fromkeys(terms_of(selection.condition))
    return [term for term in terms if isinstance(term, SSAValue) and is_array(term.type)]


def asking(array: SSAValue, name: str, cells: Mapping[str, int], around: Iterable[Pieces]) -> Transfer:
    """What crosses: at most a value for each cell of each piece, for ranges leave out some."""
    axes = axes_of(array.type)
    again = tuple(pieces for pieces in around if pieces.axis not in axes)
    own = {axis: cells[axis] for axis in axes}
    width, blocks = width_of(array.type), blocks_of(array)
    return Transfer(name, "register", False, axes, width, again, is_limited=True, blocks=blocks, cells=own)


def list_of(room: int) -> Tile:
    return Tile("listed", (COUNTS + room,), ENTRY)


def transfers_of(visits: Sequence[Visits], around: Sequence[Pieces]) -> Iterator[Transfer]:
    """Those of all selections of a decorated kernel: streams that are fed the same share one."""
    for selection in _different(visits):
        for array in asked_of(selection):
            yield asking(array, name_of(array, "input"), dict(selection.cells), around)


def lists_of(visits: Sequence[Visits], size: int, piece: int) -> Iterator[Tile]:
    for _ in _different(visits):
        yield list_of(room_of(size, piece))


def _different(visits: Sequence[Visits]) -> list[Selection]:
    found = dict.fromkeys((each.some, each.selection) for each in visits if each.selection is not None)
    return [selection for _, selection in found]


# -- what is not tested ----------------------------------------------------------------------------


def blocks_that_spare(
    plan: StreamPlan, stream: int, tests: frozenset[WhereOp], axes: Iterable[str]
) -> Mapping[str, int]:
    """The blocks of the tables of some conditions: in pieces that divide all of them, a selected piece has no element
    that the conditions ask for. Nothing where pieces of one element do not spare the tests either."""
    selection = visits_of(plan, stream, dict.fromkeys(axes, 1)).selection
    if selection is None or not tests or any(_is_left(test, selection) for test in tests):
        return {}
    blocks: dict[str, int] = {}
    for array in asked_of(selection):
        own = blocks_of(array)
        blocks |= {axis: min(own.get(axis, 1), blocks.get(axis, own.get(axis, 1))) for axis in axes_of(array.type)}
    return blocks


def _is_left(test: WhereOp, selection: Selection) -> bool:
    """Whether something of a condition reads a table and is asked in selected pieces, too."""
    left = (part for part in parts_of(test.holds) if part not in selection.certain)
    return any(isinstance(term, SSAValue) and is_array(term.type) for part in left for term in terms_of(part))
