"""A tensor that is read twice along the same rows is one argument; one that plays two roles is two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import treadle.torch
from treadle.compiler.source import parse_module

ONE_ROLE: dict[str, Callable[[Tensor], Any]] = {
    "rms_norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "softmax": lambda x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True),
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "log_sum_exp": lambda x: torch.logsumexp(x, -1),
    "entropy": lambda x: torch.logsumexp(x, -1) - (torch.softmax(x, -1) * x).sum(-1),
    "standardised": lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
    "between_extrema": lambda x: (x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)),
    "quantised": lambda x: torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)),
    "columns": lambda x: x - x.mean(0),
}
"""Rows that are read twice, or more often, along the same axes."""

TWO_ROLES: dict[str, Callable[[Tensor], Any]] = {
    "gram": lambda x: x @ x.mT,
    "covariance": lambda x: x.mT @ x,
    "attention": lambda x: torch.softmax(x @ x.mT, -1) @ x,
    "outer_differences": lambda x: (x[:, None] - x[None]).abs().sum(-1),
    "square": lambda x: x[:, : x.shape[0]] @ x,
}
"""A tensor whose axes meet."""


def run(function: Callable[[Tensor], Any], x: Tensor) -> tuple[list[int], float]:
    """How many arrays each program of it takes, and how far its result is from PyTorch's."""
    report = treadle.torch.explain(function, (x,), options={"machine": "h100", "cpu_work": 1e12})
    compiled = torch.compile(function, backend="treadle", options={"machine": "h100", "cpu_work": 1e12})
    got, wanted = compiled(x), function(x.double()).to(x.dtype)
    error = float((got - wanted).abs().max() / wanted.abs().max())
    return [_arguments(part.kernel.diagram) for part in report.taken], error


def _arguments(text: str) -> int:
    module = parse_module(text)
    function = next(iter(module.body.block.ops))
    return len(function.regions[0].block.args)


@pytest.mark.parametrize("name", ONE_ROLE)
def test_rows_are_one_argument(name: str) -> None:
    torch.manual_seed(0)
    arguments, error = run(ONE_ROLE[name], torch.randn(5, 300))
    assert arguments == [1]
    assert error < 1e-5


@pytest.mark.parametrize("name", TWO_ROLES)
def test_axes_that_meet_are_apart(name: str) -> None:
    torch.manual_seed(0)
    arguments, error = run(TWO_ROLES[name], torch.randn(24, 48))
    assert max(arguments) >= 2
    assert error < 1e-4


def test_keys_that_are_values_are_one_argument() -> None:
    """Attention sums over the depth of keys, and gives that of values: one axis, which a group holds whole."""
    report = treadle.torch.explain(
        lambda x: F.scaled_dot_product_attention(x, x, x),
        (torch.randn(2, 4, 256, 64, dtype=torch.bfloat16),),
        options={"machine": "h100", "cpu_work": 1e12},
    )
    (part,) = report.taken
    assert part.kernel.estimate.kernels == 1
    assert _arguments(part.kernel.diagram) == 2


def attend(queries: Tensor, positions: Tensor, keys: Tensor, of_keys: Tensor) -> Tensor:
    """Latent attention, as DeepSeek's reference has it."""
    scores = torch.einsum("bshc,btc->bsht", queries, keys) + torch.einsum("bshr,btr->bsht", positions, of_keys)
    shares = (scores * 0.07).softmax(-1, dtype=torch.float32).type_as(queries)
    return torch.einsum("bsht,btc->bshc", shares, keys)


def test_views_of_one_tensor_are_one_argument() -> None:
    """The products see the keys as views that lie otherwise."""
    torch.manual_seed(0)
    arrays = [torch.randn(shape) for shape in ((2, 1, 20, 64), (2, 1, 20, 16), (2, 70, 64), (2, 70, 16))]
    options = {"machine": "h100", "cpu_work": 1e12}
    (part,) = treadle.torch.explain(attend, tuple(each.to(torch.bfloat16) for each in arrays), options=options).taken
    assert _arguments(part.kernel.diagram) == 4
    compiled = torch.compile(attend, backend="treadle", options=options)
    got = compiled(*(each.to(torch.bfloat16) for each in arrays))
    assert (got - attend(*(each.double() for each in arrays))).abs().max() < 3e-2


def test_parts_of_one_tensor_are_apart() -> None:
    """They lie in the same memory, at other places of it."""
    torch.manual_seed(0)
    x = torch.randn(33, 2, 48)
    compiled = torch.compile(lambda x: x[:, 0] - x[:, 1], backend="treadle", options={"machine": "h100"})
    assert torch.equal(compiled(x), x[:, 0] - x[:, 1])


def test_two_products_of_one_layer_read_it_once() -> None:
    torch.manual_seed(0)
    gate, up = (torch.randn(256, 512, dtype=torch.bfloat16) for _ in range(2))

    def gated(x: Tensor) -> Tensor:
        return F.silu(x @ gate) * (x @ up)

    layer = torch.randn(64, 256, dtype=torch.bfloat16)
    report = treadle.torch.explain(gated, (layer,), options={"machine": "h100", "cpu_work": 1e12})
    (part,) = report.taken
    assert _arguments(part.kernel.diagram) == 3


def test_sizes_that_are_symbols() -> None:
    torch.manual_seed(0)
    norm = torch.compile(ONE_ROLE["rms_norm"], backend="treadle", dynamic=True, options={"machine": "h100"})
    for rows in (3, 8, 17):
        x = torch.randn(rows, 128)
        assert torch.allclose(norm(x), ONE_ROLE["rms_norm"](x), atol=1e-5)


LOOKUPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "turned": lambda i, x: F.embedding(i, x) + 2 * F.embedding(i.T, x),
    "every other": lambda i, x: F.embedding(i[:8], x) + 2 * F.embedding(i[::2], x),
    "indexed": lambda i, x: x[i] + 2 * x[i.T],
}
"""Views of one index: what a program reads of each is a copy, which was checked."""


@pytest.mark.parametrize("name", LOOKUPS)
def test_views_of_an_index_are_apart(name: str) -> None:
    torch.manual_seed(0)
    i, x = torch.randint(0, 40, (16, 16)), torch.randn(40, 24)
    compiled = torch.compile(LOOKUPS[name], backend="treadle", options={"machine": "h100", "cpu_work": 1e12})
    assert torch.allclose(compiled(i, x), LOOKUPS[name](i, x), atol=1e-5)
