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
    """Of one command of `treadle`. `environment` is added to ours."""
    return in_turn({"": treadle(*arguments)}, runs, environment)[""]


def treadle(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "treadle.compiler.main", *arguments]


def in_turn(
    commands: Mapping[str, Sequence[str]], runs: int, environment: Mapping[str, str] | None = None
) -> dict[str, Process]:
    """Every command once, then every command again, so that a minute in which the machine is slow is slow for all. The
    first round is not counted: it may have to write Python's bytecode, as an installation has it."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall: dict[str, list[float]] = {name: [] for name in commands}
    work: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            start, worked = perf_counter(), _worked()
            subprocess.run(command, check=True, capture_output=True, env={**own, **(environment or {})})
            wall[name].append(perf_counter() - start)
            work[name].append(_worked() - worked)
    return {
        name: Process(results.Sample(tuple(wall[name][1:])), results.Sample(tuple(work[name][1:]))) for name in commands
    }


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
