"""How a kernel runs along its streamed axis: which value is known in which stream, and by which law.

Values fall into these kinds, for a streamed axis x:

- *fixed*: nothing it depends on has x; known before any stream;
- *piece*: it has x; made piece by piece inside a step; so is a scan along x, which begins with what its total, a
  state, is before the piece;
- *state*: the result of a reduction over x; carried from step to step, known when its stream is finished;
- *late*: it does not have x, but depends on states; known when their stream is finished.

A reduction whose summands depend on no state runs in stream 0. One whose summands depend on states of stream
k runs in stream k as well if the cascade law repairs it (`streams.cascades`), else in stream k + 1, which makes the
pieces again: recomputation is always legal. So is a piece that leaves the kernel."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TypeGuard

from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, ScanOp
from treadle.dialects.diagram.accumulators import goes_on
from treadle.dialects.diagram.array import axes_of
from treadle.passes._parts import Part
from treadle.passes.expressions.infinities import sources
from treadle.passes.expressions.polynomials import Keys
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import Leaf
from treadle.passes.streams.changes import NoLaw, Repair
from treadle.passes.streams.followed import Followed, Safe

FIXED = -1
"""The stage of what is known before any stream."""


NOTHING = 0
"""The number of what comes before the first operation of a plan."""


@dataclass(frozen=True)
class Repairs:
    """What the plans of one block share as long as nothing rewrites it: clusters are tried one operation larger each
    time."""

    found: dict[tuple[Operation, str, int], Followed] = field(
        default_factory=dict[tuple[Operation, str, int], Followed]
    )
    """How a reduction along an axis follows others, by the number of what comes before it in its plan."""
    numbers: dict[tuple[int, SSAValue, frozenset[SSAValue]], int] = field(
        default_factory=dict[tuple[int, SSAValue, frozenset[SSAValue]], int]
    )
    """Of what comes before: a number for each value, with the states that it depends on, behind the number before. So
    two plans have the same number if they have placed the same values alike, and none is compared one by one."""

    rounds: dict[tuple[tuple[Operation, ...], tuple[SSAValue, ...], str], int] = field(
        default_factory=dict[tuple[tuple[Operation, ...], tuple[SSAValue, ...], str], int]
    )
    """How often kernels of operations, which give some values, are fed an axis."""
    keys: Keys | None = None
    """Of what is asked of expressions, for who asks of many parts."""

    def number(self, before: int, value: SSAValue, states: frozenset[SSAValue]) -> int:
        """The number of what comes before and a value behind it."""
        return self.numbers.setdefault((before, value, states), len(self.numbers) + 1)


def is_scanned_along(op: Operation, axis: str) -> TypeGuard[ScanOp]:
    """Whether an operation is a scan along an axis."""
    return isinstance(op, ScanOp) and op.axis.data == axis


def scans_of(total: SSAValue) -> list[ScanOp]:
    """The scans that have a reduction as the total of what they scan."""
    users = dict.fromkeys(use.operation for use in total.uses)
    return [each for each in users if isinstance(each, ScanOp) and each.total is total]


def _may_be_refused(op: Operation) -> bool:
    """Whether there may be no plan because of an operation, so that it is placed whoever asks."""
    return isinstance(op, ScanOp) or (isinstance(op, ContractOp) and op.init is not None)


@dataclass(frozen=True)
class Verdict:
    """How one reduction over the streamed axis runs."""

    stage: int
    followed: Followed | None = None
    """How it follows others in their stream, or why it cannot."""
    disagreement: str = ""
    """Why it does not run one stream earlier, though it could follow."""

    @property
    def repair(self) -> Repair | None:
        found = None if self.followed is None or self.disagreement else self.followed.repair
        return found if isinstance(found, Repair) else None

    @property
    def refused(self) -> str:
        """Why it does not run one stream earlier."""
        found = None if self.followed is None or self.disagreement else self.followed.repair
        return found.reason if isinstance(found, NoLaw) else self.disagreement


def rounds_of(part: Part, axis: str, repairs: Repairs, most: int | None = None) -> int:
    """How often a kernel is fed an axis; of more than `most` it is told that they are more."""
    key = part.ops, part.leaving, axis
    if (known := repairs.rounds.get(key)) is not None:
        return known
    plan = StreamPlan(part, axis, repairs, most)
    rounds = len(plan.streams)
    if most is None or rounds <= most:
        repairs.rounds[key] = rounds
    return rounds


def is_fed_more_often(part: Part, axis: str, most: int, repairs: Repairs) -> bool:
    """Whether a kernel would be fed an axis more often than that."""
    return rounds_of(part, axis, repairs, most) > most


@dataclass
class StreamPlan:
    """Stages and laws of the operations of a kernel along one axis."""

    part: Part
    axis: str
    repairs: Repairs = field(default_factory=Repairs)
    most: int | None = None
    """The plan is left unfinished at the first reduction that needs more streams, for who asks nothing of those behind
    it, of which there may be many."""
    verdicts: dict[SSAValue, Verdict] = field(default_factory=dict[SSAValue, Verdict])
    stage: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """For a state or late value: the stream that finishes it; for a piece: the first that can make it from
    finished values only."""
    goes_on: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """The product that adds to the sum of another one in each step, with which it is one state."""
    guarded: set[SSAValue] = field(default_factory=set[SSAValue])
    """States for which a finite value stands in while they are neutral."""
    growing: list[SSAValue] = field(default_factory=list[SSAValue])
    """What is scanned in reverse: of a piece that was fed it grows by what each later one adds."""
    asking: set[Operation] = field(default_factory=set[Operation])
    """What makes pieces that only ask which elements such a state is, of the state itself."""
    _raw: set[SSAValue] = field(default_factory=set[SSAValue])
    _states: dict[SSAValue, frozenset[SSAValue]] = field(default_factory=dict[SSAValue, frozenset[SSAValue]])
    _placed: int = NOTHING
    """The number of what is in `_states`."""

    def __post_init__(self) -> None:
        most = None if any(map(_may_be_refused, self.part.ops)) else self.most
        for op in self.part.ops:
            self._place(op)
            if most is not None and self._rounds_for(op) > most:
                return

    def _rounds_for(self, op: Operation) -> int:
        """How often a kernel is fed the axis for one reduction along it."""
        verdict = self.verdicts.get(op.results[0])
        return 0 if verdict is None else verdict.stage + 1

    # -- kinds of values --------------------------------------------------------------------------

    def states_of(self, value: SSAValue) -> frozenset[SSAValue]:
        """The states that a value depends on (a state: on itself)."""
        return self._states.get(value, frozenset())

    def is_piece(self, value: SSAValue) -> bool:
        return self.axis in axes_of(value.type)

    def is_state(self, value: SSAValue) -> bool:
        return value in self.verdicts

    def is_fixed(self, value: SSAValue) -> bool:
        return not self.is_piece(value) and not self.states_of(value)

    def is_late(self, value: SSAValue) -> bool:
        return not self.is_piece(value) and not self.is_state(value) and bool(self.states_of(value))

    def stage_of(self, value: SSAValue) -> int:
        return self.stage.get(value, 0 if self.is_piece(value) else FIXED)

    def is_finished_by(self, op: Operation, state: SSAValue) -> bool:
        """Whether an operation is a reduction that a stream finishes no later than a state."""
        return any(self.is_state(result) and self.stage_of(result) <= self.stage_of(state) for result in op.results)

    def has_stand_in(self, value: SSAValue, states: Container[SSAValue]) -> bool:
        """Whether a value, no piece, is one of some states for which a finite value stands in, or made of such."""
        return not self.is_piece(value) and any(r in self.guarded and r in states for r in self.states_of(value))

    def stood_in(self, op: Operation) -> list[SSAValue]:
        """The states for which a finite value stands in, of which an operation is given one, or what is made of it."""
        given = [Leaf(operand) for operand in op.operands if not self.is_piece(operand)]
        return [leaf.value for each in given for leaf in sources(each) if leaf.value in self.guarded]

    # -- what each stream does --------------------------------------------------------------------

    @property
    def streams(self) -> range:
        stages = [verdict.stage for verdict in self.verdicts.values()]
        stages += [self.stage_of(value) for value in self.part.leaving if self.is_piece(value)]
        return range(max(stages, default=FIXED) + 1)

    def states_in(self, stream: int) -> list[SSAValue]:
        return [state for state, verdict in self.verdicts.items() if verdict.stage == stream]

    def saved_in_step(self, stream: int) -> list[SSAValue]:
        pieces = [value for value in self.part.leaving if self.is_piece(value)]
        return [value for value in pieces if self.stage_of(value) == stream]

    def step_of(self, stream: int) -> list[Operation]:
        """What the step of a stream computes, in order: its states, and the pieces and late values (of the
        states as they are at that moment) that these need."""
        wanted = {*self.states_in(stream), *self.saved_in_step(stream)}
        for op in reversed(self.part.ops):
            if any(result in wanted for result in op.results):
                wanted |= {operand for operand in op.operands if self._is_made_in(operand, stream)}
        return [op for op in self.part.ops if op.results[0] in wanted]

    def finish_of(self, stream: int) -> list[Operation]:
        """Late values that are known when a stream is finished, and needed after it."""
        needed = self._needed_late()
        late = [op for op in self.part.ops if self.is_late(op.results[0]) and op.results[0] in needed]
        return [op for op in late if self.stage_of(op.results[0]) == stream]

    def exports_of(self, stream: int) -> list[SSAValue]:
        """States and late values of a stream that something after it needs."""
        needed = {value for value in self.part.leaving if not self.is_piece(value)}
        for later in self.streams[stream + 1 :]:
            for op in (*self.step_of(later), *self.finish_of(later)):
                needed |= set(op.operands)
        candidates = [*self.states_in(stream), *(op.results[0] for op in self.finish_of(stream))]
        return [value for value in candidates if value in needed]

    def _needed_late(self) -> set[SSAValue]:
        """What a step of a later stream, or the outside, needs of finished values."""
        needed = {value for value in self.part.leaving if not self.is_piece(value)}
        for stream in self.streams:
            for op in self.step_of(stream):
                needed |= {value for value in op.operands if self.stage_of(value) < stream}
        for op in reversed(self.part.ops):
            if op.results[0] in needed and self.is_late(op.results[0]):
                needed |= set(op.operands)
        return needed

    def _is_made_in(self, value: SSAValue, stream: int) -> bool:
        """Whether a step makes a value itself, rather than find it outside."""
        if not isinstance(value.owner, Operation) or self.is_fixed(value):
            return False
        return self.is_piece(value) or self.stage_of(value) == stream

    # -- placing one operation --------------------------------------------------------------------

    def _place(self, op: Operation) -> None:
        result = op.results[0]
        states = frozenset(state for operand in op.operands for state in self.states_of(operand))
        if goes_on(op, self.axis):
            self._go_on(op, states)
            return
        if isinstance(op, ContractOp | ReduceOp) and self.axis in op.over_axes:
            self.verdicts[result] = verdict = self._verdict(op, states)
            self.stage[result] = verdict.stage
            self._depends(result, frozenset([result]))
            return
        if is_scanned_along(op, self.axis):
            self._scan(op)
            return
        self._depends(result, states)
        finished = max((self.stage[state] for state in states), default=FIXED)
        self.stage[result] = finished + 1 if self.is_piece(result) else finished

    def _depends(self, value: SSAValue, states: frozenset[SSAValue]) -> None:
        self._states[value] = states
        self._placed = self.repairs.number(self._placed, value, states)

    def _scan(self, op: ScanOp) -> None:
        """A scan is made in the stream that has its total so far, and in no other. What it gives of a piece, told from
        what came before, never changes; in reverse it grows with each later piece, and what is made of it follows."""
        verdict = None if op.total is None else self.verdicts.get(op.total)
        if verdict is None:
            raise Refusal(
                op, f"a stream along '{self.axis}' has no reduction of what is scanned, of which it has a part"
            )
        self.stage[op.result] = verdict.stage
        self._depends(op.result, frozenset([op.result]) if op.is_reverse else self.states_of(op.operand))
        if op.is_reverse:
            self.stage[op.result] += 1
            self.growing.append(op.result)

    def runs_with(self, value: SSAValue, state: SSAValue) -> bool:
        """Whether a state, or what grows with later pieces, moves in the stream of a state."""
        return self.stage_of(value) - (value in self.growing) == self.stage_of(state)

    def scanned_again(self) -> ScanOp | None:
        """A scan that a later stream would make again: what came before a piece is known in its own alone."""
        for stream in self.streams:
            for op in self.step_of(stream):
                if is_scanned_along(op, self.axis) and op.total is not None and self.stage_of(op.total) != stream:
                    return op
        return None

    def _go_on(self, op: Operation, states: frozenset[SSAValue]) -> None:
        """Make one state of a product and the sum that it adds to: of both nothing follows others."""
        assert isinstance(op, ContractOp)
        assert op.init is not None
        (result,) = op.results
        before = self.verdicts.pop(op.init)
        others = states - {op.init}
        finished = max((self.stage[state] for state in others), default=FIXED)
        if before.repair is not None or finished >= before.stage:
            raise Refusal(op, f"steps along '{self.axis}' do not add to one sum what follows other reductions of them")
        self.verdicts[result], self.stage[result] = before, before.stage
        for each in (result, op.init):
            self._depends(each, frozenset([result]))
        self.goes_on[op.init] = result

    def beginning_of(self, state: SSAValue) -> SSAValue | None:
        """What a state begins with in place of its neutral element."""
        before = {after: value for value, after in self.goes_on.items()}
        while state in before:
            state = before[state]
        return state.owner.init if isinstance(state.owner, ContractOp) else None

    def state_of_sum(self, value: SSAValue) -> SSAValue:
        """The state that a product of a step adds to, of several: the result of the last of them."""
        while value in self.goes_on:
            value = self.goes_on[value]
        return value

    def _verdict(self, op: ContractOp | ReduceOp, states: frozenset[SSAValue]) -> Verdict:
        if not states:
            return Verdict(0, None)
        last = max(self.stage[state] - (state in self.growing) for state in states)
        if scans_of(op.result):
            return Verdict(last + 1, disagreement="a scan has it as it is so far")
        growing = (each for each in self.growing if self.stage[each] - 1 == last)
        running = (*(state for state in self.verdicts if self.stage[state] == last), *growing)
        before = (op, self.axis, self._placed)
        if (followed := self.repairs.found.get(before)) is None:
            followed = self.repairs.found[before] = Followed(
                op, self.axis, running, dict(self._states), self.repairs.keys
            )
        if (safe := followed.safe) is None:
            return Verdict(last + 1, followed)
        if safe.asks and (asking := self._asking(op, states & {*running})):
            self.asking |= asking
            return Verdict(last, followed)
        if (refused := self._admit(safe, states & {*running})) is not None:
            return Verdict(last + 1, followed, refused)
        return Verdict(last, followed)

    def _asking(self, op: ContractOp | ReduceOp, moved: frozenset[SSAValue]) -> set[Operation]:
        """What makes the elements of a reduction of states that move, if it makes nothing else of them; nothing
        otherwise, where others share the pieces. What is late is made anew of the states themselves."""
        wanted, found = {*operands_of(op)}, set[Operation]()
        for each in reversed(self.part.ops):
            made = each.results[0]
            if made not in wanted or self.is_state(made) or not self.states_of(made) & moved:
                continue
            shared = any(use.operation is not op and use.operation not in found for use in made.uses)
            if not isinstance(each, MapOp | CastOp) or (self.is_piece(made) and (shared or made in self.part.leaving)):
                return set()
            if self.is_piece(made):
                found.add(each)
            wanted |= {*each.operands}
        return found

    def _admit(self, repair: Safe, moved: frozenset[SSAValue]) -> str | None:
        """Agree with the other reductions of the stream on what stands for a neutral state.

        A state is guarded for all of them or for none: they share the pieces made from it."""
        guarded = frozenset(r for r in moved if r in repair.fragile or (r in self.guarded and r in repair.vanishing))
        if guarded & self._raw or (moved - guarded) & self.guarded:
            return "another reduction of this stream needs the neutral element itself"
        self.guarded |= guarded
        self._raw |= moved - guarded
        return None
