"""Gradients of diagrams, derived, are PyTorch's own in float64, of the same functions as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differences import differentiated, inputs_of, is_float, odd_sizes, run

import treadle
import treadle.language as tl
from oracles import attention_dropout, combine, experts_sorted
from treadle.compiler.source import load_module, parse_module
from treadle.runtime.interpreter import entry_function

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional

EXAMPLES = Path(__file__).parents[1] / "examples"

ROUNDED = 1e-6
"""What constants that a program rounds to f32 may lose, beside those of float64."""


def attention(q: Any, k: Any, v: Any, mask: Any = None, bias: Any = 0.0, scale: float = 0.125) -> Any:
    scores = q @ k.mT * scale + bias
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril())


def alibi(q: Any, k: Any, v: Any, slope: Any) -> Any:
    at_q, at_x = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
    bias = slope[:, None, None] * (at_x[None] - at_q[:, None])
    return attention(q, k, v, at_x[None] <= at_q[:, None], bias)


def sink(q: Any, k: Any, v: Any, sinks: Any) -> Any:
    scores = q @ k.mT * 0.125
    more = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, more], -1), -1)[..., :-1] @ v


def stick_breaking(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * 0.125
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
    rest = F.logsigmoid(-scores).masked_fill(~seen, 0)
    later = rest.flip(-1).cumsum(-1).flip(-1) - rest
    return (F.logsigmoid(scores) + later).exp().masked_fill(~seen, 0) @ v


def soft_cap(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(30 * torch.tanh(q @ k.mT * 0.00416666667), -1) @ v


def gqa(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k[:, :, None], v[:, :, None])


def differential(q: Any, k: Any, r: Any, m: Any, v: Any, less: Any) -> Any:
    return causal(q, k, v) - less[:, None, None] * causal(r, m, v)


def kl_divergence(a: Any, b: Any) -> Any:
    p, q = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return F.gelu(x @ w1 + b1) @ w2 + b2


def rows_of(table: Any, entries: Any) -> Any:
    """Zeros for an entry that is no row."""
    is_row = (entries >= 0) & (entries < len(table))
    rows = table[torch.where(is_row, entries, 0).long()]
    return torch.where(is_row[(..., *[None] * (table.ndim - 1))], rows, 0)


def paged(q: Any, k_pages: Any, v_pages: Any, table: Any, length: Any, past: Any) -> Any:
    """Rows without a key have no weights."""
    k, v = (rows_of(pages, table).flatten(1, 2).transpose(1, 2)[:, :, None] for pages in (k_pages, v_pages))
    at_q, at_x = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    seen = (at_x < length[:, None, None]) & (at_x <= at_q + past[:, None, None])
    scores = (q @ k.mT * 0.125).masked_fill(~seen[:, None, None], -1e30)
    return (torch.softmax(scores, -1) * seen[:, None, None]) @ v


REFERENCE: dict[str, Callable[..., Any]] = {
    "softmax": lambda a: torch.softmax(a, -1),
    "log_softmax": lambda a: torch.log_softmax(a, -1),
    "log_sum_exp": lambda a: torch.logsumexp(a, -1),
    "variance": lambda a: (a.mean(-1), torch.var(a, -1, correction=0)),
    "attention": attention,
    "attention_causal": causal,
    "attention_differential": differential,
    "attention_sink": sink,
    "attention_soft_cap": soft_cap,
    "attention_stick_breaking": stick_breaking,
    "attention_dropout": lambda q, k, v, seed: attention_dropout(q, k, v, seed)[0],
    "attention_alibi": alibi,
    "attention_gqa": gqa,
    "attention_bias": lambda q, k, v, bias: attention(q, k, v, bias=bias),
    "attention_latent": lambda q, u, c, r: torch.softmax((q @ c.mT + u @ r.mT) * 0.0721687836, -1) @ c,
    "attention_lse": lambda q, k, v: (attention(q, k, v), torch.logsumexp(q @ k.mT * 0.125, -1)),
    "layer_norm": lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, eps=1e-5),
    "rms_norm": lambda x, g: F.rms_norm(x, x.shape[-1:], g, eps=1e-5),
    "cross_entropy": lambda z, y: -(y * torch.log_softmax(z, -1)).sum(-1),
    "kl_divergence": kl_divergence,
    "mlp": mlp,
    "matmul_gelu": lambda x, w, b: F.gelu(x @ w.mT + b),
    "lora": lambda x, w, a, b: x @ w + 2 * (x @ a) @ b,
    "swiglu": lambda x, w, v: F.silu(x @ w) * (x @ v),
    "conv1d": lambda x, f: F.conv1d(x.mT, f.permute(2, 1, 0)).mT,
    "conv1d_dilated": lambda x, f: F.conv1d(x.mT, f.permute(2, 1, 0), stride=2, dilation=3).mT,
    "moving_average": lambda x: F.avg_pool1d(x.mT, 8, stride=1).mT,
    "block_diagonal": lambda x, w: torch.diagonal(x).mT @ w,
    "matmul": lambda a, b: a @ b,
    "matmul_nt": lambda a, b: a @ b.mT,
    "matmul_tn": lambda a, b: a.mT @ b,
    "matmul_tt": lambda a, b: a.mT @ b.mT,
    "matmul_transposed": lambda a, b: (a @ b).mT,
    "batched_matmul": torch.matmul,
    "embedding": lambda w, n: F.rms_norm(rows_of(w, n), w.shape[-1:], eps=1e-5),
    "experts": lambda x, w, n: x @ rows_of(w, n),
    "experts_sorted": lambda x, w, n: experts_sorted(x, w, n)[0],
    "attention_paged": paged,
    "combine": lambda y, w, n, x: combine(y, w, n, x)[0],
}


@pytest.mark.parametrize("name", REFERENCE)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    module = load_module(EXAMPLES / f"{name}.mlir")
    against(module, REFERENCE[name], inputs_of(entry_function(module), odd_sizes(entry_function(module))))


def against(module: Any, reference: Callable[..., Any], inputs: Any) -> None:
    tensors = [torch.from_numpy(np.array(each)).requires_grad_(each.dtype.kind == "f") for each in inputs]
    results = reference(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    random = np.random.default_rng(3)
    cotangents = [random.standard_normal(tuple(result.shape)) for result in results]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    expected = torch.autograd.grad(results, wanted, [torch.from_numpy(each) for each in cotangents])
    own = run(module, inputs)
    for result, given in zip(own, results, strict=True):
        np.testing.assert_allclose(result, given.detach(), rtol=ROUNDED, atol=ROUNDED)
    assert all(is_float(type) for type in entry_function(module).function_type.outputs)
    for found, gradient in zip(run(differentiated(module), [*inputs, *own, *cotangents]), expected, strict=True):
        np.testing.assert_allclose(found, gradient, rtol=ROUNDED, atol=ROUNDED * float(gradient.abs().max()))


REDUCED = """
!x = tensor<?x?xf32, #diagram.array<[i, k]>>
!r = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%a: !x) -> !r {
  %y = diagram.reduce KIND %a over [k] : !x -> !r
  func.return %y : !r
}
"""

TIES = np.array([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 5.0, 1.0], [0.0, 4.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("kind", "reference"),
    [("max", torch.amax), ("min", torch.amin), ("mul", torch.prod), ("add", torch.sum)],
    ids=["max", "min", "mul", "add"],
)
def test_reductions_of_equals_and_of_zeros(kind: str, reference: Callable[..., Any]) -> None:
    against(parse_module(REDUCED.replace("KIND", kind)), lambda a: reference(a, -1), [TIES])


@treadle.kernel("b h q d, b h x d, b h x e, h -> b h q e")
def falling_attention(Q: tl.Array, K: tl.Array, V: tl.Array, slope: tl.Array) -> tl.Array:
    """The logarithm is that of a negative number where the condition leaves out."""
    S = tl.contract(Q, K, over="d") * 0.25
    far = tl.index("q", S) - tl.index("x", S)
    return tl.contract(tl.softmax(tl.keep(S - slope * tl.log1p(far), "x <= q"), over="x"), V, over="x")


def test_slopes_may_be_nan_where_nothing_depends_on_them() -> None:
    """Also where a sum over a batch stands between, in which absent elements are zeros."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((2, 3, 9, 16)).astype(np.float16) for _ in range(3)]
    slope = np.array([0.3, 1.2, 0.7], np.float32)
    gradient = treadle.compile(treadle.differentiate(falling_attention.compiled(*arrays, slope).program))
    result = falling_attention(*arrays, slope)
    given = (*arrays, slope, result, np.ones_like(result))
    assert all(verdict.ok for verdict in gradient.verify(*given))
    Q, K, V, s = (torch.tensor(each.astype(np.float64), requires_grad=True) for each in (*arrays, slope))
    far = torch.arange(9)[:, None] - torch.arange(9)[None, :]
    S = Q @ K.mT * 0.25 - s[:, None, None] * torch.log1p(far.clamp(min=0).double())
    (torch.softmax(S.masked_fill(far < 0, -torch.inf), -1) @ V).sum().backward()
    np.testing.assert_allclose(gradient.run(*given)[-1], s.grad.numpy(), atol=2e-2)
