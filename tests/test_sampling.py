# pyright: standard
"""What runs without `--all`: of long tests as many cases as a budget holds, the same ones in every process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sampling
from sampling import Recorder, updated, within


class Case:
    """A case of a test with parameters `a` and `b`, as pytest has it."""

    def __init__(self, test: str, a: int, b: int = 0, mark: str = ""):
        self.path, self.originalname, self.name = Path("tests/test_x.py"), test, f"{test}[{a}-{b}]"
        self.callspec = SimpleNamespace(params={"a": a, "b": b})
        self.mark = mark

    def get_closest_marker(self, name: str) -> object:
        return object() if name == self.mark else None


def kept(cases: list[Any], budget: float, **seconds: float) -> list[Any]:
    return within(cases, budget, {f"test_x.py::{test}": each for test, each in seconds.items()})


def test_as_many_cases_as_use_up_the_budget() -> None:
    cases = [Case("test_long", a) for a in range(20)]
    assert [len(kept(cases, 6, test_long=each)) for each in (0.1, 1.0, 2.5, 6.0, 100.0)] == [20, 6, 3, 1, 1]


def test_of_several_parameters_with_as_many_values_as_there_can_be() -> None:
    cases = [Case("test_long", a, b) for a in range(4) for b in range(3)]
    few = kept(cases, 6, test_long=1.5)
    assert len(few) == 4
    assert len({case.callspec.params["a"] for case in few}) + len({case.callspec.params["b"] for case in few}) >= 6


def test_the_same_cases_whatever_the_order() -> None:
    cases = [Case("test_long", a) for a in range(20)]
    assert kept(cases, 3, test_long=1) == kept(list(cases), 3, test_long=1)
    assert kept(cases, 3, test_long=1) != kept([Case("test_other", a) for a in range(20)], 3, test_other=1)


def test_what_is_not_listed_or_does_not_run_stays() -> None:
    cases = [Case("test_short", a) for a in range(20)] + [Case("test_long", a, mark="full") for a in range(3)]
    cases += [Case("test_page", a, mark="whole") for a in range(3)]
    assert kept(cases, 1, test_long=10, test_page=10) == cases


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means over cases, whose set-up counts; a bracket or a slash in a parameter ends no name."""
    monkeypatch.setattr(sampling, "SECONDS", tmp_path / "seconds.json")
    sampling.write({"test_x.py::test_did_not_run": 9.0})
    recorder = Recorder()
    for case, seconds in (("test_long[a/b::c]", 2), ("test_long[[d]]", 3), ("test_long[[d]]", 1), ("test_short", 1)):
        report: Any = SimpleNamespace(nodeid=f"tests/test_x.py::{case}", duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    written = json.loads((tmp_path / "seconds.json").read_text())
    assert written == {"test_x.py::test_did_not_run": 9.0, "test_x.py::test_long": 3.0}


@pytest.mark.parametrize(
    ("before", "cases", "after"),
    [
        ({}, [0.05] * 1000, {}),  # though long together: who leaves some out saves nothing
        ({}, [2.9], {}),
        ({}, [3.04], {"x": 3.0}),
        ({"x": 3.0}, [1.26], {"x": 1.3}),  # perhaps one of many cases
        ({"x": 3.0}, [0.04], {}),
    ],
)
def test_what_is_listed(before: dict[str, float], cases: list[float], after: dict[str, float]) -> None:
    assert updated(before, {"x": {str(number): each for number, each in enumerate(cases)}}) == after


def test_every_listed_test_is_there() -> None:
    """A test of another name would run whole."""
    for name in sampling.read():
        file, _, test = name.partition("::")
        assert f"def {test}(" in (Path(__file__).parent / file).read_text(), name
