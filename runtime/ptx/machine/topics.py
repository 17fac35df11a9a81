"""What the instructions of a topic share: state of the blocks that run now, and whose mistake a fault is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.deadlock import where
from treadle.runtime.ptx.text.instruction import Instruction

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine


class Topic(Protocol):
    """Made for each batch of blocks, when the first instruction of the topic is executed."""

    def __init__(self, machine: Machine) -> None: ...


T = TypeVar("T", bound=Topic)


def topic(machine: Machine, kind: type[T]) -> T:
    """The one of this kind of the blocks that run now."""
    kept: Any = machine.kept.get(kind.__name__)
    if kept is None:
        kept = machine.kept[kind.__name__] = kind(machine)
    assert isinstance(kept, kind)
    return kept


@contextmanager
def of_lane(lane: int) -> Generator[None]:
    """A PtxFault that names no thread is of this one."""
    try:
        yield
    except PtxFault as fault:
        fault.lane = int(lane) if fault.lane is None else fault.lane
        raise


@contextmanager
def blamed(machine: Machine, instruction: Instruction, lane: int) -> Generator[None]:
    """A PtxFault of what is done later is that of the instruction that began it, and of the thread."""
    try:
        yield
    except PtxFault as fault:
        raise fault.at(where(machine, instruction.index, int(lane))) from None
