"""Dropout in PyTorch's graphs: kernels make the bits of a seed that PyTorch draws, and gradients make them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import treadle
import treadle.language as tl
import treadle.torch
from treadle.torch.exchange import exchange_sums
from treadle.torch.random import kept

OPTIONS = {"backend": "interpreter", "machine": "h100", "cpu_work": 1e12}
TRAINING = OPTIONS | {"training": True}
LEVELS = 2**16


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    torch._dynamo.reset()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def compiled(function: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="treadle", options=OPTIONS | others)


def report_of(function: Callable[..., Any], *given: torch.Tensor, **others: Any) -> Any:
    return treadle.torch.explain(function, given, options=OPTIONS | others)


def masks(rate: float, *shapes: Sequence[int]) -> list[torch.Tensor]:
    """What a graph keeps that begins with this state of PyTorch's generator."""
    seeds = torch.randint(-(2**31), 2**31, (len(shapes),), dtype=torch.int32)
    return [kept(seed[None], shape, round(rate * LEVELS)) for seed, shape in zip(seeds, shapes, strict=True)]


def dropped(x: torch.Tensor, rate: float, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, x * (LEVELS / (LEVELS - round(rate * LEVELS))), 0)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.25, is_causal=True)


def attention_by(mask: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
    q, k, v = given
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(
        ~torch.ones(q.shape[-2], k.shape[-2]).tril().bool(), -torch.inf
    )
    return dropped(scores.softmax(-1), 0.25, mask) @ v


# -- the bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 3, 33), (2, 1, 3, 40), (2, 3, 2, 5, 17)])
@pytest.mark.parametrize("seed", [-7, 2**31 - 1])
def test_the_bits_are_those_of_the_language(shape: tuple[int, ...], seed: int) -> None:
    axes = " ".join("abcde"[: len(shape)])

    @treadle.kernel(f"{axes}, one -> {axes}")
    def function(X: Any, S: Any) -> Any:
        return tl.dropout(X, 0.3, S.sum("one"))

    ones, given = torch.ones(shape), torch.tensor([seed], dtype=torch.int32)
    expected = function(ones.numpy(), given.numpy(), backend="interpreter")
    torch.testing.assert_close(dropped(ones, 0.3, kept(given, shape, 19661)), torch.as_tensor(expected))


def test_of_no_dimensions() -> None:
    seeds = torch.arange(1000, dtype=torch.int32)
    rate = sum(float(kept(seed[None], (), LEVELS // 4)) for seed in seeds) / 1000
    assert abs(rate - 0.75) < 0.05
    check_one(
        lambda x: F.dropout(x.sum(), 0.5) * 2, lambda x, mask: dropped(x.sum(), 0.5, mask) * 2, (), 0.5, numbers(5)
    )


# -- dropout -------------------------------------------------------------------------------------


def check_one(
    function: Callable[..., Any],
    expected: Callable[..., Any],
    shape: Sequence[int],
    rate: float,
    *given: torch.Tensor,
    **others: Any,
) -> None:
    """One mask, of this shape."""
    torch.manual_seed(3)
    made = compiled(function, **others)(*given)
    torch.manual_seed(3)
    (mask,) = masks(rate, shape)
    torch.testing.assert_close(made, expected(*given, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
def test_dropout(backend: str) -> None:
    check_one(
        lambda x: F.dropout(x.sin(), 0.1) + 1,
        lambda x, mask: dropped(x.sin(), 0.1, mask) + 1,
        (5, 70),
        0.1,
        numbers(5, 70),
        backend=backend,
    )


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
def test_positions_are_those_of_dimensions_whatever_axes_they_are(backend: str) -> None:
    """A view after it splits the dimension that the bits belong to."""
    check_one(
        lambda x: F.dropout(x, 0.1).view(3, 4, 2, 35).softmax(2),
        lambda x, mask: dropped(x, 0.1, mask).view(3, 4, 2, 35).softmax(2),
        (12, 70),
        0.1,
        numbers(12, 70),
        backend=backend,
    )


def test_in_another_order_of_memory() -> None:
    given = numbers(6, 5, 4).permute(2, 0, 1)
    check_one(
        lambda x: F.dropout(x, 0.1) + 1,
        lambda x, mask: dropped(x, 0.1, mask.permute(2, 0, 1)) + 1,
        (6, 5, 4),
        0.1,
        given,
    )
    assert compiled(lambda x: F.dropout(x, 0.1) + 1)(given).stride() == given.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_16_bits(dtype: torch.dtype) -> None:
    given = numbers(5, 40).to(dtype)
    check_one(
        lambda x: F.dropout(x, 0.3) * 2,
        lambda x, mask: (dropped(x.float(), 0.3, mask) * 2).to(dtype),
        (5, 40),
        0.3,
        given,
    )


def test_wholes_channels() -> None:
    check_one(
        lambda x: F.dropout2d(x, 0.5) + 1,
        lambda x, mask: x * mask / 0.5 + 1,
        (2, 30, 1, 1),
        0.5,
        numbers(2, 30, 4, 5),
    )


def test_in_place_and_alpha() -> None:
    check_one(
        lambda x: F.dropout(x * 1, 0.5, inplace=True) + 1,
        lambda x, mask: x * mask / 0.5 + 1,
        (5, 40),
        0.5,
        numbers(5, 40),
    )
    made = compiled(lambda x: F.alpha_dropout(x, 0.25) + 1)(numbers(300, 300)) - 1
    assert abs(made.mean()) < 0.02
    assert abs(made.var() - 1) < 0.03


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_all_or_nothing(rate: float) -> None:
    given = numbers(5, 40)
    torch.testing.assert_close(compiled(lambda x: F.dropout(x, rate) * 2)(given), given * 2 * (1 - rate))
    for options in (OPTIONS, TRAINING):
        x = given.clone().requires_grad_()
        compiled(lambda x: (F.dropout(x, rate) * 2).sum(), **options)(x).backward()
        torch.testing.assert_close(x.grad, torch.full_like(given, 2 * (1 - rate)))


def test_no_dropout_in_evaluation() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(40), torch.nn.Dropout(0.5)).eval()
    report = report_of(model, numbers(5, 40))
    assert not report.left
    torch.testing.assert_close(compiled(model)(numbers(5, 40)), model(numbers(5, 40)))


def test_what_pytorch_keeps() -> None:
    """Numbers that programs do not compute in."""
    made = compiled(lambda x: F.dropout(x, 0.5) + 1)(torch.ones(100, 100, dtype=torch.float64))
    assert {*made.flatten().tolist()} == {1.0, 3.0}
    report = report_of(lambda x: F.dropout(x, 0.5) + 1, torch.ones(9, 9, dtype=torch.float64))
    assert "native_dropout" in report.left[0].operation


# -- seeds ---------------------------------------------------------------------------------------


def test_a_seed_is_of_pytorch_and_of_the_call() -> None:
    function = compiled(lambda x: F.dropout(x, 0.5) * 2)
    ones = torch.ones(64, 64)
    torch.manual_seed(1)
    first, second = function(ones), function(ones)
    torch.manual_seed(1)
    again = function(ones)
    assert torch.equal(first, again)
    assert 0.4 < (first != second).float().mean() < 0.6


def test_each_dropout_has_another_one() -> None:
    first, second = compiled(lambda x: (F.dropout(x, 0.5) + 1, F.dropout(x, 0.5) + 1))(torch.ones(64, 64))
    assert 0.4 < (first != second).float().mean() < 0.6


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_rates(rate: float) -> None:
    made = compiled(lambda x: F.dropout(x, rate) * 1.5)(torch.ones(500, 2000))
    assert abs((made == 0).double().mean() - rate) < 5 * (rate * (1 - rate) / 1e6) ** 0.5
    assert abs(made.double().mean() - 1.5) < 0.02


def test_seeds_alone_stay_with_pytorch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x.sin(), 0.1).cos(), 0.1) + x

    report = report_of(function, numbers(5, 40))
    assert len(report.taken) == 1
    assert [each.operation for each in report.left] == ["randint.low"]
    assert "seed" in report.left[0].reason


# -- attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
def test_attention(backend: str) -> None:
    q, k, v = (numbers(2, 2, 40, 16) for _ in range(3))
    check_one(
        attention, lambda q, k, v, mask: attention_by(mask, q, k, v), (2, 2, 40, 40), 0.25, q, k, v, backend=backend
    )


def test_attention_is_one_kernel() -> None:
    given = [numbers(2, 2, 512, 64).half() for _ in range(3)]
    with torch.no_grad():
        (taken,) = report_of(attention, *given).taken
    assert len(taken.kernel.cost().kernels) == 1
    assert streams_of(taken.kernel) == ["associativity of max", "cascade", "cascade"]
    assert taken.kernel.hierarchy.count("hierarchy.stream") == 1
    assert any(step.rewrite == "hierarchy-rescale-lazily" for step in taken.kernel.derivation)


def streams_of(kernel: treadle.Kernel) -> list[str]:
    """By which law each reduction is in its stream."""
    return [step.law for step in kernel.derivation if step.rewrite == "streaming" and " along " in step.subject]


def test_multi_head_attention_has_it_too() -> None:
    layer = torch.nn.MultiheadAttention(32, 2, dropout=0.5, batch_first=True).train()
    x = numbers(2, 24, 32)
    with torch.no_grad():
        report = report_of(lambda x: layer(x, x, x, need_weights=False)[0], x)
    assert any("kept" in each for taken in report.taken for each in taken.operations)
    assert {each.operation for each in report.left} == {"randint.low"}


# -- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [OPTIONS, TRAINING], ids=["forward", "training"])
def test_gradients(options: dict[str, Any]) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout((x @ w).relu(), 0.3).square().sum()

    x, w = numbers(5, 16).requires_grad_(), numbers(16, 40).requires_grad_()
    torch.manual_seed(3)
    made = torch.autograd.grad(compiled(function, **options)(x, w), (x, w))
    torch.manual_seed(3)
    (mask,) = masks(0.3, (5, 40))
    expected = torch.autograd.grad(dropped((x @ w).relu(), 0.3, mask).square().sum(), (x, w))
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [OPTIONS, TRAINING], ids=["forward", "training"])
def test_gradients_of_attention(options: dict[str, Any]) -> None:
    given = [numbers(2, 2, 40, 16).requires_grad_() for _ in range(3)]
    torch.manual_seed(3)
    made = torch.autograd.grad(compiled(attention, **options)(*given).square().sum(), given)
    torch.manual_seed(3)
    (mask,) = masks(0.25, (2, 2, 40, 40))
    expected = torch.autograd.grad(attention_by(mask, *given).square().sum(), given)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_masks_are_made_again_and_not_saved() -> None:
    x = numbers(64, 64).requires_grad_()
    report = report_of(lambda x: F.dropout(x, 0.3) * 2, x, training=True)
    assert report.graphs[0].saved_bytes <= 8
    forward, backward = report.graphs
    assert all(
        any("kept" in each for taken in graph.taken for each in taken.operations) for graph in (forward, backward)
    )


@pytest.mark.parametrize("options", [OPTIONS, TRAINING], ids=["forward", "training"])
def test_a_checkpoint_draws_no_other_seed(options: dict[str, Any]) -> None:
    def function(x: torch.Tensor) -> Any:
        return checkpoint(lambda x: F.dropout(x.sin(), 0.5).exp(), x, use_reentrant=False)

    x = numbers(20, 40).requires_grad_()
    made = compiled(function, **options)(x)
    (gradient,) = torch.autograd.grad(made.sum(), x)
    mask = made != 1
    expected = torch.where(mask, 2 * x.cos() * (2 * x.sin()).exp(), 0)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


def test_sizes_that_change() -> None:
    function = torch.compile(lambda x: F.dropout(x, 0.5) * 2, backend="treadle", options=OPTIONS, dynamic=True)
    for rows in (33, 40, 64):
        torch.manual_seed(3)
        made = function(torch.ones(rows, 32))
        torch.manual_seed(3)
        (mask,) = masks(0.5, (rows, 32))
        torch.testing.assert_close(made, 4.0 * mask)


@pytest.mark.parametrize("options", [OPTIONS, TRAINING], ids=["forward", "training"])
def test_gradients_of_several(options: dict[str, Any]) -> None:
    """Each by its own seed, of those that are drawn at once."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x.sin(), 0.5).exp(), 0.5) * F.dropout(x, 0.5)

    x = numbers(20, 40).requires_grad_()
    torch.manual_seed(3)
    made = compiled(function, **options)(x)
    (gradient,) = torch.autograd.grad(made.sum(), x)
    torch.manual_seed(3)
    one, two, three = masks(0.5, *[(20, 40)] * 3)
    expected = dropped(dropped(x.sin(), 0.5, one).exp(), 0.5, two) * dropped(x, 0.5, three)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("same", [True, False])
def test_sums_are_exchanged_under_the_same_mask_alone(same: bool) -> None:
    def run(a: torch.Tensor, v: torch.Tensor, g: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> Any:
        product = torch.bmm(dropped(a, 0.5, one), v)
        gradient = dropped(torch.bmm(g, v.permute(0, 2, 1)), 0.5, one if same else other)
        return product, (a * gradient).sum(-1, keepdim=True)

    given = numbers(2, 7, 23), numbers(2, 23, 5), numbers(2, 7, 5), *masks(0.5, (2, 7, 23), (2, 7, 23))
    module = make_fx(run, tracing_mode="fake")(*given)
    (old,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)
    exchange_sums(module.graph)
    module.graph.lint()
    module.recompile()
    assert (old in module.graph.nodes) is not same
    torch.testing.assert_close(module(*given), run(*given), rtol=1e-4, atol=1e-4)


def test_gradients_for_sizes_that_change() -> None:
    function = torch.compile(lambda x: F.dropout(x.sin(), 0.5).exp(), backend="treadle", options=TRAINING, dynamic=True)
    for rows in (33, 40):
        x = numbers(rows, 32).requires_grad_()
        made = function(x)
        (gradient,) = torch.autograd.grad(made.sum(), x)
        expected = torch.where(made != 1, 2 * x.cos() * made, 0)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
