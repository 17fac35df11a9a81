# pyright: standard
"""The first few of an order, and extremes with their places, as they are written for PyTorch; and what is read and
written at these places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from treadle.torch.backend import make_backend
from treadle.torch.decompositions import decompositions
from treadle.torch.options import Options
from treadle.torch.placed import use_places
from treadle.torch.registry import aten

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(function: Function, *tensors: Tensor, backend: str = "interpreter") -> tuple[Any, list[Any]]:
    """The results by kernels, and what became of the graphs."""
    reports: list[Any] = []
    options = Options.of({"machine": "h100", "cpu_work": 1e12, "backend": backend})
    made = torch.compile(function, backend=make_backend(options, reports.append))(*tensors)
    return made, reports


def same(function: Function, *tensors: Tensor, kernels: int, backend: str = "interpreter", **how: Any) -> None:
    """That nothing stays with PyTorch, that there are so many kernels, and that their results are PyTorch's."""
    made, (report,) = compiled(function, *tensors, backend=backend)
    assert not report.left
    assert sum(each.kernel.estimate.kernels for each in report.taken) == kernels
    expected = function(*tensors)
    pairs = zip(made, expected, strict=True) if isinstance(expected, tuple) else [(made, expected)]
    for one, other in pairs:
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(one, other, equal_nan=True, **how)


def extremes(x: Tensor) -> tuple[Tensor, ...]:
    return (*x.max(-1), *x.min(0, keepdim=True))


def test_extremes_and_where_they_are() -> None:
    x = torch.randn(37, 48)
    x[3, 7] = x[5, 20] = torch.nan
    same(extremes, x, kernels=2)
    same(extremes, x, kernels=2, backend="emulator")


def places(x: Tensor) -> tuple[Tensor, ...]:
    return x.argmax(-1), x.argmin(1, keepdim=True), x.argmax(), x[0].argmin(), x[:, :, 0].argmax(0)


def test_places_alone() -> None:
    same(places, torch.randn(6, 20, 4).bfloat16().float(), kernels=5)


def test_of_equal_elements_the_first_is_found() -> None:
    x = torch.randint(0, 3, (40, 90)).to(torch.float16)
    (values, found), _ = compiled(lambda x: x.topk(5), x)
    expected = torch.sort(x, dim=-1, descending=True, stable=True)
    torch.testing.assert_close(values, expected.values[:, :5])
    torch.testing.assert_close(found, expected.indices[:, :5])


def tops(x: Tensor) -> tuple[Tensor, ...]:
    return (*x.topk(3, 0), *x.topk(4, -1, largest=False), *x.topk(1))


def test_the_first_few() -> None:
    x = torch.randn(37, 48)
    x[3, 7] = torch.nan
    same(tops, x, kernels=3)
    same(tops, x, kernels=3, backend="emulator")


def test_along_dimensions_that_are_put_together() -> None:
    same(lambda x: x.transpose(1, 2).flatten(1).topk(3), torch.randn(3, 5, 40), kernels=1)
    same(lambda x: (x + 1).view(3, 10, 20).topk(3)[1], torch.randn(3, 5, 40), kernels=1)


def test_no_rows() -> None:
    values, found = compiled(lambda x: x.topk(2), torch.randn(0, 48))[0]
    assert values.shape == found.shape == (0, 2)
    assert found.dtype == torch.int64


def router(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """As Mixtral has it."""
    shares = F.softmax(F.linear(x, w), dim=-1, dtype=torch.float)
    values, experts = torch.topk(shares, 2, dim=-1)
    return values / values.sum(dim=-1, keepdim=True), experts


def test_a_router_is_one_kernel() -> None:
    same(router, torch.randn(64, 128), torch.randn(16, 128), kernels=1, rtol=1e-4, atol=1e-5)
    same(router, torch.randn(64, 128), torch.randn(16, 128), kernels=1, rtol=1e-4, atol=1e-5, backend="emulator")


def in_place(x: Tensor, w: Tensor) -> Tensor:
    """As gpt-oss has it: weights among zeros."""
    scores = F.linear(x, w)
    values, experts = torch.topk(scores, 4, dim=-1)
    return torch.zeros_like(scores).scatter_(1, experts, F.softmax(values, dim=1))


def test_weights_among_zeros() -> None:
    same(in_place, torch.randn(64, 128), torch.randn(32, 128), kernels=1, rtol=1e-4, atol=1e-5)


def of_groups(scores: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As DeepSeek V3 has it: of two groups the best four, by scores with a bias, weighed by those without."""
    rows, size = scores.shape
    shares = scores.sigmoid()
    chosen_by = shares + bias
    of_group = chosen_by.view(rows, 4, size // 4).topk(2, dim=-1)[0].sum(dim=-1)
    groups = torch.topk(of_group, k=2, dim=-1)[1]
    mask = torch.zeros_like(of_group).scatter_(1, groups, 1)
    kept = mask.unsqueeze(-1).expand(rows, 4, size // 4).reshape(rows, size)
    experts = torch.topk(chosen_by.masked_fill(~kept.bool(), 0.0), k=4, dim=-1)[1]
    weights = shares.gather(1, experts)
    return experts, weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)


def test_a_router_of_groups_is_one_kernel() -> None:
    same(of_groups, torch.randn(64, 32), torch.randn(32) * 0.1, kernels=1, rtol=1e-4, atol=1e-5)


def test_written_over_what_is_there() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        found = x.topk(2, 0)[1]
        return y.scatter(0, found, -1.0), y.scatter(0, found, y[:2] * 2)

    same(function, torch.randn(9, 7), torch.randn(9, 7), kernels=1)


@pytest.mark.parametrize("format", [torch.int32, torch.float16])
def test_what_pytorch_does_with_places_is_the_same(format: torch.dtype) -> None:
    """A graph in which they are used, run by PyTorch: a number is written in the format of what is there."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found = x.topk(2)[1]
        return y.scatter(1, found, 2.5), y.scatter(1, found, y[:, :2] + 1), y.gather(1, found)

    x, y = torch.randn(9, 7), torch.zeros(9, 7, dtype=format)
    module = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(x, y)
    use_places(module.graph)
    module.recompile()
    assert not {aten.scatter.value, aten.scatter.src, aten.gather.default} & {
        node.target for node in module.graph.nodes
    }
    for one, other in zip(module(x, y), function(x, y), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.topk(9)[0],
        lambda x: (x * 4).long().topk(2)[1],
        lambda x: (x * 4).long().max(-1)[1],
        lambda x: x.double().max(-1)[1],
        lambda x: x[:, :8].topk(2)[1] + x.gather(1, x[:, :8].topk(2)[1]),
    ],
)
def test_what_stays_with_pytorch_is_right(function: Function) -> None:
    x = torch.randn(20, 30)
    made, _ = compiled(function, x)
    torch.testing.assert_close(made, function(x))


def test_why_the_first_of_many_stay() -> None:
    _, (report,) = compiled(lambda x: x.topk(9)[0] + 1, torch.randn(20, 30))
    assert any("at most 8" in each.reason for each in report.left)


def test_gradients() -> None:
    x, w = torch.randn(40, 24, requires_grad=True), torch.randn(12, 24, requires_grad=True)
    options = {"machine": "h100", "cpu_work": 1e12, "backend": "interpreter", "training": True}

    def loss(x: Tensor, w: Tensor) -> Tensor:
        shares, _ = router(x, w)
        return (shares * torch.arange(1.0, 3.0)).sum() + x.max(-1)[0].sum()

    expected = torch.autograd.grad(loss(x, w), [x, w])
    found = torch.autograd.grad(torch.compile(loss, backend="treadle", options=options)(x, w), [x, w])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_sizes_that_are_symbols() -> None:
    made = torch.compile(
        lambda x: x.topk(3), backend="treadle", options={"machine": "h100", "cpu_work": 1e12}, dynamic=True
    )
    for rows, columns in ((20, 30), (7, 50), (33, 12)):
        x = torch.randn(rows, columns)
        for one, other in zip(made(x), x.topk(3), strict=True):
            torch.testing.assert_close(one, other)
