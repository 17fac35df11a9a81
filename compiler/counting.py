"""How far something long is. Whoever does it counts here; whoever shows progress (`compiler/progress.py`) asks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(eq=False)
class Count:
    """So many of so many are done."""

    unit: str
    """What is counted, as a plural."""
    total: int
    done: Callable[[], int]

    def __str__(self) -> str:
        return f"{min(self.done(), self.total):,} of {self.total:,} {self.unit}"


_GOING_ON: list[Count] = []


def going_on() -> tuple[Count, ...]:
    """What is being counted now, the outermost first."""
    return tuple(_GOING_ON)


@contextmanager
def counting(unit: str, total: int, done: Callable[[], int]) -> Generator[None]:
    """Meanwhile `done` says, whenever it is asked and from any thread, how many of `total` are done."""
    count = Count(unit, total, done)
    _GOING_ON.append(count)
    try:
        yield
    finally:
        _GOING_ON.remove(count)


def counted(items: Sequence[Item], unit: str) -> Iterator[Item]:
    """The items, one by one; an item is done when the next is asked for."""
    done = 0
    with counting(unit, len(items), lambda: done):
        for item in items:
            yield item
            done += 1
