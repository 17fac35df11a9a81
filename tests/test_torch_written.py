# pyright: standard
"""Tensors that a loop writes part by part (`out[:, i] = ..`): all parts are put together at once, and nothing is moved
as often as there are parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_torch_operations import report_of

from treadle.torch import Report, pieces
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

Function = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def operations(report: Report) -> list[str]:
    """All that kernels or PyTorch do."""
    return [each for taken in report.taken for each in taken.operations] + [left.operation for left in report.left]


def states(count: int) -> Function:
    """Chunks of a sum whose state goes from one to the next."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out, state = torch.zeros_like(x), torch.zeros_like(w)
        for i in range(count):
            state = state * 0.5 + w
            out[:, i] = x[:, i] @ state
        return out

    return function


@pytest.mark.parametrize("count", [3, 12])
def test_all_parts_are_put_together_once(count: int) -> None:
    report = report_of(states(count), torch.randn(2, count, 16, 24), torch.randn(24, 24))
    found = operations(report)
    assert found.count("cat.default") == 1
    assert not {"where.self", "slice_scatter.default", "copy.default", "full_like.default"} & {*found}


def slices(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(2, 12, 20)
    for i in range(0, 12, 3):
        out[:, i : i + 3] = x[:, i : i + 3] * y
    return out


def last_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    for i in reversed(range(12)):
        out[:, i] = x[:, -1 - i] + y
    return out


def written_over(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of neighbours that are written twice, the later write counts; the last elements stay."""
    out = x.clone()
    for i in range(10):
        out[:, i : i + 2] = x[:, i : i + 2] * (i + 1) + y
    return out


def negative(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 12, 20)
    for i in range(12):
        out[:, i - 12] = x[:, i] - y
    return out


def converted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """To another format, and one row for all."""
    out = torch.zeros(2, 12, 20, dtype=torch.float16)
    for i in range(12):
        out[:, i] = x[0, i] * y
    return out


def read_again(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each row from the one before."""
    out = torch.zeros(2, 12, 20)
    out[:, 0] = x[:, 0]
    for i in range(1, 12):
        out[:, i] = out[:, i - 1] * 0.5 + x[:, i] * y
    return out


def read_whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """All that was written so far: no write may be left out."""
    out = torch.zeros(2, 12, 20)
    for i in range(12):
        out[:, i] = out.sum(1) * 0.125 + x[:, i] * y
    return out


def read_across(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows of which some were written."""
    out = x * 2
    for i in range(1, 12):
        out[:, i] = out[:, max(i - 3, 0) : i + 1].sum(1) * 0.25 + y
    return out


def two_dimensions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 12, 20)
    for i in range(12):
        out[:, i] = x[:, i] * y
    for j in range(20):
        out[:, :, j] = x[:, :, j] + out[:, :, j]
    return out


def transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 20, 12)
    for i in range(12):
        out[:, :, i] = x[:, i] * y
    return out.mT


def spaced(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 12, 20)
    for i in range(2):
        out[:, i::2] = x[:, i::2] * y + i
    return out


def one_alone(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x * y
    out[:, 3] = x[:, 5]
    return out


ALL: dict[str, Function] = {
    each.__name__: each
    for each in (
        *(slices, last_first, written_over, negative, converted, read_again, read_whole, read_across),
        *(two_dimensions, transposed, spaced, one_alone),
    )
}
AT_ONCE = {"slices", "last_first", "written_over", "negative", "converted", "read_again", "transposed"}


@pytest.mark.parametrize("name", ALL)
def test_results_are_eager_ones(name: str) -> None:
    report = report_of(ALL[name], torch.randn(2, 12, 20), torch.randn(20))
    if name in AT_ONCE:
        assert not {"where.self", "slice_scatter.default"} & {*operations(report)}, report


def test_what_comes_of_columns_is_left_where_it_lies() -> None:
    """Parts of which `cat` would make another order of memory."""

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(3, 2, 4, 5)
        for i in range(2):
            out[:, i] = x[i].permute(2, 0, 1) * 2
        return out

    report_of(function, torch.randn(2, 4, 5, 3))


@pytest.mark.parametrize("count", [3, 12])
def test_the_whole_lies_as_what_it_is_like(count: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for i in range(count):
            out[:, i] = x[:, i] * (i + 1)
        return out

    report = report_of(function, torch.randn(2, 16, count, 8).transpose(1, 2).transpose(2, 3))
    assert "slice_scatter.default" not in operations(report)


def test_lengths_that_vary() -> None:
    def function(x: torch.Tensor) -> Any:
        out = torch.zeros_like(x)
        for i in range(3):
            out[:, i] = x[:, i] * (i + 1)
        return out

    options = Options.of({"machine": "a100", "backend": "interpreter"})
    compiled = torch.compile(function, backend=make_backend(options, [].append), dynamic=True)
    for rows in (4, 7, 1):
        x = torch.randn(rows, 3, 10)
        torch.testing.assert_close(compiled(x), function(x))


def test_training() -> None:
    options = Options.of({"machine": "a100", "backend": "interpreter", "training": True})
    x, w = torch.randn(2, 12, 16, 24, requires_grad=True), torch.randn(24, 24, requires_grad=True)
    function = states(12)
    wanted = torch.autograd.grad(function(x, w).square().sum(), (x, w))
    compiled = torch.compile(function, backend=make_backend(options, [].append))
    found = torch.autograd.grad(compiled(x, w).square().sum(), (x, w))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_a_long_loop_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are substituted one after another: of each all those before it are read, so writes stay, and no piece
    holds more of them than fusion can try in time."""
    monkeypatch.setattr(pieces, "MOST_REDUCTIONS", 2)
    count = 7

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x * 0.5
        for i in range(1, count):
            row, rows = x[..., i, :i].clone(), x[..., :i, :i].clone()
            x[..., i, :i] = row + (row.unsqueeze(-1) * rows).sum(-2)
        return x

    report = report_of(function, torch.randn(3, count, count).tril(-1) / 8, backend="interpreter")
    sums = [sum(each.startswith("sum.") for each in taken.operations) for taken in report.taken]
    assert sum(sums) == count - 1
    assert max(sums) <= 2
