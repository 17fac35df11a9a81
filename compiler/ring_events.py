"""What the roles of a kernel do to the turns of rings while a static check walks them (`compiler/rings.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, get_args

from xdsl.ir import Operation, SSAValue

from treadle.compiler.ordering import Handing
from treadle.dialects import cuda
from treadle.dialects.cuda.rings import stages_of

ON_RING = (
    cuda.AcquireOp
    | cuda.AcquireBesideOp
    | cuda.AwaitOp
    | cuda.ReleaseOp
    | cuda.ExpectOp
    | cuda.TensorLoadOp
    | cuda.TensorGatherOp
    | cuda.ArriveOp
)
"""What names a turn of a ring."""

_LOOKED_AT = frozenset((*get_args(ON_RING), *get_args(cuda.ORDERING)))
"""By the class itself: most operations are none of these, and to ask of each whether it is an instance takes Python's
way through abstract classes, longer than all else."""


@dataclass(frozen=True, eq=False)
class Ring:
    """A ring of a kernel; one object for each, so that it is its own key."""

    value: SSAValue
    stages: int

    def __str__(self) -> str:
        return f"%{self.value.name_hint}"


Stage: TypeAlias = tuple[Ring, int]


@dataclass(frozen=True)
class Deed:
    """What an operation does to a ring whenever it is executed, found out once."""

    op: Operation
    ring: Ring
    turn: SSAValue
    fills: tuple[SSAValue, ...] = ()
    """The stages that a tensor copy goes to, or that lanes have copied to before they arrive."""
    bytes: int = 0
    """That come, or are to come."""
    beside: Deed | None = None
    """The acquisition of a turn of another ring that this one waits for in its place."""


@dataclass(slots=True)
class Event:
    """What a role does to one turn of a ring."""

    deed: Deed
    turn: int
    group: int
    """Of the consumer warpgroups."""
    filled: tuple[int, ...]
    """The stages that a tensor copy goes to, or that lanes have copied to before they arrive."""
    beside: Event | None
    """The acquisition of a turn of another ring that this one waits for in its place."""
    kind: type[Operation]
    ring: Ring
    stage: Stage
    use: int
    """How often the stage was used before."""
    bytes: int

    def __str__(self) -> str:
        return f"'{self.deed.op.name}' of turn {self.turn} of {self.ring}"


class Events:
    """What the operations of one kernel do, one order of execution after another."""

    def __init__(self, groups: int):
        self.groups = groups
        self.rings: dict[SSAValue, Ring] = {}
        self.deeds: dict[Operation, Deed] = {}

    def looks_at(self, op: Operation) -> bool:
        return op.__class__ in _LOOKED_AT

    def of(
        self, executed: Iterable[Operation], known: Mapping[SSAValue, int], group: int = 0
    ) -> Iterator[Event | Handing]:
        """What a role does to rings and to the turns of warpgroups, in order."""
        for op in executed:
            if op.__class__ not in _LOOKED_AT:
                continue
            if isinstance(op, cuda.ORDERING):
                yield Handing(op, group, self.groups)
                continue
            if (deed := self.deeds.get(op)) is None:
                deed = self.deeds[op] = self._deed(op)
            yield _event(deed, known, group)

    def _deed(self, op: Operation) -> Deed:
        assert isinstance(op, ON_RING)
        ring, fills = self._ring(op.ring), tuple(_fills(op))
        match op:
            case cuda.AcquireBesideOp():
                beside = Deed(op, self._ring(op.beside), op.turn_beside)
                return Deed(op, ring, op.turn, beside=beside)
            case cuda.ExpectOp():
                return Deed(op, ring, op.turn, bytes=op.bytes.data)
            case cuda.TensorLoadOp() | cuda.TensorGatherOp():
                return Deed(op, ring, op.turn, fills, op.bytes)
            case _:
                return Deed(op, ring, op.turn, fills)

    def _ring(self, value: SSAValue) -> Ring:
        return self.rings.setdefault(value, Ring(value, stages_of(value)))


def _event(deed: Deed, known: Mapping[SSAValue, int], group: int) -> Event:
    turn, ring = known[deed.turn], deed.ring
    use, stage = divmod(turn, ring.stages)
    filled = tuple([known[each] for each in deed.fills])
    beside = None if deed.beside is None else _event(deed.beside, known, group)
    return Event(deed, turn, group, filled, beside, deed.op.__class__, ring, (ring, stage), use, deed.bytes)


def _fills(op: Operation) -> Iterator[SSAValue]:
    """The stages that a tensor copy goes to, or those right before an arrival."""
    if isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp) and isinstance(op.tile.owner, cuda.StageOp):
        yield op.tile.owner.index
    if not isinstance(op, cuda.ArriveOp):
        return
    copy = op.prev_op
    while isinstance(copy, cuda.CopyOp):
        if isinstance(stage := copy.tile.owner, cuda.StageOp):
            yield stage.index
        copy = copy.prev_op
