"""Which pieces of its streamed axis a stream is fed, and in which of them conditions need no test.

A piece may be left out if nothing is saved from it and every element that a state would take from it is absent: a
reduction passes over absent elements, so the state stays as it is. A repair is then the identity, too, for nothing
that it depends on has moved. In a piece in which a condition holds throughout nothing is absent by it. Between the
ends of a range a table may leave out any pieces (`streams.selections`)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from xdsl.ir import BlockArgument, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.condition import Both, Condition
from treadle.dialects.hierarchy.bounded import bounds_of
from treadle.passes.expressions.conditions import parts_of
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.streams.limits import LimitWriter, may_hold_a_piece
from treadle.passes.streams.ranges import WHOLE, Knowledge, Range, every_of, hull, intersection, some_of
from treadle.passes.streams.selections import Selection, selection_of
from treadle.passes.streams.stages import StreamPlan


@dataclass(frozen=True)
class Visits:
    """Pieces of a stream: those that it is fed, and those of them in which the conditions of `assumed` hold."""

    some: Range = WHOLE
    every: Range | None = None
    assumed: frozenset[WhereOp] = frozenset()
    selection: Selection | None = None
    """What a table leaves of those that it is fed."""
    unselected: str = ""
    """Why a table leaves out nothing, if there is one."""

    @property
    def are_all(self) -> bool:
        """Whether the stream is fed every piece, and tests what it tests in each."""
        return self.some.is_whole and self.every is None and self.selection is None

    def write(self, writer: LimitWriter) -> list[SSAValue]:
        """The ranges of the pieces that a stream is fed, and of those that need no test; nothing if it is fed all."""
        if self.are_all:
            return []
        limits = [*writer.limits(self.some)]
        return limits if self.every is None else [*limits, *writer.limits(self.every)]


@dataclass(frozen=True)
class _Where:
    """A condition in a step, and where it holds."""

    op: WhereOp
    some: Range
    every: Range | None


def visits_of(plan: StreamPlan, stream: int, pieces: Mapping[str, int]) -> Visits:
    """The visits of one stream of a kernel whose axes are cut into these pieces. What an earlier stream has finished
    limits it as inputs do: the first and the last position of a sequence, say, as a minimum and a maximum."""
    return StreamTests(plan, stream).visits(pieces)


@dataclass(frozen=True)
class StreamTests:
    """What one stream of a kernel tests, read once; then its visits for any pieces, quickly."""

    plan: StreamPlan
    stream: int
    _known: dict[tuple[frozenset[str], tuple[Condition, ...]], tuple[_Where, ...]] = field(
        default_factory=dict[tuple[frozenset[str], tuple[Condition, ...]], "tuple[_Where, ...]"], compare=False
    )
    _of_pieces: dict[frozenset[tuple[str, int]], Visits] = field(
        default_factory=dict[frozenset[tuple[str, int]], Visits], compare=False
    )

    def visits(self, pieces: Mapping[str, int]) -> Visits:
        """As `visits_of`; of the same pieces it is asked more than once."""
        key = frozenset(pieces.items())
        if (found := self._of_pieces.get(key)) is None:
            found = self._of_pieces[key] = self._visits(pieces)
        return found

    def _visits(self, pieces: Mapping[str, int]) -> Visits:
        def fits(range: Range | None) -> bool:
            return range is not None and may_hold_a_piece(range, pieces[self.plan.axis], pieces)

        deciding = [[op.holds for op in each if not self._is_bounded(op)] for each in self._deciding]
        told = selection_of(self.plan.axis, pieces, deciding)
        selection = told if isinstance(told, Selection) else None
        reason = told if isinstance(told, str) else ""
        found = self._found(pieces, selection)
        assumed = [each for each in found if fits(each.every) and not self._is_bounded(each.op)]
        every = intersection([each.every for each in assumed if each.every is not None])
        some = _needed(self._deciding, found)
        if not assumed or not fits(every):
            return Visits(some, selection=selection, unselected=reason)
        return Visits(some, every, frozenset(each.op for each in assumed), selection, reason)

    @cached_property
    def tests(self) -> list[WhereOp]:
        """Its conditions."""
        return [op for op in self.plan.step_of(self.stream) if isinstance(op, WhereOp)]

    @cached_property
    def _deciding(self) -> list[list[WhereOp]]:
        """For each state of the stream, the conditions on its elements; of none where the stream saves its pieces."""
        if self.plan.saved_in_step(self.stream):
            return []
        reductions = [state.owner for state in self.plan.states_in(self.stream)]
        absent = [absences_of(operands_of(each)) for each in reductions if isinstance(each, ContractOp | ReduceOp)]
        return [[op for op in self.tests if op in absences] for absences in absent]

    def _found(self, pieces: Mapping[str, int], selection: Selection | None) -> Sequence[_Where]:
        """Where each condition holds: of the pieces this asks only along which axes a group holds one position."""
        single = frozenset(axis for axis, size in pieces.items() if size == 1)
        certain = () if selection is None else selection.certain
        if (found := self._known.get((single, certain))) is None:
            searching = Knowledge(self.plan.axis, self._knows, lambda value: self._searches(value, single))
            told = replace(searching, searches=_searches_nothing)
            found = self._known[single, certain] = tuple(
                _where(op, certain, searching if op.within is None else told) for op in self.tests
            )
        return found

    def _is_bounded(self, op: WhereOp) -> bool:
        """Whether a copy tests a condition, in whatever piece, and a range that is told, or that it is of the stream,
        leaves what a list would."""
        bounds = bounds_of(op)
        return bounds is not None and (op.within is not None or bounds.row == self.plan.axis)

    def _knows(self, value: SSAValue) -> bool:
        return not is_array(value.type) or (not self.plan.is_piece(value) and self.plan.stage_of(value) < self.stream)

    def _searches(self, value: SSAValue, single: Container[str]) -> bool:
        """An argument along the streamed axis of which a group holds one row."""
        others = [axis for axis in axes_of(value.type) if axis != self.plan.axis]
        return isinstance(value, BlockArgument) and self.plan.is_piece(value) and all(axis in single for axis in others)


def _searches_nothing(value: SSAValue) -> bool:
    return False


def _where(op: WhereOp, certain: Sequence[Condition], known: Knowledge) -> _Where:
    """What a program tells of a condition needs no search."""
    told = [op.holds, op.may_hold] if op.within is not None else [op.holds]
    some = intersection([some_of(each, known) for each in told])
    return _Where(op, some, every_of(_left_to_test(op.surely_holds, certain), known))


def _left_to_test(condition: Condition, certain: Sequence[Condition]) -> Condition:
    """What does not hold throughout each piece that is selected, in which what is certain does."""
    return Both(tuple(part for part in parts_of(condition) if part not in certain)) if certain else condition


def _needed(deciding: Sequence[Sequence[WhereOp]], found: Sequence[_Where]) -> Range:
    """The positions that some state needs: for each one those at which all conditions on its elements may hold."""
    ranges = [
        intersection([each.some for each in found if each.op in tests and not each.some.is_whole]) for tests in deciding
    ]
    return hull(ranges) if ranges else WHOLE
