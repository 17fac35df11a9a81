"""A static check of what threads of a block leave for each other in shared memory: whoever reads a tile finds what was
written there, and nobody writes where others still read.

Bodies are walked as they would run, with numbers for the sizes, as `rings` does: what stage of a tile an operation
takes is then a number too. The threads of a block all do the same, so that one sequence stands for all of them. What a
producer brings they may read from when they await it until they give it back, which products under way forbid; whether
waits and arrivals of rings agree is the other check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.execution import Execution, Numbers
from treadle.compiler.lowering.barriers import accesses, base_of
from treadle.compiler.rings import SIZES, cases, copies_before
from treadle.dialects import cuda
from treadle.dialects.cuda.rings import stages_of
from treadle.dialects.cuda.tiles import is_shared

MOST_OPERATIONS = 1 << 14
"""How many are looked at, of one choice of numbers: later turns of a long loop are like those before."""

ODD = ((230,), (430,))
"""More sizes: of usual pieces these are an odd number and a rest, which then meets the stages of an odd turn."""

Place: TypeAlias = tuple[SSAValue, int]
"""A tile and its stage."""


def meeting_problems(kernel: cuda.KernelOp) -> list[str]:
    """What is wrong with the barriers of a block, and with its waits for its own copies, at the first size that shows
    it."""
    roles = cuda.roles_of(kernel)
    memory = _Memory.of(kernel.body.block, None if roles is None else roles.producer.block)
    execution = Execution()
    for told, known in cases(kernel, (*SIZES, *ODD)):
        run = _Run(memory, known)
        for op in islice(_executed(execution, kernel, roles, known), MOST_OPERATIONS):
            if problem := run.step(op):
                return [f"{problem} ({told})"]
    return []


def _executed(
    execution: Execution, kernel: cuda.KernelOp, roles: cuda.RolesOp | None, known: Numbers
) -> Iterator[Operation]:
    """What the threads that compute execute: all of them, or the consumers of a kernel with roles."""
    yield from execution.of(kernel.body.block, known)
    if roles is not None:
        yield from execution.of(roles.consumers.block, known)


@dataclass(frozen=True)
class _Memory:
    """Where tiles lie."""

    meets: dict[Place, tuple[Place, ...]]
    """The places that share bytes with one, itself among them."""
    fills: dict[SSAValue, frozenset[SSAValue]]
    """The tiles that a producer fills, by their ring."""
    leaving: frozenset[SSAValue]
    """The tiles that leave by tensor copies; who waits for whom there, and which warpgroups alone, `stores` asks."""

    @staticmethod
    def of(block: Block, producer: Block | None) -> _Memory:
        leaving = frozenset(base_of(op.tile) for op in block.walk() if isinstance(op, cuda.TensorStoreOp))
        tiles = [op for op in block.ops if isinstance(op, cuda.SharedOp)]
        begins: dict[Place, int] = {
            (op.result, stage): op.offset.data + stage * op.stage_bytes
            for op in tiles
            for stage in range(op.stages.data)
        }
        ends = {place: begin + _bytes(place) for place, begin in begins.items()}
        meets = {
            one: tuple(other for other in begins if begins[one] < ends[other] and begins[other] < ends[one])
            for one in begins
        }
        return _Memory(meets, _filled(producer), leaving)


def _bytes(place: Place) -> int:
    owner = place[0].owner
    assert isinstance(owner, cuda.SharedOp)
    return owner.stage_bytes


def _filled(producer: Block | None) -> dict[SSAValue, frozenset[SSAValue]]:
    """By ring, the tiles that copies go to which complete its full barriers."""
    found: dict[SSAValue, frozenset[SSAValue]] = {}
    for op in () if producer is None else producer.walk():
        if isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp):
            found[op.ring] = found.get(op.ring, frozenset()) | {base_of(op.tile)}
        if isinstance(op, cuda.ArriveOp):
            copied = frozenset(base_of(copy.destination) for copy in copies_before(op))
            found[op.ring] = found.get(op.ring, frozenset()) | copied
    return found


@dataclass
class _Run:
    """Shared memory while a block runs."""

    memory: _Memory
    known: Numbers
    held: set[Place] = field(default_factory=set[Place])
    """Places that hold what was written there last."""
    written: set[Place] = field(default_factory=set[Place])
    read: set[Place] = field(default_factory=set[Place])
    """Since the last barrier."""
    under_way: dict[Place, int] = field(default_factory=dict[Place, int])
    """Places that copies are on their way to, and how many groups of copies were closed since; closed but not waited
    for, they are written when a barrier is passed as well."""
    products: list[set[Place]] = field(default_factory=list[set[Place]])
    """What the products of warpgroups read that are under way, the oldest first."""

    def step(self, op: Operation) -> str | None:
        """What is wrong with the next operation."""
        match op:
            case cuda.ClusterWaitOp() | cuda.BarrierOp(by_groups=None):
                self.written, self.read = set(self.under_way), set()
            case cuda.CommitOp():
                self.under_way = {place: closed + 1 for place, closed in self.under_way.items()}
            case cuda.WaitOp():
                pending = op.pending.data
                self.under_way = {place: closed for place, closed in self.under_way.items() if closed <= pending}
            case cuda.WarpgroupWaitOp() | cuda.WarpgroupDrainOp():
                self.products = self.products[max(0, len(self.products) - op.pending.data) :]
            case cuda.AwaitOp():
                for place in self._turn(op):
                    self._hold(place)
            case cuda.ReleaseOp():
                return next(self._given_back(op), None)
            case _:
                return self._access(op)
        return None

    def _hold(self, place: Place) -> None:
        """What lay there is there no longer."""
        self.held -= {*self.memory.meets[place]}
        self.held.add(place)

    def _turn(self, op: cuda.AwaitOp | cuda.ReleaseOp) -> Iterator[Place]:
        """The stages that a turn of a ring is about."""
        for tile in self.memory.fills.get(op.ring, ()):
            place = tile, self.known[op.turn] % stages_of(op.ring)
            if place in self.memory.meets:
                yield place

    def _given_back(self, op: cuda.ReleaseOp) -> Iterator[str]:
        for place in self._turn(op):
            if any(self._waiting(place, reads) for reads in self.products):
                yield f"'{op.name}' gives back {_told(place)} while a product may still read it"
            self.held.discard(place)

    def _access(self, op: Operation) -> str | None:
        written, read = (list(self._places(op, tiles)) for tiles in accesses(op))
        if isinstance(op, cuda.TensorStoreOp):
            return next((self._unheld(op, place) for place in read if place not in self.held), None)
        for place in (*written, *read):
            if place not in self.memory.meets:
                return f"'{op.name}' takes {_told(place)}, which is not there"
        problem = next(self._problems(op, written, read), None)
        for place in written:
            self._hold(place)
        if isinstance(op, cuda.WarpgroupProductOp):
            self.products.append(set(read))
        self.written |= {place for place in written if place[0] not in self.memory.leaving}
        self.read |= set(read)
        if isinstance(op, cuda.CopyOp) and op.asynchronous is not None:
            self.under_way |= dict.fromkeys(written, 0)
        return problem

    def _problems(self, op: Operation, written: Iterable[Place], read: Iterable[Place]) -> Iterator[str]:
        for place in read:
            if place not in self.held:
                yield self._unheld(op, place)
            if self._waiting(place, self.under_way):
                yield f"'{op.name}' reads {_told(place)} before its copy was waited for, or before others know that"
            if self._waiting(place, self.written):
                yield f"'{op.name}' reads {_told(place)}, and no barrier stands behind what other threads wrote there"
        for place in written:
            if self._waiting(place, self.written) or self._waiting(place, self.read):
                yield f"'{op.name}' writes {_told(place)}, and no barrier stands behind what other threads did there"

    def _unheld(self, op: Operation, place: Place) -> str:
        is_brought = any(place[0] in tiles for tiles in self.memory.fills.values())
        why = "is not awaited, or given back" if is_brought else "does not hold what was written there"
        return f"'{op.name}' reads {_told(place)}, which {why}"

    def _waiting(self, place: Place, among: Iterable[Place]) -> bool:
        return not set(among).isdisjoint(self.memory.meets[place])

    def _places(self, op: Operation, bases: set[SSAValue]) -> Iterator[Place]:
        """The places that an operation takes of some tiles: the stages that it names, or the first."""
        for tile in op.operands:
            if is_shared(tile.type) and (base := base_of(tile)) in bases:
                yield base, self._stage(tile)

    def _stage(self, tile: SSAValue) -> int:
        return self.known.get(tile.owner.index, 0) if isinstance(tile.owner, cuda.StageOp) else 0


def _told(place: Place) -> str:
    tile, stage = place
    stages = tile.owner.stages.data if isinstance(tile.owner, cuda.SharedOp) else 1
    return f"%{tile.name_hint}" + (f" (stage {stage})" if stages > 1 or stage else "")


__all__ = ["meeting_problems"]
