"""Times on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Protocol

Call = Callable[[], Any]
"""One use of a kernel: starts it, and does not wait."""

ROUNDS, SAMPLE_SECONDS = 12, 0.02


class Timer(Protocol):
    """Seconds that the device takes for some calls, right after as many that are not timed: a kernel is measured on a
    chip that it has warmed up itself."""

    def __call__(self, call: Call, repeats: int) -> float: ...


def cuda_timer() -> Timer:
    """Between CUDA events on the default stream, which is PyTorch's too."""
    from treadle.runtime.gpu import driver

    events = driver()

    def seconds(call: Call, repeats: int) -> float:
        begin, end = events.Event(), events.Event()
        for _ in range(repeats):
            call()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.time_till(end) / 1e3

    return seconds


def repeats_of(call: Call, timer: Timer, sample: float = SAMPLE_SECONDS) -> int:
    """How often a sample repeats it, so that the clock's grain and the launch do not matter."""
    return max(1, math.ceil(sample / max(timer(call, 3) / 3, 1e-9)))


def turns(names: Sequence[str], rounds: int = ROUNDS) -> Iterator[str]:
    """In each round everybody once, so that a chip that becomes warm, or is held to its power, is so for all. Orders
    are random, the same in each run, and turned so that everybody comes first equally often."""
    random, order = Random(0), list(names)
    for number in range(rounds if order else 0):
        if (first := number % len(order)) == 0:
            random.shuffle(order)
        yield from (*order[first:], *order[:first])
