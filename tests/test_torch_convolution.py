# pyright: standard
"""Convolutions, and means of windows: products of views where windows do not overlap, else reads of windows; with
PyTorch's strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from treadle.torch import Report, backend
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

INTERPRETER: dict[str, Any] = {"backend": "interpreter"}
"""Where what is asked is not what the kernel computes: the emulator has a compiler to wait for."""
CHANNELS_LAST = torch.channels_last
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2.0**-9}
"""Of the largest element: sums in another order; and for f16 a result that is rounded once."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compare(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Report:
    report = Report()
    made = make_backend(Options.of(options), report.graphs.append)
    with torch.no_grad():
        want, got = function(*inputs), torch.compile(function, backend=made)(*inputs)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    bound = TOLERANCES.get(want.dtype, 0.0) * want.abs().max().item() if want.numel() else 0.0
    torch.testing.assert_close(got, want, atol=bound, rtol=0.0)
    return report


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "patches": (
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 3)).flatten(2).transpose(1, 2),
        ((2, 3, 4, 9), (5, 3, 2, 3), (5,)),
    ),
    "one element": (lambda x, w, b: F.relu(F.conv2d(x, w, b)), ((2, 6, 3, 5), (7, 6, 1, 1), (7,))),
    "one element of what lies apart": (lambda x, w: F.conv1d(x, w, dilation=3) * 2, ((2, 3, 7), (5, 3, 1))),
    "a line": (lambda x, w: F.conv1d(x, w, stride=2) * 2, ((2, 3, 14), (5, 3, 2))),
    "a volume": (lambda x, w: F.conv3d(x, w, stride=2) * 2, ((1, 3, 4, 2, 6), (5, 3, 2, 2, 2))),
    "without a batch": (lambda x, w: F.conv2d(x, w, stride=2) * 2, ((3, 4, 6), (5, 3, 2, 2))),
    "one window": (lambda x, w, b: F.conv2d(x, w, b, stride=4), ((1, 1, 4, 4), (5, 1, 4, 4), (5,))),
    "one channel": (lambda x, w: F.conv2d(x, w).view(-1) * 2, ((2, 1, 3, 4), (5, 1, 1, 1))),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_windows_that_do_not_overlap(name: str, machine: str, dtype: torch.dtype) -> None:
    function, shapes = PRODUCTS[name]
    report = compare(function, *(randn(*shape, dtype=dtype) for shape in shapes), machine=machine)
    assert not report.left, report
    assert len(report.taken) == 1


WINDOWS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "overlapping, with zeros": (lambda x, w, b: F.conv1d(x, w, b, padding=1), ((2, 5, 9), (7, 5, 3), (7,))),
    "apart, the last left out": (lambda x, w: F.conv1d(x, w, stride=2), ((2, 3, 9), (5, 3, 2))),
    "every other element": (lambda x, w: F.conv1d(x, w, stride=2), ((2, 3, 8), (5, 3, 1))),
    "of elements apart": (lambda x, w: F.conv1d(x, w, stride=2, dilation=3), ((2, 3, 8), (5, 3, 2))),
    "along one of two dimensions": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=(0, 1))),
        ((1, 8, 5, 7), (6, 8, 1, 3), (6,)),
    ),
    "groups": (lambda x, w: F.conv1d(x, w, groups=2, padding=2), ((2, 6, 8), (4, 3, 3))),
    "channels alone": (
        lambda x, w, b: F.silu(F.conv1d(x * 2, w, b, padding=3, groups=6)),
        ((2, 6, 9), (6, 1, 4), (6,)),
    ),
    "several of a channel": (
        lambda x, w: F.conv1d(x, w, stride=2, dilation=2, padding=2, groups=4),
        ((2, 4, 9), (8, 1, 3)),
    ),
    "channels alone, two dimensions": (
        lambda x, w, b: F.conv2d(F.gelu(x), w, b, padding=1, groups=8).flatten(2).transpose(1, 2) * 2,
        ((1, 8, 5, 7), (8, 1, 3, 3), (8,)),
    ),
    "elements apart in memory": (lambda x, w: F.conv1d(x[..., ::2], w, padding=1), ((2, 3, 14), (5, 3, 2))),
    "channels last": (
        lambda x, w: F.conv2d(x.to(memory_format=CHANNELS_LAST), w, padding=1, groups=4),
        ((2, 4, 5, 6), (4, 1, 3, 3)),
    ),
    "means": (lambda x: F.avg_pool2d(x, 3, 2, 1) + 1, ((2, 3, 9, 7),)),
    "means along a line": (lambda x: F.avg_pool1d(x.exp(), 4, 2), ((3, 5, 11),)),
    "means of a volume": (lambda x: F.avg_pool3d(x, 2, divisor_override=3), ((2, 3, 4, 6, 2),)),
    "means to the end": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), ((3, 4, 6),)),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_overlap_or_leave_out(name: str, machine: str, dtype: torch.dtype) -> None:
    function, shapes = WINDOWS[name]
    if name == "means of a volume" and dtype == torch.float16:
        pytest.skip("PyTorch computes no means of a volume in f16 on a CPU")
    report = compare(function, *(randn(*shape, dtype=dtype) for shape in shapes), machine=machine)
    assert not {each.operation for each in report.left} & {"convolution.default", "avg_pool2d.default"}, report
    assert report.taken


def test_what_is_no_number_stays_in_its_windows() -> None:
    x = randn(1, 2, 12)
    x[0, 0, 4] = torch.nan
    w = randn(3, 2, 3)
    with torch.no_grad():
        want = F.conv1d(x, w, padding=1) * 2
        got = torch.compile(lambda x, w: F.conv1d(x, w, padding=1) * 2, backend=backend, options=INTERPRETER)(x, w)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert want.isnan().any()


@pytest.mark.parametrize(
    ("function", "shapes", "reason"),
    [
        (lambda x, w: F.conv2d(x, w, padding=1), ((2, 3, 4, 6), (5, 3, 3, 3)), "windows along two dimensions"),
        (lambda x, w: F.conv1d(x, w), ((1, 257, 8), (5, 257, 2)), "more than 256 channels"),
        (lambda x, w: F.conv2d(x, w, groups=3), ((1, 3, 9, 9), (3, 1, 4, 4)), "windows of 16 elements"),
        (lambda x, w: F.conv1d(x, w, padding=1), ((2, 3, 1), (5, 3, 3)), "that has one element"),
        (lambda x, w: F.conv_transpose1d(x, w, stride=2), ((2, 3, 8), (3, 5, 2)), "a transposed convolution"),
        (lambda x, w: F.conv2d(x.double(), w.double(), stride=2), ((2, 3, 4, 6), (5, 3, 2, 2)), "torch.float64"),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), ((2, 3, 9, 7),), "fewer elements at the edges"),
        (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), ((2, 3, 9, 7),), "past the end"),
    ],
)
def test_other_windows_stay(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], reason: str) -> None:
    report = compare(function, *(randn(*shape) for shape in shapes), **INTERPRETER)
    (left,) = [each for each in report.left if "convolution" in each.operation or "avg_pool" in each.operation]
    assert reason in left.reason


def test_no_images_are_no_kernel() -> None:
    report = compare(lambda x, w: F.conv2d(x, w, stride=2), randn(0, 3, 4, 6), randn(5, 3, 2, 2))
    assert not report.taken


def test_sizes_that_change() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, w, stride=2) * 2

    compiled = torch.compile(function, backend=backend, options=INTERPRETER, dynamic=True)
    w = randn(5, 3, 2)
    with torch.no_grad():
        for n in (6, 10, 7):
            x = randn(2, 3, n)
            torch.testing.assert_close(compiled(x, w), function(x, w), atol=1e-5, rtol=1e-5)


def test_gradients() -> None:
    module = nn.Sequential(nn.Conv2d(3, 5, 2, 2), nn.Tanh())
    x = randn(2, 3, 4, 6).requires_grad_()
    wanted = torch.autograd.grad(module(x).square().sum(), (x, *module.parameters()))
    compiled = torch.compile(module, backend=backend, options=INTERPRETER)
    found = torch.autograd.grad(compiled(x).square().sum(), (x, *module.parameters()))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "function",
    [lambda x: F.pad(x * 2, (0, 0, 0, 0)) + x, lambda x: F.pad(x.t() * 2, (0, 0)).exp().t()],
)
def test_padding_by_nothing_is_nothing(function: Callable[..., Any]) -> None:
    report = compare(function, randn(5, 7), **INTERPRETER)
    assert len(report.taken) == 1
    assert not report.left, report
