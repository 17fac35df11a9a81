# pyright: standard
"""Products of rows that are sorted by what they meet, which `torch.compile` finds as `torch._grouped_mm`: experts whose
tokens are sorted, as `transformers` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options
from treadle.torch.registry import aten

ROWS, EXPERTS, DEPTH, WIDTH = 40, 4, 64, 48

ENDS = ((8, 8, 24, 40), (0, 0, 0, 40), (40, 40, 40, 40), (1, 2, 39, 40), (10, 20, 30, 40))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(24)
    yield
    torch._dynamo.reset()


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and weights, in the format that PyTorch has such products in."""
    return torch.randn(ROWS, DEPTH).bfloat16(), torch.randn(EXPERTS, DEPTH, WIDTH).bfloat16()


def product(x: Any, w: Any, ends: Any) -> Any:
    return aten._grouped_mm(x, w, offs=ends)


def compiled(function: Callable[..., Any], report: Report, machine: str = "h100", **options: Any) -> Any:
    made = Options.of({"machine": machine, "backend": "emulator", "cpu_work": 1e10, **options})
    return torch.compile(function, backend=make_backend(made, report.graphs.append))


def close(found: torch.Tensor, wanted: torch.Tensor, unit: float = 2.0**-8) -> None:
    assert found.dtype == wanted.dtype
    most = wanted.float().abs().max().item()
    torch.testing.assert_close(found.float(), wanted.float(), atol=unit * most, rtol=0.0)


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_any_ends(machine: str) -> None:
    """Of one kernel, also where the rows of weights lie the other way."""
    report = Report()
    made = compiled(product, report, machine)
    x, w = operands()
    with torch.no_grad():
        for ends in ENDS:
            told = torch.tensor(ends, dtype=torch.int32)
            for weights in (w, w.transpose(1, 2).contiguous().transpose(1, 2)):
                close(made(x, weights, told), product(x, weights, told))
    assert {each.kernel.estimate.kernels for each in report.taken} == {1}
    assert not report.left, report


def of_columns(x: Any, w: Any, ends: Any) -> Any:
    return aten._grouped_mm(x.t(), w, offs=ends)


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_sums_over_ranges(machine: str, turned: bool) -> None:
    """Ranges without rows give zeros, and rows behind the last range count nowhere, whatever they are."""
    report = Report()
    made = compiled(of_columns, report, machine)
    x, w = torch.randn(ROWS, DEPTH).bfloat16(), torch.randn(ROWS, WIDTH).bfloat16()
    if turned:
        x, w = (each.t().contiguous().t() for each in (x, w))
    with torch.no_grad():
        for ends in (*ENDS, (0, 0, 0, 0), (3, 3, 9, 17)):
            told = torch.tensor(ends, dtype=torch.int32)
            found, wanted = made(x, w, told), of_columns(x, w, told)
            close(found, wanted)
            assert found.stride() == wanted.stride()
            assert all((found[i] == 0).all() for i in range(EXPERTS) if ends[i] == (0, *ends)[i])
    assert {each.kernel.estimate.kernels for each in report.taken} == {1}
    assert not report.left, report


def experts(x: Any, up: Any, down: Any, ends: Any) -> Any:
    gate, value = aten._grouped_mm(x, up, offs=ends).chunk(2, -1)
    return aten._grouped_mm(F.silu(gate) * value, down, offs=ends)


def test_what_is_between_two() -> None:
    report = Report()
    x, up, down = (torch.randn(shape).bfloat16() / 4 for shape in ((40, 64), (4, 64, 128), (4, 64, 64)))
    ends = torch.tensor(ENDS[0], dtype=torch.int32)
    with torch.no_grad():
        close(compiled(experts, report)(x, up, down, ends), experts(x, up, down, ends), 2.0**-6)
    assert not any("grouped" in each.operation or "silu" in each.operation for each in report.left), report


def test_they_are_trained() -> None:
    """The gradient of the weights, which sums over rows of ranges, is a kernel as that of the rows is."""
    report = Report()
    made = compiled(product, report, training=True)
    x, w = (
        torch.randn(ROWS, DEPTH).bfloat16().requires_grad_(),
        torch.randn(EXPERTS, DEPTH, WIDTH).bfloat16().requires_grad_(),
    )
    ends = torch.tensor(ENDS[0], dtype=torch.int32)
    got, want = (torch.autograd.grad(function(x, w, ends).float().sin().sum(), (x, w)) for function in (made, product))
    for a, b in zip(got, want, strict=True):
        close(a, b, 2.0**-6)
    assert not any("grouped" in each.operation for each in report.left), report


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, ends: aten._grouped_mm(x, w[:1], offs=ends[3:]),
        lambda x, w, ends: aten._grouped_mm(x, w, offs=ends, out_dtype=torch.bfloat16),
        lambda x, w, ends: aten._grouped_mm(x.t().contiguous(), x, offs=ends),
        lambda x, w, ends: aten._grouped_mm(x.t(), x, offs=ends[3:]),
        lambda x, w, ends: aten._grouped_mm(x.t(), x.cos(), offs=ends),
        lambda x, w, ends: aten._grouped_mm(x.view(4, 10, 64), w),
        lambda x, w, ends: aten._grouped_mm(x, w, offs=ends.clamp(max=50) + 0),
    ],
    ids=[
        "of one",
        "a format",
        "sums over rows",
        "sums over one range",
        "of what is computed",
        "batches",
        "computed ends",
    ],
)
def test_others_are_right(function: Callable[..., Any]) -> None:
    x, w = operands()
    ends = torch.tensor((8, 16, 24, 40), dtype=torch.int32)
    with torch.no_grad():
        close(compiled(function, Report())(x, w, ends), function(x, w, ends))
