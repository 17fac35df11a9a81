"""Processes that measure, watched: one that says nothing for too long is ended, and where one ends another goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from time import monotonic

import checks

from speed.found import Found, Measured
from speed.news import Job, News

BEGIN_LIMIT = 120
"""Seconds until there are first news of a case: Python, PyTorch, the device and the inputs are behind them."""
DID_NOT_END, TIME_IS_OVER = "it did not end", "the time is over"

Command = Callable[[int], Sequence[str]]
"""Of a file descriptor: a process that takes jobs there, and gives news."""


class Stopped(Exception):
    """A process ended before its case was done, or was ended."""


class Child:
    """A process that measures cases."""

    def __init__(self, command: Command):
        self._connection, theirs = Pipe()
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (until it ends)
        with theirs:
            self._process = subprocess.Popen(
                command(theirs.fileno()),
                cwd=checks.ROOT,
                stdout=self._said,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def measure(self, job: Job, until: float) -> Iterator[News]:
        """News of a case, in the last of which nobody is at work (Stopped)."""
        try:
            self._connection.send(job)
            news = self._next(BEGIN_LIMIT, until)
            while news.at:
                yield news
                news = self._next(news.limit, until)
            yield news
        except (EOFError, OSError) as error:
            raise Stopped(self._how_it_ended()) from error

    def _next(self, limit: float, until: float) -> News:
        if self._connection.poll(max(0.0, min(limit, until - monotonic()))):
            return self._connection.recv()
        raise Stopped(TIME_IS_OVER if monotonic() >= until else DID_NOT_END)

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        lines = self._last_lines().splitlines()
        return f"its process ended ({self._process.returncode}): {lines[-1].strip() if lines else 'it said nothing'}"

    def end(self) -> str:
        """With all processes that it started; what it said last."""
        self._connection.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._said:
            return self._last_lines()

    def _last_lines(self) -> str:
        self._said.seek(0)
        return checks.last_lines(self._said.read())


class Watch:
    """Measures cases, one after another. Who stops a process is told, and left out on that case from then on: it is
    measured again without."""

    def __init__(
        self,
        command: Command,
        until: float,
        found: Callable[[Found, bool], object],
        ended: Callable[[checks.Done], object],
    ):
        """`found` is told what is known of a case, and whether that is all; `ended`, how a process did on a case."""
        self._command, self._until, self._found, self._ended = command, until, found, ended
        self._child: Child | None = None
        self._out: dict[str, dict[str, str]] = {}
        """Who is left out, and why, by case."""

    def measure(self, job: Job) -> None:
        while monotonic() < self._until and self._stops(job):
            pass

    def close(self) -> str:
        """What the process said last."""
        child, self._child = self._child, None
        return child.end() if child is not None else ""

    def _stops(self, job: Job) -> bool:
        """Whether there is somebody who stopped the process."""
        case, without = job.case, job.without
        start, at, known, out = monotonic(), "", Found(case, ()), self._out.setdefault(str(case), {})
        child = self._child = self._child or Child(self._command)
        try:
            for news in child.measure(replace(job, without=(*without, *out)), self._until):
                at, known = news.at, news.found or known
                if news.found is not None:
                    self._found(_with(known, {**out, at: DID_NOT_END} if at else out), not at)
        except Stopped as stop:
            said = self.close()
            if at:
                out[at] = str(stop)
                self._found(_with(known, out), False)
            if str(stop) != TIME_IS_OVER:
                what = f"{case}: {at}" if at else str(case)
                self._ended(checks.Done(what, False, monotonic() - start, f"{said}\n{stop}".strip()))
            return bool(at)
        self._ended(checks.Done(str(case), True, monotonic() - start))
        return False


def _with(found: Found, reasons: Mapping[str, str]) -> Found:
    """What is known, and why there is no time of some."""
    others = [each for each in found.measured if each.who not in reasons]
    return Found(found.case, [*others, *(Measured(who, reason=why) for who, why in reasons.items())], found.span)
