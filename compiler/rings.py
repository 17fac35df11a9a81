"""A static check of the barriers of a kernel with roles: waits have arrivals, phases agree, no one waits for ever.

The roles are walked as they would run, with numbers for the sizes, and only what they do to rings, and to the turns of
warpgroups, is looked at. A role is one sequence, and a ring has one producer and consumers that all do the same, so
that what one order of execution shows holds for every order; warpgroups that take turns are a sequence each. That
barriers can be checked on the straight-line sequences of roles is the idea of WEFT (Sharma, Bauer, Aiken, PLDI 2015);
here the turns of a ring repeat, so a few numbers of turns stand for all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.ordering import Handing, Turns
from treadle.compiler.stores import store_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.rings import stages_of

SIZES = (0, 1, 16, 100, 300, 1030, 2048)
"""What all sizes are taken to be: no turn, one, as many as stages, more; with and without a rest."""

BLOCKS = (0, 3)
"""Which blocks are looked at: the first, and one whose pieces begin further on."""

PARTS = (1, 3)
"""Of a size, what numbers are that a kernel loads: a loop then ends, or begins, with its axis or before."""

MOST_PIECES = 3
"""What a block of a grid that is smaller than its work does one after another: enough for every state of the barriers
that one piece can leave to the next."""

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": operator.mod,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.divsi": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.maxsi": max,
    "arith.minsi": min,
}

ORDERED: tuple[Callable[[int, int], bool], ...] = (operator.lt, operator.le, operator.gt, operator.ge)
COMPARISONS: tuple[Callable[[int, int], bool], ...] = (operator.eq, operator.ne, *ORDERED, *ORDERED)
"""By the number of the predicate; sizes and positions are never negative."""

ON_RING = cuda.AcquireOp | cuda.AwaitOp | cuda.ReleaseOp | cuda.ExpectOp | cuda.TensorLoadOp


@dataclass(frozen=True)
class Event:
    """What a role does to one turn of a ring."""

    op: Operation
    ring: SSAValue
    turn: int
    group: int = 0
    """Of the consumer warpgroups."""

    @property
    def stage(self) -> tuple[SSAValue, int]:
        return self.ring, self.turn % stages_of(self.ring)

    @property
    def use(self) -> int:
        """How often the stage was used before."""
        return self.turn // stages_of(self.ring)

    def __str__(self) -> str:
        return f"'{self.op.name}' of turn {self.turn} of %{self.ring.name_hint}"


def ring_problems(kernel: cuda.KernelOp) -> list[str]:
    """What is wrong with the barriers of a kernel, at the first size that shows it; none for one without roles."""
    roles = cuda.roles_of(kernel)
    if roles is None:
        return []
    if problem := _cluster_problem(kernel):
        return [problem]
    places = [op.result for op in kernel.body.block.ops if isinstance(op, cuda.BlockIndexOp)]
    loaded = [op.result for op in kernel.walk() if isinstance(op, tensor.ExtractOp)]
    for size, block, part in product(SIZES, BLOCKS if places else BLOCKS[:1], PARTS if loaded else PARTS[:1]):
        known: dict[SSAValue, int] = {**dict.fromkeys(places, block), **dict.fromkeys(loaded, size // part)}
        if problems := _problems_at(kernel, roles, size, known):
            return [f"{problem} (sizes of {size}, block {block})" for problem in problems]
    return []


def _cluster_problem(kernel: cuda.KernelOp) -> str | None:
    """What is wrong with the end of a kernel of clusters, whose blocks arrive at the barriers of others until then."""
    rings = [op for op in kernel.body.block.ops if isinstance(op, cuda.RingOp) and op.filled_by > 1]
    after = list(kernel.body.block.ops)[-2:]
    kinds = (cuda.ClusterArriveOp, cuda.ClusterWaitOp)
    if rings and not (len(after) == 2 and all(isinstance(op, kind) for op, kind in zip(after, kinds, strict=True))):
        return f"a block may end while others still release stages of %{rings[0].result.name_hint}"
    return None


def _problems_at(kernel: cuda.KernelOp, roles: cuda.RolesOp, size: int, known: Mapping[SSAValue, int]) -> list[str]:
    known = {arg: size for arg in kernel.body.block.args if isinstance(arg.type, IndexType | IntegerType)} | dict(known)
    list(executed(kernel.body.block, known))
    producer = list(_events(roles.producer.block, dict(known)))
    ordered = any(isinstance(op, cuda.ORDERING) for op in roles.consumers.walk())
    groups = roles.consumer_groups.data if ordered else 1
    consumers = [list(_events(roles.consumers.block, dict(known), group, groups)) for group in range(groups)]
    return _Run(groups).run(producer, *consumers) or store_problems(
        kernel, executed(roles.consumers.block, dict(known))
    )


def _events(block: Block, known: dict[SSAValue, int], group: int = 0, groups: int = 1) -> Iterator[Event | Handing]:
    """What a role does to rings and to the turns of warpgroups, in order; `known` gathers the numbers it computes."""
    for op in executed(block, known):
        if isinstance(op, ON_RING):
            yield Event(op, op.ring, known[op.turn], group)
        elif isinstance(op, cuda.ORDERING):
            yield Handing(op, group, groups)


def executed(block: Block, known: dict[SSAValue, int]) -> Iterator[Operation]:
    """The operations that a role executes, in order, loops and branches aside; `known` gathers the numbers that it
    computes."""
    for op in block.ops:
        if isinstance(op, scf.ForOp):
            carried = op.body.block.args[1:]
            _move(known, op.iter_args, carried)
            for position in range(known[op.lb], known[op.ub], max(known[op.step], 1)):
                known[op.body.block.args[0]] = position
                yield from executed(op.body.block, known)
                assert op.body.block.last_op is not None
                _move(known, op.body.block.last_op.operands, carried)
            _move(known, carried, op.results)
        elif isinstance(op, scf.IfOp):
            taken = op.true_region if known[op.cond] else op.false_region
            if taken.blocks:
                yield from executed(taken.block, known)
        else:
            compute(op, known)
            yield op


def _move(known: dict[SSAValue, int], sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
    """Numbers that a loop carries."""
    found = [(target, known[source]) for source, target in zip(sources, targets, strict=True) if source in known]
    known.update(found)


def compute(op: Operation, known: dict[SSAValue, int]) -> None:
    """Add to `known` the numbers that an operation makes of known ones."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        known[op.result] = op.value.value.data
    elif isinstance(op, cuda.BlockIndexOp):
        known.setdefault(op.result, 0)
    elif isinstance(op, cuda.GridSizeOp):
        known[op.result] = max(1, -(-max(known.values(), default=1) // MOST_PIECES))
    elif any(operand not in known for operand in op.operands):
        return
    elif op.name in ARITHMETIC:
        left, right = (known[operand] for operand in op.operands)
        if right or ("div" not in op.name and "rem" not in op.name):  # the place in an empty grid is of no account
            known[op.results[0]] = ARITHMETIC[op.name](left, right)
        else:
            known[op.results[0]] = 0
    elif isinstance(op, arith.CmpiOp):
        known[op.result] = int(COMPARISONS[op.predicate.value.data](known[op.lhs], known[op.rhs]))
    elif isinstance(op, arith.IndexCastOp):
        known[op.result] = known[op.input]
    elif isinstance(op, arith.SelectOp):
        known[op.result] = known[op.lhs if known[op.cond] else op.rhs]


Stage = tuple[SSAValue, int]


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
    acquired: set[tuple[SSAValue, int]] = field(default_factory=set[tuple[SSAValue, int]])
    awaited: set[tuple[SSAValue, int, int]] = field(default_factory=set[tuple[SSAValue, int, int]])
    """By which of the consumers."""
    turns: Turns = field(default_factory=Turns)
    problems: list[str] = field(default_factory=list[str])

    def run(self, *roles: Sequence[Event | Handing]) -> list[str]:
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
        if waiting and not self.problems:
            self.problems.append(f"{' and '.join(waiting)} wait for ever")
        if not self.problems:
            self._end()
        return self.problems

    def _may(self, event: Event | Handing) -> bool:
        """Whether a wait lets through: it sees no more of a barrier than the parity of its phase."""
        if isinstance(event, Handing):
            return self.turns.may(event)
        match event.op:
            case cuda.AcquireOp():
                phases, wanted = self.empty.get(event.stage, 0), event.use
            case cuda.AwaitOp():
                phases, wanted = self.full.get(event.stage, 0), event.use + 1
            case _:
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
        stage, turn = event.stage, (event.ring, event.turn)
        match event.op:
            case cuda.AcquireOp():
                self.acquired.add(turn)
            case cuda.AwaitOp():
                self.awaited.add((*turn, event.group))
            case cuda.ExpectOp(bytes=bytes):
                if turn not in self.acquired:
                    self.problems.append(f"{event} without 'cuda.acquire'")
                self.missing[stage] = self.missing.get(stage, 0) + bytes.data
            case cuda.TensorLoadOp() as load:
                self._arrive(event, load.bytes)
            case _:
                if (*turn, event.group) not in self.awaited:
                    self.problems.append(f"{event} without 'cuda.await'")
                self.released[stage] = self.released.get(stage, 0) + 1
                self.empty[stage] = self.released[stage] // self.groups

    def _arrive(self, event: Event, bytes: int) -> None:
        stage = event.stage
        if (event.ring, event.turn) not in self.acquired:
            self.problems.append(f"{event} overwrites a stage without 'cuda.acquire'")
        if bytes > self.missing.get(stage, 0):
            self.problems.append(f"{event} brings {bytes} bytes, {self.missing.get(stage, 0)} are expected")
            return
        self.missing[stage] -= bytes
        if self.missing[stage] == 0:
            self.full[stage] = self.full.get(stage, 0) + 1
            del self.missing[stage]

    def _end(self) -> None:
        for (ring, stage), bytes in self.missing.items():
            self.problems.append(f"{bytes} bytes of stage {stage} of %{ring.name_hint} never come")
        for ring, turn in self.acquired - {(ring, turn) for ring, turn, _ in self.awaited}:
            self.problems.append(f"nobody awaits turn {turn} of %{ring.name_hint}: its copy may outlive the block")
        self.problems += self.turns.left()
