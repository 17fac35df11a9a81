"""The mbarriers of the blocks that run now, and the asynchronous operations that they tell of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.hopper.mbarrier_objects import BYTES, Mbarrier

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine


class Mbarriers:
    """All of a batch of blocks, by where they lie in the shared memory of the batch. Their contents stand in memory,
    too: whoever writes over one is found out when it is used."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._objects: dict[int, Mbarrier] = {}
        self.awaited: set[int] = set()
        """Those at which threads sleep."""
        self._begun: list[tuple[Sequence[int], Callable[[], None]]] = []

    def init(self, place: int, count: int) -> None:
        """The ISA leaves it undefined to do so twice, without mbarrier.inval between."""
        if place in self._objects and self._word(place) == self._objects[place].packed():
            raise PtxFault("an mbarrier is initialised where one is")
        self._put(place, Mbarrier.init(count))

    def at(self, place: int) -> Mbarrier:
        if place not in self._objects:
            raise PtxFault("no mbarrier has been initialised there")
        if self._word(place) != self._objects[place].packed():
            raise PtxFault("an mbarrier that has been written over")
        return self._objects[place]

    def arrive(self, place: int, count: int) -> None:
        """So many arrivals, one after another: they may complete several phases."""
        while count:
            barrier = self.at(place)
            some = min(count, max(barrier.pending, 1))
            self._change(place, barrier.arrive(some))
            count -= some

    def expect(self, place: int, nbytes: int) -> None:
        self._put(place, self.at(place).expect(nbytes))

    def complete(self, place: int, nbytes: int) -> None:
        """What an asynchronous copy does when so many of its bytes are there."""
        self._change(place, self.at(place).complete(nbytes))

    def later(self, places: Sequence[int], act: Callable[[], None]) -> None:
        """Something asynchronous, of which these barriers tell. What is begun first is not done first: it is what
        somebody waits for, so that all else is as late as it may be. A seed draws it."""
        self._begun.append((places, act))
        self.machine.later.append(self._do_one)

    def _do_one(self) -> None:
        if self.machine.random is not None:
            index = int(self.machine.random.integers(len(self._begun)))
        else:
            wanted = (i for i, (places, _) in enumerate(self._begun) if not self.awaited.isdisjoint(places))
            index = next(wanted, 0)
        self._begun.pop(index)[1]()

    def _change(self, place: int, barrier: Mbarrier) -> None:
        has_completed = barrier.phase != self._objects[place].phase
        self._put(place, barrier)
        if has_completed:
            self.awaited.discard(place)
            self.machine.stir()

    def _put(self, place: int, barrier: Mbarrier) -> None:
        self._objects[place] = barrier
        self.machine.shared.views[BYTES][place // BYTES] = barrier.packed()

    def _word(self, place: int) -> int:
        return int(self.machine.shared.views[BYTES][place // BYTES])
