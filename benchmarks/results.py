"""How results are kept: a JSON file that says what was measured, on what kind of machine and when, and a table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parent / "results"
RESULTS = Path(os.environ.get("TREADLE_RESULTS") or KEPT)
"""Where results are written, unless $TREADLE_RESULTS says another place than where they are kept."""
LABEL = "TREADLE_RESULTS_LABEL"
"""What is appended to the names of results: where a run is not to replace another one of the day."""


def machine_in_words(device: str | None = None) -> str:
    """`2 x86-64 cores`, or the name of a GPU: no name of a host, no path."""
    if device is not None:
        return device
    names = {"x86_64": "x86-64", "AMD64": "x86-64", "arm64": "aarch64"}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    kind = names.get(platform.machine(), platform.machine())
    return f"{cores} {kind} core{'' if cores == 1 else 's'}"


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        """To 10 nanoseconds: the shortest kernels take 3 microseconds."""
        rounded = [round(each, 8) for each in self.seconds]
        return {"median": round(self.median, 8), "least": min(rounded), "most": max(rounded), "runs": len(rounded)}


def write(what: str, data: Mapping[str, Any], machine: str | None = None, folder: Path | None = None) -> Path:
    """Keep a result as `<what>-<machine>-<date>.json`; a second one of a day replaces the first, unless it is
    labelled."""
    machine = machine or machine_in_words()
    folder = folder or RESULTS
    path = folder / f"{name_of(what, machine)}.json"
    whole = {"what": what, "machine": machine, "date": today(), "python": python(), **data}
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def name_of(what: str, machine: str) -> str:
    """Of a file, without what it ends with."""
    return f"{what}-{slug(machine)}-{today()}{os.environ.get(LABEL, '')}"


def free_label(machine: str, label: str = "") -> str:
    """A label that no result of a machine has today: as given, or with `-2`, `-3`, ... behind."""
    names = [path.stem for folder in {KEPT, RESULTS} for path in folder.glob(f"*-{slug(machine)}-{today()}*")]
    labels = [label, *(f"{label}-{number}" for number in range(2, len(names) + 3))]
    return next(label for label in labels if not any(name.endswith(f"{today()}{label}") for name in names))


def slug(machine: str) -> str:
    """A name of a machine in names of files."""
    return "-".join("".join(c if c.isalnum() else " " for c in machine.lower()).split())


def today() -> str:
    return date.today().isoformat()


def python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first is text, the others are numbers."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            each.ljust(width) if i == 0 else each.rjust(width)
            for i, (each, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    return "\n".join([line(head), *(line(row) for row in rows)])


def goal(value: float, bound: float) -> str:
    return f"goal {bound:g}: {'met' if value <= bound else 'not met'}"
