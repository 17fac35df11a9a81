"""Times on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import results

Call = Callable[[], Any]
"""One use of a kernel: starts it, and does not wait."""

SAMPLES, SAMPLE_SECONDS = 15, 0.02


class Timer(Protocol):
    """Seconds that the device takes for some calls."""

    def __call__(self, call: Call, repeats: int) -> float: ...


def cuda_timer() -> Timer:
    """Between CUDA events on the default stream, which is PyTorch's too."""
    from treadle.runtime.gpu import driver

    events = driver()

    def seconds(call: Call, repeats: int) -> float:
        begin, end = events.Event(), events.Event()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.time_till(end) / 1e3

    return seconds


def measure(call: Call, timer: Timer, samples: int = SAMPLES, least: float = SAMPLE_SECONDS) -> results.Sample:
    """Seconds of one call. Each sample repeats it until the clock's grain and the launch do not matter; what comes
    before is for warming up."""
    once = max(timer(call, 3) / 3, 1e-9)
    once = max(timer(call, 3) / 3, 1e-9)
    repeats = max(1, math.ceil(least / once))
    return results.Sample(tuple(timer(call, repeats) / repeats for _ in range(samples)))
