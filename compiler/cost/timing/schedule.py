"""A pipeline schedule: which worker (a warp, a warpgroup) uses which unit when.

Every worker goes through the same stages, step after step. A stage needs one unit for some clocks, and begins when the
stages that it comes after have ended; a unit does one stage at a time, and takes the one that is ready first. After
some steps the timeline repeats itself: how long a repetition takes is what a step costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

WARM_UP = 12
"""Steps of each worker until the timeline repeats itself."""
STEPS = 24
"""Steps that are measured then: repetitions of one to four steps, and of six, end there."""
COOL_DOWN = 4
"""Steps after those, so that no worker that is measured finds the units idler than they are."""


@dataclass(frozen=True)
class Stage:
    """What a worker does in a step. `after` names stages of the same worker with a lag: `("scores", 1)` is that stage
    in the step before, `("scores", -1)` in the step that follows."""

    name: str
    unit: str
    clocks: float
    after: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Slot:
    """One stage on the timeline, in clocks."""

    worker: int
    step: int
    stage: Stage
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    stages: tuple[Stage, ...]
    workers: int
    slots: tuple[Slot, ...]

    @cached_property
    def clocks_of_step(self) -> float:
        """Clocks from one step of all workers to the next, once the timeline repeats itself."""
        last = self.stages[-1]
        ends = {(slot.worker, slot.step): slot.end for slot in self.slots if slot.stage == last}
        passed = (ends[worker, WARM_UP + STEPS - 1] - ends[worker, WARM_UP - 1] for worker in range(self.workers))
        return sum(passed) / (self.workers * STEPS)

    @cached_property
    def use(self) -> Mapping[str, float]:
        """The part of the time that each unit is busy, when the timeline repeats itself."""
        busy: dict[str, float] = defaultdict(float)
        for stage in self.stages:
            busy[stage.unit] += self.workers * stage.clocks
        return {unit: clocks / self.clocks_of_step for unit, clocks in busy.items()}

    def between(self, start: float, end: float) -> Iterator[Slot]:
        """The slots that begin in an interval."""
        return (slot for slot in self.slots if start <= slot.start < end)


def schedule(stages: Sequence[Stage], workers: int) -> Timeline:
    """Stages on a timeline, for so many workers (ValueError if a stage waits for itself, or for an unknown one)."""
    known = {stage.name: stage for stage in stages}
    for stage in stages:
        for name, _ in stage.after:
            if name not in known:
                raise ValueError(f"stage '{stage.name}' comes after '{name}', which is no stage")
    steps = WARM_UP + STEPS
    # A stage that waits for a later step needs that one on the timeline, too.
    ahead = max((-lag for stage in stages for _, lag in stage.after if lag < 0), default=0)
    beyond = steps + COOL_DOWN + ahead
    left = [(step, worker, i) for step in range(beyond) for worker in range(workers) for i in range(len(stages))]
    ends: dict[tuple[int, int, str], float] = {}
    free: dict[str, float] = defaultdict(float)
    ready: dict[tuple[int, int, int], float] = {}
    slots: list[Slot] = []
    while left:
        window = left[: 4 * workers * len(stages)]
        for each in window:
            if each not in ready and (time := _ready(stages[each[2]], each[0], each[1], ends, beyond)) is not None:
                ready[each] = time  # what it waits for has ended, and stays where it is
        found = [(max(ready[each], free[stages[each[2]].unit]), *each) for each in window if each in ready]
        if not found:
            raise ValueError(f"the stages {', '.join(known)} wait for each other")
        start, step, worker, i = min(found)
        stage = stages[i]
        end = start + stage.clocks
        ends[step, worker, stage.name] = free[stage.unit] = end
        slots.append(Slot(worker, step, stage, start, end))
        left.remove((step, worker, i))
    return Timeline(tuple(stages), workers, tuple(slot for slot in slots if slot.step < steps))


def _ready(
    stage: Stage, step: int, worker: int, ends: Mapping[tuple[int, int, str], float], steps: int
) -> float | None:
    """When all that a stage comes after has ended; None if that is not known yet."""
    ready = 0.0
    for name, lag in stage.after:
        if not 0 <= step - lag < steps:
            continue
        end = ends.get((step - lag, worker, name))
        if end is None:
            return None
        ready = max(ready, end)
    return ready
