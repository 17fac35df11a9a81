# pyright: standard
"""Pieces of a PyTorch graph are chosen by what their kernels would take, and kernels are made of those alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from treadle.compiler.errors import TreadleError
from treadle.torch import compiled_graph
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
