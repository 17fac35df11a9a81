"""A static check of the barriers of a kernel with roles: waits have arrivals, phases agree, no one waits for ever.

The roles are walked as they would run, with numbers for the sizes, and only what they do to rings, and to the turns of
warpgroups, is looked at. A role is one sequence, and a ring has one producer and consumers that all do the same, so
that what one order of execution shows holds for every order; warpgroups that take turns are a sequence each. That
barriers can be checked on the straight-line sequences of roles is the idea of WEFT (Sharma, Bauer, Aiken, PLDI 2015);
here the turns of a ring repeat, so a few numbers of turns stand for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, product

from xdsl.dialects import tensor
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Operation

from treadle.compiler.execution import Execution, Numbers
from treadle.compiler.ordering import Handing, Turns
from treadle.compiler.ring_events import Event, Events, Ring, Stage
from treadle.compiler.stores import StoreCheck
from treadle.dialects import cuda

SIZES = ((0,), (1,), (16,), (100,), (300,), (1030,), (2048,), (768, 384), (384, 768))
"""What all sizes are taken to be: no turn, one, as many as stages, more; with and without a rest. Or, in turns, two
numbers that all usual pieces divide: where one axis is longer, a stream may have no piece that a condition cuts."""

BLOCKS = (0, 3)
"""Which blocks are looked at: the first, and one whose pieces begin further on."""

MOST_EVENTS = 1 << 13
"""Of a role, how many are looked at: the turns of a longer loop, whose size is static, are like those before."""

FEW_EVENTS = 1 << 10
"""At other sizes, once there was such a loop: it is as long at all of them."""

PARTS = (1, 3)
"""Of a size, what numbers are that a kernel loads: a loop then ends, or begins, with its axis or before."""


def ring_problems(kernel: cuda.KernelOp) -> list[str]:
    """What is wrong with the barriers of a kernel, at the first size that shows it; none for one without roles."""
    roles = cuda.roles_of(kernel)
    if roles is None:
        return []
    if problem := _cluster_problem(kernel) or next(_unfit(kernel, roles), None):
        return [problem]
    check = _Check(kernel, roles)
    for told, known in cases(kernel):
        if problems := check.problems(known):
            return [f"{problem} ({told})" for problem in problems]
    return []


def cases(kernel: cuda.KernelOp, sizes: Sequence[tuple[int, ...]] = SIZES) -> Iterator[tuple[str, Numbers]]:
    """Numbers for all that a kernel is told or finds out, as they are told of, and by value."""
    arguments = [arg for arg in kernel.body.block.args if isinstance(arg.type, IndexType | IntegerType)]
    places = [op.result for op in kernel.body.block.ops if isinstance(op, cuda.BlockIndexOp | cuda.ClusterIndexOp)]
    ranks = [op.result for op in kernel.walk() if isinstance(op, cuda.BlockInClusterOp)]
    loaded = {op.result: 1 for op in kernel.walk() if isinstance(op, tensor.ExtractOp)}
    loaded |= {op.count: op.step.data for op in kernel.walk() if isinstance(op, cuda.SelectOp)}
    sizes = sizes if loaded or arguments else sizes[:1]
    for some, block, part in product(sizes, BLOCKS if places else BLOCKS[:1], PARTS if loaded else PARTS[:1]):
        known: Numbers = dict(zip(arguments, cycle(some)))
        known |= dict.fromkeys(places, block)
        known |= {value: some[-1] // part // step for value, step in loaded.items()}
        known |= dict.fromkeys(ranks, block % kernel.cluster)
        yield f"sizes of {' and '.join(map(str, some))}, block {block}", known


def _cluster_problem(kernel: cuda.KernelOp) -> str | None:
    """What is wrong with the end of a kernel of clusters, whose blocks arrive at the barriers of others until then."""
    rings = [op for op in kernel.body.block.ops if isinstance(op, cuda.RingOp) and op.filled_by > 1]
    after = list(kernel.body.block.ops)[-2:]
    kinds = (cuda.ClusterArriveOp, cuda.ClusterWaitOp)
    if rings and not (len(after) == 2 and all(isinstance(op, kind) for op, kind in zip(after, kinds, strict=True))):
        return f"a block may end while others still release stages of %{rings[0].result.name_hint}"
    return None


def _unfit(kernel: cuda.KernelOp, roles: cuda.RolesOp) -> Iterator[str]:
    """What of the rings does not fit the kernel, whatever its sizes."""
    rings = [op for op in kernel.body.block.ops if isinstance(op, cuda.RingOp)]
    tiles = [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp)]
    ready = {ring for op in kernel.body.block.ops if isinstance(op, cuda.ReadyOp) for ring in op.rings}
    places = {op: range(op.offset.data, op.offset.data + op.bytes) for op in rings}
    places |= {op: range(op.offset.data, op.offset.data + op.stages.data * op.stage_bytes) for op in tiles}
    groups = roles.consumer_groups.data
    for ring in rings:
        name = f"%{ring.result.name_hint}"
        if ring.result not in ready:
            yield f"{name} is used and no 'cuda.ready' names it"
        if ring.consumers.data != groups:
            yield f"{name} is for {ring.consumers.data} consumers, and there are {groups}"
        for other, place in places.items():
            if other is not ring and _meet(places[ring], place):
                yield f"{name} lies where %{other.result.name_hint} lies"
    for op in roles.producer.walk():
        if isinstance(op, cuda.ArriveOp) and next(copies_before(op), None) is None:
            yield f"'cuda.arrive' of %{op.ring.name_hint} does not stand right behind what it says has been copied"


def copies_before(op: cuda.ArriveOp) -> Iterator[cuda.CopyOp]:
    """The copies that lanes of a producer say have come, the last one first: those right before, numbers between."""
    before = op.prev_op
    while before is not None and (isinstance(before, cuda.CopyOp | cuda.StageOp) or before.dialect_name() == "arith"):
        if isinstance(before, cuda.CopyOp):
            yield before
        before = before.prev_op


def _meet(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


class _Check:
    """The barriers and tensor stores of one kernel, for one choice of numbers after another."""

    def __init__(self, kernel: cuda.KernelOp, roles: cuda.RolesOp):
        self.kernel = kernel
        self.roles = roles
        self.stores = StoreCheck(kernel)
        ordered = any(isinstance(op, cuda.ORDERING) for op in roles.consumers.walk())
        self.groups = roles.consumer_groups.data if ordered else 1
        self.events = Events(self.groups)
        self.execution = Execution(lambda op: self.events.looks_at(op) or self.stores.looks_at(op))
        self.most_events = MOST_EVENTS

    def problems(self, numbers: Numbers) -> list[str]:
        """With these numbers."""
        for _ in self.execution.of(self.kernel.body.block, numbers):
            pass
        done: list[Operation] = []
        producer = self._first(self.events.of(self.execution.of(self.roles.producer.block, own := dict(numbers)), own))
        consumers: list[list[Event | Handing]] = []
        for group in range(self.groups):
            done, own = [], dict(numbers)
            executed = _noted(self.execution.of(self.roles.consumers.block, own), done)
            consumers.append(self._first(self.events.of(executed, own, group)))
        is_whole = all(len(role) < self.most_events for role in (producer, *consumers))
        self.most_events = self.most_events if is_whole else FEW_EVENTS
        problems = _Run(self.groups, is_whole=is_whole).run(producer, *consumers)
        return problems or (self.stores.problems(done) if is_whole else [])

    def _first(self, events: Iterator[Event | Handing]) -> list[Event | Handing]:
        return list(islice(events, self.most_events))


def _noted(executed: Iterator[Operation], done: list[Operation]) -> Iterator[Operation]:
    """The same operations, which are in `done` afterwards; every group does the same."""
    for op in executed:
        done.append(op)
        yield op


@dataclass
class _Run:
    """The barriers while both roles run: completed phases of each stage's full and empty barrier, and its bytes."""

    groups: int = 1
    """Sequences that stand for the consumers: each releases a stage."""
    full: dict[Stage, int] = field(default_factory=dict[Stage, int])
    empty: dict[Stage, int] = field(default_factory=dict[Stage, int])
    missing: dict[Stage, int] = field(default_factory=dict[Stage, int])
    """Bytes of the phase that is open; a stage is not there before they are expected."""
    released: dict[Stage, int] = field(default_factory=dict[Stage, int])
    """Arrivals at the empty barrier of a stage, of all phases."""
    given_back: set[tuple[Ring, int, int]] = field(default_factory=set[tuple[Ring, int, int]])
    """The turns that were released, by which of the consumers."""
    acquired: set[tuple[Ring, int]] = field(default_factory=set[tuple[Ring, int]])
    awaited: set[tuple[Ring, int, int]] = field(default_factory=set[tuple[Ring, int, int]])
    """By which of the consumers."""
    read: dict[tuple[Ring, int, Ring], int] = field(default_factory=dict[tuple[Ring, int, Ring], int])
    """For a turn of a ring and another ring: the last turn of that which is awaited before the next of this."""
    turns: Turns = field(default_factory=Turns)
    problems: list[str] = field(default_factory=list[str])
    is_whole: bool = True
    """Whether the roles end where they do here: else what waits may be let through by what comes later."""

    def run(self, *roles: Sequence[Event | Handing]) -> list[str]:
        self._note_reads(roles[1])
        at = [0] * len(roles)
        moved = True
        while moved and not self.problems:
            moved = False
            for i, role in enumerate(roles):
                while at[i] < len(role) and not self.problems and self._may(role[at[i]]):
                    self._do(role[at[i]])
                    at[i] += 1
                    moved = True
        waiting = [str(role[i]) for role, i in zip(roles, at, strict=True) if i < len(role)]
        if waiting and not self.problems and (self.is_whole or len(waiting) == len(roles)):
            self.problems.append(f"{' and '.join(waiting)} wait for ever")
        if not self.problems and self.is_whole:
            self._end()
        return self.problems

    def _note_reads(self, consumer: Sequence[Event | Handing]) -> None:
        last: dict[Ring, int] = {}
        for event in consumer:
            if isinstance(event, Event) and event.kind is cuda.AwaitOp:
                for ring, turn in last.items():
                    self.read[ring, turn, event.ring] = event.turn
                last[event.ring] = event.turn

    def _may(self, event: Event | Handing) -> bool:
        """Whether a wait lets through: it sees no more of a barrier than the parity of its phase."""
        if isinstance(event, Handing):
            return self.turns.may(event)
        if event.turn < 0:
            self.problems.append(f"{event} comes before the first")
        if event.kind is cuda.AwaitOp:
            phases, wanted = self.full.get(event.stage, 0), event.use + 1
        elif event.kind in (cuda.AcquireOp, cuda.AcquireBesideOp):
            asked = event.beside or event
            phases, wanted = self.empty.get(asked.stage, 0), asked.use
        else:
            return True
        if phases % 2 != wanted % 2:
            return False
        if phases != wanted:
            self.problems.append(f"{event} takes phase {phases} of its barrier for phase {wanted}")
        return True

    def _do(self, event: Event | Handing) -> None:
        if isinstance(event, Handing):
            if problem := self.turns.do(event):
                self.problems.append(problem)
            return
        if event.kind is cuda.AcquireOp:
            self.acquired.add((event.ring, event.turn))
        elif event.kind is cuda.AcquireBesideOp:
            self._acquire_beside(event)
        elif event.kind is cuda.AwaitOp:
            self.awaited.add((event.ring, event.turn, event.group))
        elif event.kind is cuda.ReleaseOp:
            self._release(event)
        elif event.kind is cuda.ExpectOp:
            self._asks_acquired(event, "without")
            self.missing[event.stage] = self.missing.get(event.stage, 0) + event.bytes
        elif event.kind is cuda.ArriveOp:
            self._asks_acquired(event, "without")
            self._asks_filled(event, "follows copies to another stage")
            self.full[event.stage] = self.full.get(event.stage, 0) + 1
        else:
            self._asks_filled(event, "goes to another stage")
            self._asks_acquired(event, "overwrites a stage without")
            self._bring(event)

    def _asks_acquired(self, event: Event, otherwise: str) -> None:
        if (event.ring, event.turn) not in self.acquired:
            self.problems.append(f"{event} {otherwise} 'cuda.acquire'")

    def _asks_filled(self, event: Event, otherwise: str) -> None:
        if any(filled != event.stage[1] for filled in event.filled):
            self.problems.append(f"{event} {otherwise}")

    def _release(self, event: Event) -> None:
        stage, turn = event.stage, (event.ring, event.turn, event.group)
        if turn not in self.awaited:
            self.problems.append(f"{event} without 'cuda.await'")
        if turn in self.given_back:
            self.problems.append(f"{event} once more")
        self.given_back.add(turn)
        self.released[stage] = self.released.get(stage, 0) + 1
        self.empty[stage] = self.released[stage] // self.groups

    def _acquire_beside(self, event: Event) -> None:
        """Consumers release the stage by no operation of its own: they must have found what was there, and given back
        all turns of the other ring that they found while they had it."""
        before, other = event.turn - event.ring.stages, event.beside
        assert other is not None
        if before >= 0 and any((event.ring, before, group) not in self.awaited for group in range(self.groups)):
            self.problems.append(f"{event} before turn {before} was awaited")
        last, known = self.read.get((event.ring, before, other.ring), -1), other.turn - other.ring.stages
        if last > known:
            self.problems.append(f"{event} when turn {known} of {other.ring} is given back, not {last}")
        self.acquired.add((event.ring, event.turn))

    def _bring(self, event: Event) -> None:
        stage, expected = event.stage, self.missing.get(event.stage, 0)
        if event.bytes > expected:
            self.problems.append(f"{event} brings {event.bytes} bytes, {expected} are expected")
            return
        self.missing[stage] = expected - event.bytes
        if event.bytes == expected:
            self.full[stage] = self.full.get(stage, 0) + 1
            del self.missing[stage]

    def _end(self) -> None:
        for (ring, stage), bytes in self.missing.items():
            self.problems.append(f"{bytes} bytes of stage {stage} of {ring} never come")
        for ring, turn in self.acquired - {(ring, turn) for ring, turn, _ in self.awaited}:
            self.problems.append(f"nobody awaits turn {turn} of {ring}: its copy may outlive the block")
        self.problems += self.turns.left()
