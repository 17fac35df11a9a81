"""Bytes that the profiler counted at each level, from the CSV of NVIDIA's `ncu`."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import islice

METRICS = {"device": "dram__bytes.sum", "l2": "lts__t_bytes.sum"}
"""What is asked for, by level."""

MINUTES = 10


RUN = "kernels of a run:"
"""With a number behind it, what a command that is profiled says of each run."""


def read_counters(text: str) -> list[dict[str, float]]:
    """The metrics of the kernels in `ncu --csv --print-units base`, added up by level for each run that the command
    spoke of; without lines of the profiler, nothing."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    kernels: dict[str, dict[str, float]] = {}
    levels = {metric: level for level, metric in METRICS.items()}
    for row in csv.DictReader(StringIO("\n".join(lines[start:]))):
        level = levels.get(row.get("Metric Name", ""))
        if level is not None:
            kernels.setdefault(row["ID"], {})[level] = float(row["Metric Value"].replace(",", ""))
    counts = [int(line.removeprefix(RUN)) for line in lines if line.startswith(RUN)]
    if sum(counts) != len(kernels):
        return []
    left = iter(kernels.values())
    return [_sum(islice(left, count)) for count in counts]


def _sum(kernels: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kernel in kernels:
        for level, moved in kernel.items():
            found[level] = found.get(level, 0.0) + moved
    return found


def profile(command: Sequence[str]) -> list[dict[str, float]]:
    """What the runs of a command moved, under `ncu`; nothing where there is no profiler, or it may not count."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return []
    asked = [ncu, "--csv", "--print-units", "base", "--metrics", ",".join(METRICS.values()), *command]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    except subprocess.TimeoutExpired:
        return []
    return read_counters(done.stdout)
