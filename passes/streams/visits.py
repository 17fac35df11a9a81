"""Which pieces of its streamed axis a stream is fed, and in which of them conditions need no test.

A piece may be left out if nothing is saved from it and every element that a state would take from it is absent: a
reduction passes over absent elements, so the state stays as it is. A repair is then the identity, too, for nothing
that it depends on has moved. In a piece in which a condition holds throughout nothing is absent by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.streams.limits import LimitWriter, may_hold_a_piece
from treadle.passes.streams.ranges import WHOLE, Knowledge, Range, every_of, hull, intersection, some_of
from treadle.passes.streams.stages import StreamPlan


@dataclass(frozen=True)
class Visits:
    """Pieces of a stream: those that it is fed, and those of them in which the conditions of `assumed` hold."""

    some: Range = WHOLE
    every: Range | None = None
    assumed: frozenset[WhereOp] = frozenset()

    @property
    def are_all(self) -> bool:
        """Whether the stream is fed every piece, and tests what it tests in each."""
        return self.some.is_whole and self.every is None

    def write(self, writer: LimitWriter) -> list[SSAValue]:
        """The ranges of the pieces that a stream is fed, and of those that need no test; nothing if it is fed all."""
        if self.are_all:
            return []
        limits = [*writer.limits(self.some)]
        return limits if self.every is None else [*limits, *writer.limits(self.every)]


@dataclass(frozen=True)
class _Selection:
    """A condition in a step, and where it holds."""

    op: WhereOp
    some: Range
    every: Range | None


def visits_of(plan: StreamPlan, stream: int, pieces: Mapping[str, int]) -> Visits:
    """The visits of one stream of a kernel whose axes are cut into these pieces. What an earlier stream has finished
    limits it as inputs do: the first and the last position of a sequence, say, as a minimum and a maximum."""

    def knows(value: SSAValue) -> bool:
        return not is_array(value.type) or (not plan.is_piece(value) and plan.stage_of(value) < stream)

    def searches(value: SSAValue) -> bool:
        """An argument along the streamed axis of which a group holds one row."""
        others = [axis for axis in axes_of(value.type) if axis != plan.axis]
        return isinstance(value, BlockArgument) and plan.is_piece(value) and all(pieces.get(a) == 1 for a in others)

    def fits(range: Range | None) -> bool:
        return range is not None and may_hold_a_piece(range, pieces[plan.axis], pieces)

    known = Knowledge(plan.axis, knows, searches)
    found = [
        _Selection(op, some_of(op.holds, known), every_of(op.holds, known))
        for op in plan.step_of(stream)
        if isinstance(op, WhereOp)
    ]
    assumed = [selection for selection in found if fits(selection.every)]
    every = intersection([s.every for s in assumed if s.every is not None])
    some = WHOLE if plan.saved_in_step(stream) else _needed(plan, stream, found)
    if not assumed or not fits(every):
        return Visits(some)
    return Visits(some, every, frozenset(s.op for s in assumed))


def _needed(plan: StreamPlan, stream: int, found: Sequence[_Selection]) -> Range:
    """The positions that some state needs: for each one those at which all conditions on its elements may hold."""
    ranges: list[Range] = []
    for state in plan.states_in(stream):
        reduction = state.owner
        assert isinstance(reduction, ContractOp | ReduceOp)
        deciding = absences_of(operands_of(reduction))
        ranges.append(intersection([s.some for s in found if s.op in deciding and not s.some.is_whole]))
    return hull(ranges) if ranges else WHOLE
