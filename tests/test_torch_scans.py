"""Cumulative sums of PyTorch's graphs: each is right, also backwards and where elements are infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import treadle.torch

OPTIONS = {"backend": "emulator", "machine": "h100", "cpu_work": 1e12}


def report_of(function: Callable[..., Any], *given: torch.Tensor) -> Any:
    return treadle.torch.explain(function, given, options=OPTIONS | {"backend": "interpreter"})


def check(function: Callable[..., Any], *given: torch.Tensor, tolerance: float = 1e-5) -> None:
    compiled = torch.compile(function, backend="treadle", options=OPTIONS)
    torch.testing.assert_close(compiled(*given), function(*given), rtol=tolerance, atol=tolerance, equal_nan=True)
    torch._dynamo.reset()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sums_along_each_dimension(dim: int) -> None:
    check(lambda x: x.cumsum(dim).sin(), numbers(5, 37, 3))


def test_sums_from_each_on() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1).cumsum(-1).flip(-1) * 2

    (taken,) = report_of(function, numbers(5, 42)).taken
    assert any("cumsum_backwards" in each for each in taken.operations)
    check(function, numbers(5, 42))


def test_turned_along_another_dimension_it_is_something_else() -> None:
    report = report_of(lambda x: x.flip(0).cumsum(-1).flip(-1), numbers(5, 42))
    assert not any("cumsum_backwards" in each for taken in report.taken for each in taken.operations)
    check(lambda x: x.flip(0).cumsum(-1).flip(-1) * 2, numbers(5, 42))


def test_a_dimension_that_is_two_axes() -> None:
    """As a view has put them together: what whole rows before add, and the row's own."""
    check(lambda x: (x * 2).reshape(7, -1).cumsum(1) + x.reshape(7, 12), numbers(7, 4, 3))
    check(lambda x: x.reshape(7, -1).flip(1).cumsum(1).flip(1).reshape(7, 4, 3) + x, numbers(7, 4, 3))


def test_an_infinity_reaches_no_sum_that_it_is_not_in() -> None:
    given = numbers(3, 70)
    given[1, 40] = torch.inf
    given[2, 0] = torch.nan
    check(lambda x: x.cumsum(1) * 2, given)
    check(lambda x: x.flip(1).cumsum(1).flip(1) * 2, given)


def test_in_another_format() -> None:
    check(lambda x: x.cumsum(1, dtype=torch.float32) * 2, numbers(5, 33).half())


def test_what_stays_with_pytorch() -> None:
    report = report_of(lambda x: x.cumsum(0) + 1, numbers(5000))
    assert "a cumulative sum of few long rows" in [each.reason for each in report.left]
    report = report_of(lambda x: x.cumsum(1) + 1, torch.ones(3, 4, dtype=torch.int32))
    assert "64 bits" in report.left[0].reason


def test_the_gradient_is_a_sum_from_each_on() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.cumsum(1).sin() * 2).sum()

    expected, given = numbers(5, 33), numbers(5, 33)
    expected.requires_grad_()
    given.requires_grad_()
    function(expected).backward()
    torch.compile(function, backend="treadle", options=OPTIONS | {"training": True})(given).backward()
    torch.testing.assert_close(given.grad, expected.grad, rtol=1e-5, atol=1e-5)


def test_stick_breaking_attention() -> None:
    """Tan et al., arXiv 2410.17980, as a program of PyTorch writes it: logarithms of what earlier keys leave."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * 0.125
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
        rest = F.logsigmoid(-scores).masked_fill(~seen, 0)
        later = rest.flip(-1).cumsum(-1).flip(-1) - rest
        return (F.logsigmoid(scores) + later).exp().masked_fill(~seen, 0) @ v

    check(function, *(numbers(2, 3, 70, 64) for _ in range(3)), tolerance=1e-4)
