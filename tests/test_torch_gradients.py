# pyright: standard
"""`backward()` of operators without a formula: kernels of the derived gradient, beside PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.torch import operator

torch.manual_seed(5)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@treadle.kernel("b h q d, b h x d, b h x e -> b h q e")
def attention(Q: Any, K: Any, V: Any) -> Any:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.25, over="x"), V, over="x")


@treadle.kernel("t i, i -> t i, t")
def normed(X: Any, G: Any) -> Any:
    x = X.to("f32")
    scale = tl.rsqrt(tl.mean(x * x, over="i") + 1e-5)
    return x * scale * G, scale


@treadle.kernel("n v, n -> n")
def losses(L: Any, T: Any) -> Any:
    scores = L.to("f32")
    most = tl.max(scores, over="v")
    chosen = tl.keep(scores, "v == T[n]", T=T)
    return tl.log(tl.sum(tl.exp(scores - most), over="v")) + most - tl.sum(chosen, over="v")


ATTENTION = operator("treadle_gradients::attention", attention)
NORMED = operator("treadle_gradients::normed", normed)


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def eager_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=0.25)


def eager_normed(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = torch.rsqrt((x * x).mean(-1) + 1e-5)
    return x * scale[:, None] * g, scale


def gradients(f: Callable[..., Any], given: list[torch.Tensor], wanted: list[torch.Tensor] | None = None) -> Any:
    results = f(*given)
    several = results if isinstance(results, tuple) else (results,)
    total = torch.stack([(each * torch.linspace(-1, 1, each.numel()).view(each.shape)).sum() for each in several]).sum()
    return torch.autograd.grad(total, wanted or given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("q", "x"), [(9, 13), (1, 40), (33, 1)])
def test_attention(q: int, x: int, dtype: torch.dtype) -> None:
    given = leaves((2, 3, q, 16), (2, 3, x, 16), (2, 3, x, 16), dtype=dtype)
    wide = [each.detach().double().requires_grad_() for each in given]
    close = 1e-4 if dtype is torch.float32 else 3e-2 if dtype is torch.float16 else 2e-1
    for ours, theirs in zip(gradients(ATTENTION, given), gradients(eager_attention, wide), strict=True):
        assert ours.dtype is dtype
        torch.testing.assert_close(ours.double(), theirs, atol=close, rtol=close)


def test_several_results_of_which_one_is_used() -> None:
    given = leaves((7, 24), (24,))
    for ours, theirs in zip(gradients(NORMED, given), gradients(eager_normed, given), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    (ours,) = gradients(lambda *each: NORMED(*each)[1], given, given[:1])
    (theirs,) = gradients(lambda *each: eager_normed(*each)[1], given, given[:1])
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_inside_a_compiled_function() -> None:
    given = leaves((1, 2, 5, 16), (1, 2, 7, 16), (1, 2, 7, 16))
    inside = torch.compile(lambda q, k, v: ATTENTION(q * 2, k, v).tanh(), backend="aot_eager", fullgraph=True)
    outside = lambda q, k, v: eager_attention(q * 2, k, v).tanh()  # noqa: E731
    for ours, theirs in zip(gradients(inside, given), gradients(outside, given), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_gradient_of_the_gradient_is_refused() -> None:
    q, k, v = leaves((1, 1, 5, 16), (1, 1, 7, 16), (1, 1, 7, 16))
    (once,) = torch.autograd.grad(ATTENTION(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(TreadleError, match="is derived, and has none of its own: register it with formula="):
        torch.autograd.grad(once.sum(), q)


def test_integers_have_none() -> None:
    taken = operator("treadle_gradients::losses", losses)
    (scores,), classes = leaves((6, 11)), torch.tensor([0, 3, 10, 5, 5, 1], dtype=torch.int32)
    (ours,) = torch.autograd.grad(taken(scores, classes).sum(), scores)
    (theirs,) = torch.autograd.grad(F.cross_entropy(scores, classes.long(), reduction="sum"), scores)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
