"""Groups of copies in bulk: cp.async.bulk.commit_group and .wait_group (PTX ISA 9.7.9.27.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.topics import topic
from treadle.runtime.ptx.text.instruction import Immediate, Instruction, Modifiers

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine
    from treadle.runtime.ptx.machine.program import Program

Copy = Callable[[], None]


class BulkGroups:
    """Copies that threads have begun, done when they wait for them: the last moment at which they may still read what
    they copy. What they write is there at once then, where the ISA lets it come later unless all is waited for."""

    def __init__(self, machine: Machine) -> None:
        self._open: dict[int, list[Copy]] = {}
        self._closed: dict[int, list[list[Copy]]] = {}
        machine.ended.append(self._end)

    def add(self, lane: int, copy: Copy) -> None:
        self._open.setdefault(lane, []).append(copy)

    def commit(self, lane: int) -> None:
        self._closed.setdefault(lane, []).append(self._open.pop(lane, []))

    def wait(self, lane: int, pending: int) -> None:
        groups = self._closed.get(lane, [])
        done = max(len(groups) - pending, 0)
        for group in groups[:done]:
            for copy in group:
                copy()
        del groups[:done]

    def _end(self) -> None:
        """Shared memory is gone when a block ends: a store that still reads it then is a mistake."""
        for lane in {*self._open, *self._closed}:
            if self._open.get(lane) or any(self._closed.get(lane, [])):
                raise PtxFault("it has ended while a copy in bulk that it began may still read shared memory", lane)


@meaning("cp", "async", "bulk", "commit_group")
def commit_group(instruction: Instruction, program: Program) -> Step:
    Modifiers(instruction, taken=4).end()
    instruction.expect(0)

    def step(threads: Threads) -> None:
        groups = topic(program.machine, BulkGroups)
        for lane in threads.lanes:
            groups.commit(int(lane))

    return step


@meaning("cp", "async", "bulk", "wait_group")
def wait_group(instruction: Instruction, program: Program) -> Step:
    """Also .read, which waits until the copies have read what they copy."""
    modifiers = Modifiers(instruction, taken=4)
    modifiers.flag("read")
    modifiers.end()
    instruction.expect(1)
    given = instruction.operands[0]
    if not isinstance(given, Immediate):
        instruction.unknown("expected a number of groups")
    pending = int(given.text)

    def step(threads: Threads) -> None:
        groups = topic(program.machine, BulkGroups)
        for lane in threads.lanes:
            groups.wait(int(lane), pending)

    return step
