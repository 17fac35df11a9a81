"""Which tests run without `--all`: of a grid a sample, and of what takes long as many cases as a budget holds."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest

SECONDS = Path(__file__).parent / "seconds.json"
"""What a case of a test took, one of many at once on one machine. Written by `pytest --write-seconds`."""

LISTED, QUICK = 3.0, 0.1
"""Seconds: of all cases of a test that is listed, and of one of a test that never is."""


def name_of(item: pytest.Item) -> str:
    """The test that an item is a case of."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def short(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Without --all: nothing that is marked `full`, and a sample of each grid that is marked so."""
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(pytest.mark.skip(reason="long: runs with --all (make test-all)"))
    grids: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None and item.get_closest_marker("full") is None:
            grids[f"{item.path}::{getattr(item, 'originalname', item.name)}"].append(item)
    return _without_rest(items, {name: (grid, _marked(name, grid)) for name, grid in grids.items()})


def within(items: Sequence[pytest.Item], budget: float, seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Of each test as many cases as use up `budget` seconds, by what a case of it took before; all of a test that is
    not listed, or marked `whole`."""
    grids: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if name_of(item) in seconds and not any(map(item.get_closest_marker, ("full", "whole"))):
            grids[name_of(item)].append(item)
    few = {name: _sample(name, grid, ceil(budget / seconds[name]), each=False) for name, grid in grids.items()}
    return _without_rest(items, {name: (grid, few[name]) for name, grid in grids.items()})


def _without_rest(
    items: Sequence[pytest.Item], grids: Mapping[str, tuple[Sequence[pytest.Item], set[pytest.Item]]]
) -> list[pytest.Item]:
    left_out = {item for grid, kept in grids.values() for item in grid if item not in kept}
    return [item for item in items if item not in left_out]


def _marked(name: str, grid: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Where several parameters make the grid, each value of each is there at least once, unless the marker says
    `each=False`."""
    marker = grid[0].get_closest_marker("sample")
    assert marker is not None
    return _sample(name.rsplit("/", 1)[-1], grid, marker.args[0], each=marker.kwargs.get("each", True))


def _sample(name: str, grid: Sequence[pytest.Item], count: int, *, each: bool) -> set[pytest.Item]:
    """The same cases in every process and on every day: the name of the test is the seed. Of a grid of several
    parameters first those with new values, all of them if `each`."""
    shuffled = list(grid)
    random.Random(name).shuffle(shuffled)
    enough = len(grid) if each else count
    kept: set[pytest.Item] = set()
    seen: set[tuple[str, str]] = set()
    for item in shuffled:
        callspec: Any = getattr(item, "callspec", None)
        values: set[tuple[str, str]] = (
            {(key, repr(value)) for key, value in callspec.params.items()} if callspec else set()
        )
        if len(kept) < enough and len(values) > 1 and values - seen:
            kept.add(item)
            seen |= values
    for item in shuffled:
        if len(kept) >= count:
            break
        kept.add(item)
    return kept


class Recorder:
    """What the cases of each test take, in the process that gathers the reports of all."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, float]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, case = report.nodeid.partition("::")
        cases = self.taken[f"{Path(file).name}::{case.partition('[')[0]}"]
        cases[case] = cases.get(case, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        write(updated(read(), self.taken))


def updated(before: Mapping[str, float], taken: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Seconds of a case of each test that is long, or was: perhaps only some of its cases ran now. Of what did not run,
    what was there before."""
    means = {name: sum(cases.values()) / len(cases) for name, cases in taken.items()}
    long = {name for name, mean in means.items() if mean >= QUICK and mean * len(taken[name]) >= LISTED}
    kept = {name for name in before if means.get(name, QUICK) >= QUICK}
    return {name: round(means[name], 1) if name in means else before[name] for name in long | kept}


def read() -> dict[str, float]:
    return json.loads(SECONDS.read_text()) if SECONDS.exists() else {}


def write(seconds: Mapping[str, float]) -> None:
    SECONDS.write_text(json.dumps(dict(sorted(seconds.items())), indent=1) + "\n")
