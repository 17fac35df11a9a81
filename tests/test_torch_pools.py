# pyright: standard
"""The largest elements of windows, and elements that are repeated: as eager PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of

from treadle.torch import explain

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


LARGEST: dict[str, tuple[Function, torch.Tensor]] = {
    "halves": (lambda x: F.max_pool2d(x.relu(), 2) + 1, r(2, 3, 6, 8)),
    "what is left over": (lambda x: F.max_pool2d(x.tanh(), 2) + 1, r(2, 3, 7, 9)),
    "one image": (lambda x: F.max_pool2d(x.tanh(), 2) + 1, r(3, 6, 8)),
    "windows that overlap": (lambda x: F.max_pool2d(x.tanh(), 3, 2) + 1, r(2, 3, 9, 7)),
    "of two sizes": (lambda x: F.max_pool2d(x.tanh(), (1, 4), (1, 3)) + 1, r(2, 3, 5, 11)),
    "with gaps": (lambda x: F.max_pool2d(x.tanh(), 2, 2, dilation=3) + 1, r(2, 3, 9, 9)),
    "to an end that is one": (lambda x: F.max_pool2d(x.tanh(), 2, ceil_mode=True) + 1, r(2, 3, 6, 8)),
    "of one row": (lambda x: F.max_pool2d(x.tanh(), (1, 2)) + 1, r(2, 3, 1, 8)),
    "along a line": (lambda x: F.max_pool1d(x.tanh(), 3) + 1, r(2, 3, 11)),
    "in f16": (lambda x: F.max_pool2d(x.relu(), 2) + 1, r(2, 3, 6, 8, dtype=torch.float16)),
    "in bf16": (lambda x: F.max_pool2d(x.relu(), 2) * 2, r(2, 3, 6, 8, dtype=torch.bfloat16)),
    "channels last": (lambda x: F.max_pool2d(x.tanh(), 2) + 1, r(2, 3, 6, 8).to(memory_format=torch.channels_last)),
}


@pytest.mark.parametrize("case", LARGEST)
def test_the_largest_of_windows(case: str) -> None:
    function, x = LARGEST[case]
    nothing_is_left(report_of(function, x))


def test_the_largest_may_be_no_number() -> None:
    x = r(2, 3, 6, 8)
    x[0, 1, 2, 3], x[1, 2, 5, 7], x[1, 0, :2, :2] = nan, inf, -inf
    nothing_is_left(report_of(lambda x: F.max_pool2d(x * 2, 2) + 1, x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x.relu(), 3, 2, 1) + 1,
        lambda x: F.max_pool2d(x.relu(), 3, 1) + 1,
        lambda x: F.max_pool2d(x.relu(), 4) + 1,
        lambda x: F.max_pool2d(x.relu(), 2, return_indices=True)[1] + 1,
        lambda x: F.max_pool2d(x.relu(), 2, return_indices=True),
    ],
)
def test_what_pytorch_does_faster(function: Function) -> None:
    report = report_of(function, r(2, 3, 9, 9))
    (reason,) = {each.reason for each in report.left if "max_pool" in each.operation}
    assert "three times" in reason


def test_windows_that_go_past_the_end() -> None:
    report = report_of(lambda x: F.max_pool2d(x.relu(), 2, ceil_mode=True) + 1, r(2, 3, 9, 7))
    assert any("past the end" in each.reason for each in report.left)


REPEATED: dict[str, tuple[Function, torch.Tensor]] = {
    "twice": (lambda x: F.interpolate(F.silu(x), scale_factor=2) * 2, r(2, 3, 5, 7)),
    "of two factors": (lambda x: F.interpolate(F.silu(x), scale_factor=(3, 2)) * 2, r(2, 3, 4, 5)),
    "to a size": (lambda x: F.interpolate(F.silu(x), (10, 7)) * 2, r(2, 3, 5, 7)),
    "to one number": (lambda x: F.interpolate(F.silu(x), size=12) * 2, r(2, 3, 4, 6)),
    "along a line": (lambda x: F.interpolate(F.silu(x), scale_factor=4.0) * 2, r(2, 3, 5)),
    "of one column": (lambda x: F.interpolate(F.silu(x), scale_factor=3) * 2, r(2, 3, 4, 1)),
    "volumes": (lambda x: F.interpolate(F.silu(x), scale_factor=2) * 2, r(2, 3, 2, 3, 4)),
    "a module": (lambda x: torch.nn.Upsample(scale_factor=2)(F.silu(x)) * 2, r(2, 3, 5, 7)),
    "in f16": (lambda x: F.interpolate(F.silu(x), scale_factor=2) * 2, r(2, 3, 5, 7, dtype=torch.float16)),
}


@pytest.mark.parametrize("case", REPEATED)
def test_elements_that_are_repeated(case: str) -> None:
    """In one kernel, which writes each several times."""
    function, x = REPEATED[case]
    report = report_of(function, x)
    nothing_is_left(report)
    assert [each.kernel.estimate.kernels for each in report.taken] == [1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x.tanh(), scale_factor=1.5) * 2,
        lambda x: F.interpolate(x.tanh(), (7, 9)) * 2,
        lambda x: F.interpolate(x.tanh(), (3, 2)) * 2,
        lambda x: F.interpolate(x.tanh(), scale_factor=2, mode="nearest-exact") * 2,
        lambda x: F.interpolate(x.tanh(), scale_factor=2, mode="bilinear") * 2,
        lambda x: F.interpolate(x.tanh(), scale_factor=2.5, recompute_scale_factor=True) * 2,
        lambda x: F.interpolate(x.tanh().to(memory_format=torch.channels_last), scale_factor=2) * 2,
    ],
)
def test_others_are_what_pytorch_makes_of_them(function: Function) -> None:
    report_of(function, r(2, 3, 6, 4))
    torch._dynamo.reset()
    report_of(function, r(2, 3, 1, 1))


@pytest.mark.parametrize("times", [*range(2, 12), 41, 47, 49, 55, 61, 82, 83])
def test_repeated_as_often_as_pytorch_repeats(times: int) -> None:
    """Its positions are in f32: at 41 times, `41 * (1 / 41)` might be less than 1."""
    x = torch.arange(6.0).view(1, 1, 6)
    with torch.no_grad():
        got = torch.compile(lambda x: F.interpolate(x, scale_factor=times), backend="treadle")(x)
    assert torch.equal(got, F.interpolate(x, scale_factor=times))


def test_gradients_of_repeated_elements() -> None:
    x = r(2, 3, 4, 5).requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (F.interpolate(F.silu(x), scale_factor=2) ** 2).sum()

    compiled = torch.compile(function, backend="treadle", options={"training": True, "machine": "a100"})
    wanted, found = (torch.autograd.grad(each(x), x)[0] for each in (function, compiled))
    torch.testing.assert_close(found, wanted)


def test_gradients_of_the_largest() -> None:
    """PyTorch's need their places."""
    x = r(2, 3, 6, 8).requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (F.max_pool2d(F.silu(x), 2) ** 2).sum()

    compiled = torch.compile(function, backend="treadle", options={"training": True, "machine": "a100"})
    wanted, found = (torch.autograd.grad(each(x), x)[0] for each in (function, compiled))
    torch.testing.assert_close(found, wanted)


def test_alone_they_are_pytorchs() -> None:
    with torch.no_grad():
        report = explain(lambda x: F.max_pool2d(x, 2), (r(2, 3, 6, 8),))
    assert not report.taken
