"""A static check of tiles that leave by tensor copies: they are written, fenced, met and then copied, and written again
only when the copy has read them and all threads know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from treadle.compiler.lowering.barriers import accesses, base_of, neighbours_of
from treadle.dialects import cuda

WRITTEN, FENCED, SEEN_IN_GROUP, SEEN = range(4)
"""How far what threads wrote to a tile has come: nobody else sees it, tensor copies of the writer would, those of its
warpgroup would, all would."""

OF_COPIES = cuda.TensorFenceOp | cuda.BarrierOp | cuda.TensorWaitOp | cuda.TensorStoreOp
"""What says how far tensor copies have come."""

_Copy: TypeAlias = tuple[cuda.TensorStoreOp, set[SSAValue]]
"""A tensor copy, and the memory that it reads."""


class StoreCheck:
    """The tensor stores of one kernel, for one order of execution after another."""

    def __init__(self, kernel: cuda.KernelOp):
        stores = any(isinstance(op, cuda.TensorStoreOp) for op in kernel.walk())
        self.neighbours = neighbours_of(kernel.body.block) if stores else None
        self.written: dict[Operation, set[SSAValue]] = {}

    def looks_at(self, op: Operation) -> bool:
        """Whether an operation has to do with what is checked: it is one of a tensor copy, or writes a tile."""
        return self.neighbours is not None and (isinstance(op, OF_COPIES) or bool(_written_by(op, self.written)))

    def problems(self, executed: Iterable[Operation]) -> list[str]:
        """What is wrong with the tensor stores among the operations that the consumers execute, in order."""
        if self.neighbours is None:
            return []
        run = _Run(self.neighbours, self.written)
        for op in executed:
            run.step(op)
            if run.problems:
                return run.problems
        run.end()
        return run.problems


@dataclass
class _Run:
    """The tiles while the consumers run, all of whom do the same."""

    neighbours: dict[SSAValue, set[SSAValue]]
    """The tiles that share memory with a tile."""
    written: dict[Operation, set[SSAValue]]
    """The tiles that an operation writes, as far as that was asked."""
    state: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Of tiles that were written."""
    reading: list[_Copy] = field(default_factory=list[_Copy])
    """Copies under way, the oldest first."""
    waited: list[_Copy] = field(default_factory=list[_Copy])
    """Copies that only the thread which started them knows to have read."""
    known: list[_Copy] = field(default_factory=list[_Copy])
    """Copies of which each warpgroup knows of its share."""
    problems: list[str] = field(default_factory=list[str])

    def step(self, op: Operation) -> None:
        match op:
            case cuda.TensorFenceOp():
                self._advance(WRITTEN, FENCED)
            case cuda.BarrierOp(by_groups=None):
                self._advance(FENCED, SEEN)
                self._advance(SEEN_IN_GROUP, SEEN)
                self.waited.clear()
                self.known.clear()
            case cuda.BarrierOp():
                self._advance(FENCED, SEEN_IN_GROUP)
                self.known += [each for each in self.waited if each[0].by_groups is not None]
                self.waited = [each for each in self.waited if each[0].by_groups is None]
            case cuda.TensorWaitOp():
                own = [each for each in self.reading if each[0].by_groups == op.by_groups]
                done = own[: max(len(own) - op.pending.data, 0)]
                self.waited += done
                self.reading = [each for each in self.reading if each not in done]
            case cuda.TensorStoreOp():
                self._store(op)
            case _:
                for tile in _written_by(op, self.written):
                    self._write(op, tile)

    def _advance(self, before: int, after: int) -> None:
        self.state = {tile: after if state == before else state for tile, state in self.state.items()}

    def _write(self, op: Operation, tile: SSAValue) -> None:
        shared = self.neighbours[tile]
        others = [each for each in self.known if base_of(each[0].tile) is not tile]
        for store, memory in (*self.reading, *self.waited, *others):
            if memory & shared:
                missing = "'cuda.tensor_wait' and a barrier" if (store, memory) in self.reading else "a barrier"
                self.problems.append(f"'{op.name}' overwrites {_name(tile)}, which a tensor copy reads: no {missing}")
        self.state[tile] = WRITTEN

    def _store(self, op: cuda.TensorStoreOp) -> None:
        tile = base_of(op.tile)
        state = self.state.get(tile)
        if state is None:
            self.problems.append(f"'{op.name}' copies {_name(tile)}, which nobody has written")
        elif state < (SEEN if op.by_groups is None else SEEN_IN_GROUP):
            missing = "'cuda.tensor_fence' and a barrier" if state == WRITTEN else "a barrier"
            self.problems.append(f"'{op.name}' copies {_name(tile)} without {missing} after it was written")
        self.reading.append((op, self.neighbours[tile]))

    def end(self) -> None:
        for store, _ in self.reading:
            self.problems.append(
                f"the block may end while {_name(base_of(store.tile))} is copied: no 'cuda.tensor_wait'"
            )


def _written_by(op: Operation, known: dict[Operation, set[SSAValue]]) -> set[SSAValue]:
    """The tiles that an operation writes."""
    if op not in known:
        known[op] = accesses(op)[0]
    return known[op]


def _name(tile: SSAValue) -> str:
    return f"%{tile.name_hint}"
