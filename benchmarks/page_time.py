"""How long `treadle compile --html` takes for every example, with what nvcc made in the cache, and without nvcc."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import programs
import results
from processes import Process, measure

GOAL = 3.0
"""Seconds, on 2 x86-64 cores, for any example."""

MACHINES = ("a100", "h100")
SHOWN = 10
"""Pages that are measured repeatedly: those for which processors worked longest the first time."""

NO_NVCC = {"CUDACXX": "nvcc-that-is-not-there"}


@dataclass(frozen=True)
class Page:
    """What is compiled, and whether nvcc is found."""

    example: str
    machine: str
    nvcc: bool = True

    def __str__(self) -> str:
        return f"{self.example}, {self.machine}{'' if self.nvcc else ', no nvcc'}"

    def measure(self, runs: int) -> Process:
        """After one run that is not counted: nvcc may have to compile in it."""
        with tempfile.TemporaryDirectory() as folder:
            file, page = programs.EXAMPLES / f"{self.example}.mlir", Path(folder) / "page.html"
            command = ["compile", str(file), "--machine", self.machine, "--html", str(page)]
            return measure(command, runs, {} if self.nvcc else NO_NVCC)


def slowest_pages(runs: int) -> dict[Page, Process]:
    """Of every example on every machine, slowest first, with nvcc and without."""
    found: dict[Page, Process] = {}
    for nvcc in (True, False):
        pages = [
            Page(file.stem, machine, nvcc) for file in sorted(programs.EXAMPLES.glob("*.mlir")) for machine in MACHINES
        ]
        once = {page: page.measure(1).work.median for page in pages}
        found |= {page: page.measure(runs) for page in sorted(pages, key=lambda each: -once[each])[:SHOWN]}
    return dict(sorted(found.items(), key=lambda item: -item[1].wall.median))


def rows(pages: Mapping[Page, Process]) -> list[list[str]]:
    return [
        [f"page of {page}", f"{found.wall.median:.2f} s", f"{found.work.median:.2f} s", ""]
        for page, found in pages.items()
    ]


def verdict(pages: Mapping[Page, Process]) -> str:
    """Whether every page is there in time."""
    return f"page of any example {results.goal(max(found.wall.median for found in pages.values()), GOAL)}"


def as_json(pages: Mapping[Page, Process]) -> dict[str, Any]:
    return {
        "goal": GOAL,
        "measured": f"every example on {' and '.join(MACHINES)} once, the slowest {SHOWN} repeatedly",
        "slowest": {
            str(page): {"waited": found.wall.as_json(), "worked": found.work.as_json()} for page, found in pages.items()
        },
    }
