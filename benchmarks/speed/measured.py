"""Everybody on a case: first all are prepared, then they are measured in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import time
from typing import Any

import results

from speed.cases import Case
from speed.clock import ROUNDS, SAMPLE_SECONDS, Timer, repeats_of, turns
from speed.found import OURS, Found, Measured, is_ours
from speed.kernels import COPY, PEERS, SLOW, Prepared, Uploaded, inputs_of, prepare_torch, prepare_treadle
from speed.news import Job, News, Tell

WRONG = 0.02
"""Of the largest element of the first result: what differs by more is wrong, and its time is none."""

PREPARE_LIMIT, COMPILE_LIMIT, SAMPLE_LIMIT = 45, 240, 10
"""Seconds: to prepare a kernel, to prepare one that compiles for a minute, and to take a sample."""


class Comparison:
    """Of everybody on a case. What is known is told before each step, so that it is kept if that one never ends.
    `judge` says what is wrong with a result, or nothing."""

    def __init__(
        self,
        case: Case,
        timer: Timer,
        tell: Tell,
        sound: Callable[[], object],
        judge: Callable[[Any], str] = lambda result: "",
    ):
        self._case, self._timer, self._tell, self._sound, self._judge = case, timer, tell, sound, judge
        self._found: dict[str, Measured] = {}
        self._ready: dict[str, Prepared] = {}
        self._reference: Any = None
        self._most = 0.0

    def prepare(self, who: str, make: Callable[[], Prepared]) -> None:
        """And compare its result with the first that there is."""
        with self._step(who, COMPILE_LIMIT if who in SLOW else PREPARE_LIMIT, known=True):
            prepared = make()
            mine = self._found[who] = Measured(who, reason="it was not measured", launched=prepared.launched())
            result = prepared.result()
            if wrong := self._judge(result):
                self._found[who] = replace(mine, reason=wrong)
                return
            error = self._error(who, result)
            if error is not None and not error <= self._most:
                self._found[who] = replace(mine, reason=f"WRONG: it differs by {error:.3g}")
                return
            self._found[who], self._ready[who] = replace(mine, error=error), prepared

    def _error(self, who: str, result: Any) -> float | None:
        if who == COPY:
            return None
        if self._reference is None:
            self._reference, self._most = result, WRONG * largest(result)
        return largest_difference(result, self._reference)

    def measure(self, rounds: int = ROUNDS, sample: float = SAMPLE_SECONDS) -> Found:
        begin, repeats, seconds = time(), dict[str, int](), defaultdict[str, list[float]](list)
        for who in turns(list(self._ready), rounds):
            if (prepared := self._ready.get(who)) is None:
                continue
            with self._step(who, SAMPLE_LIMIT):
                count = repeats[who] = repeats.get(who) or repeats_of(prepared.call, self._timer, sample)
                seconds[who].append(self._timer(prepared.call, count) / count)
        for who in self._ready:
            self._found[who] = replace(self._found[who], reason="", seconds=results.Sample(tuple(seconds[who])))
        return Found(self._case, tuple(self._found.values()), (begin, time()))

    @contextmanager
    def _step(self, who: str, limit: float, known: bool = False) -> Iterator[None]:
        """Whatever somebody raises is its own: it is told, and the others go on, if the device does."""
        self._tell(News(who, limit, Found(self._case, tuple(self._found.values())) if known else None))
        try:
            yield
        except Exception as error:
            said = str(error).strip().splitlines()
            told = f"{type(error).__name__}: {said[0] if said else ''}"
            self._found[who] = replace(self._found.get(who, Measured(who)), reason=told)
            self._ready.pop(who, None)
            self._sound()


def measure_case(
    case: Case,
    makers: Mapping[str, Callable[[], Prepared]],
    timer: Timer,
    tell: Tell = lambda news: None,
    sound: Callable[[], object] = lambda: None,
) -> Found:
    """The first result that there is, treadle's aside, is what the others are compared with; who compiles for minutes
    comes behind treadle. `sound` raises what is the end of the process: after a fault a device does nothing more."""
    comparison = Comparison(case, timer, tell, sound)
    for who in sorted(makers, key=lambda each: (each in SLOW, is_ours(each))):
        comparison.prepare(who, makers[who])
    found = comparison.measure()
    tell(News(found=found))
    return found


def largest(array: Any) -> float:
    import numpy as np

    return float(np.max(np.abs(array.astype(np.float32)), initial=0))


def largest_difference(one: Any, other: Any) -> float:
    import numpy as np

    return largest(one.astype(np.float32) - other.astype(np.float32))


def measure_one_case(job: Job, device: str, timer: Timer, tell: Tell, sound: Callable[[], object]) -> None:
    """All but some on a case."""
    case, inputs = job.case, inputs_of(job.case)
    if job.ways:
        measure_ways(job, inputs, device, timer, tell, sound)
        return
    makers: dict[str, Callable[[], Prepared]] = {
        who: partial(prepare_torch, case, inputs, who) for who in PEERS[case.kind]
    }
    makers[OURS] = partial(prepare_treadle, case, inputs, device, job.lowered)
    makers |= {who: partial(prepare_treadle, case, inputs, device, lowered) for who, lowered in job.older.items()}
    measure_case(case, {who: make for who, make in makers.items() if who not in job.without}, timer, tell, sound)


WAYS_ROUNDS, WAYS_SAMPLE_SECONDS = 9, 0.03
"""Of ways beside each other, of which there are more."""


def measure_ways(
    job: Job, inputs: Sequence[Any], device: str, timer: Timer, tell: Tell, sound: Callable[[], object]
) -> Found:
    """Ways to make the kernels of a case, on the same arrays of the device, and who else is to be beside them. The
    first that is right at the places whose reference is known is what the others are compared with as a whole."""
    case, reference, uploaded = job.case, job.reference, Uploaded()

    def judge(result: Any) -> str:
        if reference is None:
            return ""
        verdict = reference.judge(case, result)
        return str(verdict) if verdict.wrong or verdict.note else ""

    comparison = Comparison(case, timer, tell, sound, judge)
    for who, lowered in job.ways.items():
        if who not in job.without:
            comparison.prepare(who, partial(prepare_treadle, case, inputs, device, lowered, uploaded))
    for who in job.beside:
        if who not in job.without:
            comparison.prepare(who, partial(prepare_torch, case, inputs, who))
    found = comparison.measure(WAYS_ROUNDS, WAYS_SAMPLE_SECONDS)
    tell(News(found=found))
    return found
