"""Which pieces of its streamed axis a stream must be fed, and for which of them conditions need no test.

A piece may be left out if it leaves every state as it is and nothing is saved from it: each of its elements must leave
the neutral element in every reduction, which a failing condition does whose select gives -inf before a maximum, or 0
before a sum (`_excluded`). A repair is then the identity, too, for nothing that it depends on has moved. In a piece in
which a condition holds throughout its select is what it selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.ops import ContractOp, MapOp, ReduceOp
from treadle.passes._conditions import (
    WHOLE,
    Condition,
    Range,
    condition_of,
    every_of,
    hull,
    intersection,
    some_of,
)
from treadle.passes._excluded import leaves_neutral
from treadle.passes._limits import may_hold_a_piece
from treadle.passes._stages import StreamPlan


@dataclass(frozen=True)
class Visits:
    """Pieces of a stream: those that it is fed, and those of them in which the conditions of `assumed` hold."""

    some: Range = WHOLE
    every: Range | None = None
    assumed: frozenset[arith.SelectOp] = frozenset()

    @property
    def are_all(self) -> bool:
        """Whether the stream is fed every piece, and tests what it tests in each."""
        return self.some.is_whole and self.every is None


@dataclass(frozen=True)
class _Selection:
    """A select in a step, and where its condition holds."""

    op: arith.SelectOp
    some: Range
    every: Range | None


def visits_of(plan: StreamPlan, stream: int, pieces: Mapping[str, int]) -> Visits:
    """The visits of one stream of a kernel whose axes are cut into these pieces. An array along an axis of which a
    group holds more than one element gives no number that bounds a loop."""
    wide = {axis for axis, size in pieces.items() if size != 1}

    def is_known(value: SSAValue) -> bool:
        if not is_array(value.type):
            return True
        return plan.is_fixed(value) and not set(axes_of(value.type)) & {plan.axis, *wide}

    def fits(range: Range | None) -> bool:
        return range is not None and may_hold_a_piece(range, pieces[plan.axis], pieces)

    steps = plan.step_of(stream)
    found = [
        _Selection(op, some_of(condition, plan.axis, is_known), every_of(condition, plan.axis, is_known))
        for op, condition in _selections(steps, plan.axis)
    ]
    assumed = [selection for selection in found if fits(selection.every)]
    every = intersection([s.every for s in assumed if s.every is not None])
    some = WHOLE if plan.saved_in_step(stream) else _needed(plan, stream, found)
    if not assumed or not fits(every):
        return Visits(some)
    return Visits(some, every, frozenset(s.op for s in assumed))


def _selections(steps: Sequence[Operation], axis: str) -> list[tuple[arith.SelectOp, Condition]]:
    """The selects in maps of a step that depend on positions along its axis, with their conditions."""
    return [
        (op, condition_of(op.cond))
        for map in steps
        if isinstance(map, MapOp) and axis in axes_of(map.result.type)
        for op in map.body.block.ops
        if isinstance(op, arith.SelectOp)
    ]


def _needed(plan: StreamPlan, stream: int, found: Sequence[_Selection]) -> Range:
    """The positions that some state needs: for each one those at which all conditions may hold whose failing would
    leave it as it is."""
    ranges: list[Range] = []
    for state in plan.states_in(stream):
        reduction = state.owner
        assert isinstance(reduction, ContractOp | ReduceOp)
        deciding = [s for s in found if not s.some.is_whole and leaves_neutral(reduction, {s.op})]
        ranges.append(intersection([s.some for s in deciding]))
    return hull(ranges) if ranges else WHOLE
