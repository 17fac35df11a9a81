"""Whole processes of `treadle`, as a user waits for them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import results


@dataclass(frozen=True)
class Process:
    """Whole processes: the time that a user waits, and the time that processors work."""

    wall: results.Sample
    work: results.Sample


def measure(arguments: Sequence[str], runs: int, environment: Mapping[str, str] | None = None) -> Process:
    """The first run is not counted: it may have to write Python's bytecode. `environment` is added to ours."""
    wall: list[float] = []
    work: list[float] = []
    command = [sys.executable, "-m", "treadle.compiler.main", *arguments]
    for _ in range(runs + 1):
        start, worked = perf_counter(), _worked()
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **(environment or {})})
        wall.append(perf_counter() - start)
        work.append(_worked() - worked)
    return Process(results.Sample(tuple(wall[1:])), results.Sample(tuple(work[1:])))


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
