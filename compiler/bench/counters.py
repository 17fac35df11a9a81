"""Bytes that the profiler counted at each level, from the CSV of NVIDIA's `ncu`."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from io import StringIO

METRICS = {"device": "dram__bytes.sum", "l2": "lts__t_bytes.sum"}
"""What is asked for, by level."""

MINUTES = 10


def read_counters(text: str) -> dict[str, float]:
    """The metrics of all kernels in `ncu --csv --print-units base`, added up by level; without lines, nothing."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    levels = {metric: level for level, metric in METRICS.items()}
    found: dict[str, float] = {}
    for row in csv.DictReader(StringIO("\n".join(lines[start:]))):
        level = levels.get(row.get("Metric Name", ""))
        if level is not None:
            found[level] = found.get(level, 0.0) + float(row["Metric Value"].replace(",", ""))
    return found


def profile(command: Sequence[str]) -> Mapping[str, float] | None:
    """Run a command under `ncu`; None where there is no profiler, or it may not count."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return None
    asked = [ncu, "--csv", "--print-units", "base", "--metrics", ",".join(METRICS.values()), *command]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    except subprocess.TimeoutExpired:
        return None
    return read_counters(done.stdout) or None
