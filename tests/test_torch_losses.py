"""Losses over classes, as PyTorch writes them: rows are read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import treadle.torch

OPTIONS = {"machine": "h100", "cpu_work": 1e12}


def distillation(a: Tensor, b: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(a / 2, -1), F.softmax(b / 2, -1), reduction="batchmean") * 4


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "distillation": distillation,
    "divergence": lambda a, b: F.kl_div(a.log_softmax(-1), b.log_softmax(-1), reduction="sum", log_target=True),
    "soft_targets": lambda a, b: F.cross_entropy(a, b.softmax(-1)),
    "entropy": lambda a, b: -(F.log_softmax(a + b, -1).exp() * F.log_softmax(a + b, -1)).sum(-1),
    "entropy_by_log_sum_exp": lambda a, b: torch.logsumexp(a, -1) - (torch.softmax(a, -1) * a).sum(-1),
    "entr": lambda a, b: torch.special.entr(torch.softmax(a, -1)).sum(-1),
}


def laws(report: Any) -> set[str]:
    return {step.law for part in report.taken for step in part.kernel.derivation if step.rewrite == "streaming"}


@pytest.mark.parametrize("name", LOSSES)
def test_rows_are_read_once(name: str) -> None:
    rows = torch.randn(64, 40000), torch.randn(64, 40000)
    report = treadle.torch.explain(LOSSES[name], rows, options=OPTIONS)
    assert report.taken
    assert "recomputation" not in laws(report)


@pytest.mark.parametrize("name", LOSSES)
def test_as_pytorch_says(name: str) -> None:
    torch.manual_seed(0)
    a, b = (3 * torch.randn(5, 700) for _ in range(2))
    b[0, :300] = -1e4  # shares that are zero in f32, which count as nothing
    got = torch.compile(LOSSES[name], backend="treadle", options=OPTIONS)(a, b)
    torch.testing.assert_close(got, LOSSES[name](a.double(), b.double()).float(), rtol=3e-5, atol=3e-5)


ENDLESS = torch.tensor([[torch.inf, 1.0], [-torch.inf, -torch.inf], [torch.nan, 1.0], [-torch.inf, 2.0]])


@pytest.mark.parametrize(
    ("tensor", "dims", "keepdim"),
    [
        (ENDLESS, -1, False),
        (ENDLESS, 0, True),
        (torch.randn(4, 5, 6), (0, 2), False),
        (torch.randn(4, 5, 6).half(), (0, 2), True),
        (torch.randn(()), 0, False),
    ],
    ids=["endless", "endless columns", "two", "half", "no dimension"],
)
def test_log_sum_exp(tensor: Tensor, dims: Any, keepdim: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.logsumexp(x, dims, keepdim)

    got = torch.compile(function, backend="treadle", options=OPTIONS)(tensor)
    torch.testing.assert_close(got, function(tensor), equal_nan=True)
