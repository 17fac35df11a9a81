"""The search for the fastest derivation: the pipeline's own is measured first; each alternative in its turn, and what
is faster stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Protocol

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.counting import counted
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.pipeline import run_passes
from treadle.compiler.tune.alternatives import Alternative, Passes, alternatives

MARGIN = 0.01
"""What is faster by less may be so by chance."""

OWN = "as the model chooses"
STATED = "as a derivation or options state"
"""What is measured first: the pipeline's own way, or one that a user asked for."""


class Device(Protocol):
    """A GPU, or in tests something like one."""

    def seconds(self, module: ModuleOp) -> float:
        """Of one run of a program at `cuda` level (TreadleError: it cannot run, or computes something else)."""
        ...


@dataclass(frozen=True)
class Tried:
    """One way to make the kernels, and what came of it."""

    what: str
    passes: Passes
    seconds: float | None
    model_us: float | None = None
    """Of the kernel with other sizes."""
    reason: str = ""
    """Why there is no time."""
    stays: bool = False
    """Whether it is the fastest so far: what is tried next differs from it."""


def tune(
    module: ModuleOp, passes: Passes, device: Device, count: int, until: float = inf, own: str = OWN
) -> Iterator[Tried]:
    """Measure a program (left as it is) as these passes make it (`own` says whose way it is), with so many other sizes
    of each kernel, and without each pass that may be left out. Nothing is begun after `until`, of `time.monotonic`
    (TreadleError: the first cannot be measured)."""
    best = Tried(own, passes, _seconds(module, passes, device), stays=True)
    yield best
    for each in counted(list(alternatives(module, passes, count)), "ways"):
        if monotonic() > until:
            return
        tried = _try(module, each, device, best)
        best = tried if tried.stays else best
        yield tried


def _try(module: ModuleOp, alternative: Alternative, device: Device, best: Tried) -> Tried:
    what, passes = str(alternative), alternative.applied(best.passes)
    try:
        seconds = _seconds(module, passes, device)
    except InternalError:
        raise
    except TreadleError as error:
        return Tried(what, passes, None, alternative.model_us, reason=error.message)
    stays = best.seconds is not None and seconds < best.seconds * (1 - MARGIN)
    return Tried(what, passes, seconds, alternative.model_us, stays=stays)


def _seconds(module: ModuleOp, passes: Passes, device: Device) -> float:
    lowered = module.clone()
    run_passes(lowered, passes)
    return device.seconds(lowered)


def fastest(tried: Sequence[Tried]) -> Tried:
    """The last that stayed."""
    return next(each for each in reversed(tried) if each.stays)
