# pyright: standard
"""Pieces of a PyTorch graph are chosen by what their kernels would take, and kernels are made of those alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from treadle import estimated
from treadle.compiler.errors import TreadleError, describe
from treadle.torch import compiled_graph, program
from treadle.torch.backend import make_backend
from treadle.torch.options import Options
from treadle.torch.report import GraphReport


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(5)
    yield
    torch._dynamo.reset()


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.t(), -1) @ v


def compared(dynamic: bool = False) -> GraphReport:
    reports: list[GraphReport] = []
    given = [torch.randn(size, 8) for size in (5, 9, 9)]
    made = torch.compile(
        attention, backend=make_backend(Options(backend="interpreter"), reports.append), dynamic=dynamic
    )
    torch.testing.assert_close(made(*given), attention(*given), atol=1e-5, rtol=1e-5)
    (report,) = reports
    return report


def test_only_what_is_chosen_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, made, attempt, kernel_of = [0], [0], compiled_graph._attempt, compiled_graph._kernel_of

    def counted(*given: Any) -> Any:
        asked[0] += 1
        return attempt(*given)

    def made_of(*given: Any) -> Any:
        made[0] += 1
        return kernel_of(*given)

    monkeypatch.setattr(compiled_graph, "_attempt", counted)
    monkeypatch.setattr(compiled_graph, "_kernel_of", made_of)
    (taken,) = compared().taken
    assert taken.operations
    assert asked[0] > 1
    assert made[0] == 2, "once to see that it can be made, once to launch it"


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_cannot_be_made_is_cut_elsewhere(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass may refuse after all that the cost model asks for: then it is as if it had refused before."""
    refused: list[str] = []
    kernel_of = compiled_graph._kernel_of

    def first_refused(program: Any, options: Options) -> Any:
        text = str(program.module)
        if not refused or text in refused:
            refused.append(text)
            raise TreadleError("there is no code for it")
        return kernel_of(program, options)

    monkeypatch.setattr(compiled_graph, "_kernel_of", first_refused)
    report = compared(dynamic)
    assert refused
    assert report.taken, report
    assert not any("no code" in each.reason for each in report.left), report


def failing_once(programs: list[str]) -> Callable[..., Any]:
    """A pass that makes a mistake at the first program that has two products."""
    estimate = estimated.estimate

    def estimated_of(program: Any, **options: Any) -> Any:
        text = str(program)
        if text.count("diagram.contract") == 2:
            programs.append(text)
            raise describe(IndexError("a mistake of ours"))
        return estimate(program, **options)

    return estimated_of


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_mistake_of_a_pass_is_told_once(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph is cut because of it, which gives the right numbers and says nothing of why it is slower."""
    failed: list[str] = []
    monkeypatch.setattr(estimated, "estimate", failing_once(failed))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        report = compared(dynamic)
    assert failed
    (warning,) = [str(each.message) for each in told if "treadle" in str(each.message)]
    assert "treadle failed at mm.default" in warning
    assert "softmax" in warning
    assert "written as return torch.softmax(q @ k.t(), -1) @ v" in warning
    assert "please report it: IndexError: a mistake of ours (TREADLE_TRACEBACK=1 shows where)" in warning
    assert report.taken


def test_a_mistake_in_a_translation_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an operation, and of a whole program; both stay with PyTorch, and where it was is shown if that is asked."""

    def failing(*_: Any) -> Any:
        raise KeyError("a mistake of ours")

    monkeypatch.setenv("TREADLE_TRACEBACK", "1")
    monkeypatch.setattr(compiled_graph, "outputs_of", failing)
    with pytest.warns(RuntimeWarning, match=r"treadle failed at .*KeyError: 'a mistake of ours'"):
        assert not compared().taken
    assert "in failing" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(program.Translation, "made", failing)
    torch._dynamo.reset()
    with pytest.warns(
        RuntimeWarning, match=r"treadle failed at it \(KeyError: 'a mistake of ours'\): please report it"
    ):
        assert not compared().taken


def test_a_refusal_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any) -> Any:
        raise TreadleError("not that")

    monkeypatch.setattr(compiled_graph, "outputs_of", refusing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {each.reason for each in compared().left} == {"not that"}
