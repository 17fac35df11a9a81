# pyright: standard
"""Training under `torch.compile(backend="treadle")`: kernels of backward graphs, what is saved for them, and their
numbers beside PyTorch's own gradients in float64; these, with `--device cuda`, on a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import missing_for
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import treadle
from treadle.torch.backend import make_backend
from treadle.torch.compiled_graph import Launch
from treadle.torch.exchange import exchange_sums
from treadle.torch.options import Options
from treadle.torch.registry import aten
from treadle.torch.report import GraphReport


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(7)
    yield
    torch._dynamo.reset()


def compiled(function: Any, reports: list[GraphReport] | None = None, dynamic: bool = False, **options: Any) -> Any:
    found = [] if reports is None else reports
    return torch.compile(
        function, backend=make_backend(Options(training=True, **options), found.append), dynamic=dynamic
    )


def gradients(function: Any, given: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Of the sum of all results, each element times a number of its own."""
    results = function(*given)
    several = [each for each in (results if isinstance(results, tuple) else (results,)) if each.requires_grad]
    weights = [torch.linspace(-1, 1, each.numel()).view(each.shape).to(each) for each in several]
    leaves = [each for each in given if each.requires_grad]
    leaves += [*function.parameters()] if isinstance(function, nn.Module) else []
    return list(torch.autograd.grad(several, leaves, weights, allow_unused=True))


def leaves(given: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    return [each.to(dtype).detach().requires_grad_() if each.is_floating_point() else each for each in given]


def as_module(function: Any, dtype: torch.dtype, device: str) -> Any:
    return copy.deepcopy(function).to(device, dtype) if isinstance(function, nn.Module) else function


def random(*shapes: tuple[int, ...]) -> Callable[[], list[torch.Tensor]]:
    return lambda: [torch.randn(shape) for shape in shapes]


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v


def written_out(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.t() * 0.3
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)) @ v


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def used_twice(q: Any, k: Any) -> Any:
    shares = torch.softmax(q @ k.t(), -1)
    return shares @ k, shares.sum(-2)


def chosen(a: Any, b: Any) -> Any:
    return torch.where(a > 0, torch.maximum(a, b), a.clamp(-0.5, 0.7) * b).sum(0)


def tied(a: Any) -> Any:
    return a.round().amax(1), (a.round() * a).amin(0)


CASES: dict[str, tuple[Any, Callable[[], list[torch.Tensor]]]] = {
    "attention": (attention, random((2, 19, 4), (2, 23, 4), (2, 23, 4))),
    "attention of itself": (lambda x: attention(x, x, x), random((2, 19, 4))),
    "attention written out": (written_out, random((19, 4), (23, 4), (23, 4))),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        random((1, 2, 19, 4), (1, 2, 19, 4), (1, 2, 19, 4)),
    ),
    "grouped heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        random((1, 4, 19, 4), (1, 2, 17, 4), (1, 2, 17, 4)),
    ),
    "a mask of truth values": (
        lambda q, k, v, m: masked(q, k, v, m > 0),
        lambda: [*random((2, 17, 4), (2, 19, 4), (2, 19, 4))(), torch.randint(0, 3, (17, 19))],
    ),
    "a mask that is added": (masked, random((2, 17, 4), (2, 19, 4), (2, 19, 4), (17, 19))),
    "shares used twice": (used_twice, random((19, 4), (23, 4))),
    "softmax along both axes": (lambda a: torch.softmax(a * 2, 0) * torch.softmax(a, 1), random((11, 13))),
    "RMS norm": (lambda x, g: F.rms_norm(x, (24,), g), random((3, 5, 24), (24,))),
    "layer norm": (lambda x, g, b: F.layer_norm(x, (24,), g, b), random((3, 5, 24), (24,), (24,))),
    "an MLP": (nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8)), random((9, 8))),
    "cross entropy": (
        lambda x, w, t: F.cross_entropy(x @ w, t),
        lambda: [*random((9, 8), (8, 21))(), torch.randint(0, 21, (9,))],
    ),
    "where, maximum, clamp": (chosen, random((7, 11), (11,))),
    "extrema with ties": (tied, random((7, 11))),
    "broadcasting": (lambda a, b, c: (a * b + c).tanh(), random((4, 1, 6), (5, 1), (1,))),
    "several results": (lambda a, b: (a @ b, (a @ b).sin(), a.sum()), random((9, 12), (12, 7))),
    "an argument of integers": (
        lambda a, i: a * i + (a**2).mean(),
        lambda: [*random((9, 12))(), torch.randint(0, 5, (9, 12), dtype=torch.int32)],
    ),
    "views": (
        lambda x, w: (x.reshape(6, 8, 10).transpose(1, 2) @ w).permute(2, 0, 1).contiguous().view(-1),
        random((6, 80), (8, 5)),
    ),
}


@pytest.mark.sample(5, each=False)
@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_eager(name: str, dtype: torch.dtype, machine: str, device: str) -> None:
    if missing := missing_for(device, machine):
        pytest.skip(missing)
    function, make = CASES[name]
    compare(function, make(), dtype, machine, device)


def test_a_convolution_that_is_reduced_again() -> None:
    """It may be made again, if it is larger than what it is made from; what follows from it is, then."""
    given = random((1, 2, 6, 4), (4, 1, 3, 3))()
    compare(lambda x, w: F.avg_pool2d(F.conv2d(x, w, padding=1, groups=2).exp(), 2), given, torch.float32, "a100")


def compare(function: Any, tensors: list[torch.Tensor], dtype: torch.dtype, machine: str, device: str = "cpu") -> None:
    """Errors are measured against float64. They may be those of PyTorch's own operations in the same format, twice, or
    64 roundings of the largest gradient."""
    given = leaves([each.to(device) for each in tensors], dtype)
    model = as_module(function, dtype, device)
    wide = gradients(as_module(model, torch.float64, device), leaves(given, torch.float64))
    reports: list[GraphReport] = []
    ours = gradients(compiled(model, reports, machine=machine), given)
    assert [each.kind for each in reports] == ["forward", "backward"]
    assert reports[1].taken
    for mine, eager, exact in zip(ours, gradients(model, given), wide, strict=True):
        assert mine is not None
        assert eager is not None
        assert exact is not None
        assert mine.device == eager.device
        assert mine.dtype == eager.dtype
        assert mine.shape == eager.shape
        error, theirs = ((each.double() - exact).abs().max().item() for each in (mine, eager))
        assert error <= max(2 * theirs, 64 * torch.finfo(dtype).eps * exact.abs().max().item())


@pytest.mark.parametrize("machine", ["h100", pytest.param("a100", marks=pytest.mark.full)])
def test_no_scores_are_saved_or_written(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of attention reads or writes 1024 x 1024 scores for each head, nor are they saved. (Kernels do not run:
    only what they would read and write counts.)"""

    def empty(launch: Launch, *tensors: torch.Tensor) -> Any:
        made = [
            torch.empty_strided(each.view.shape, each.view.strides, dtype=each.dtype) for each in launch.program.outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)

    monkeypatch.setattr(Launch, "forward", empty)
    given = leaves(random(*[(1, 16, 1024, 64)] * 3)(), torch.float16)
    reports: list[GraphReport] = []
    gradients(compiled(attention, reports, machine=machine, cpu_work=10**12), given)
    assert [len(each.taken) for each in reports] == [1, 1]
    assert not any(each.left for each in reports)
    assert reports[0].saved_bytes == 0
    for report in reports:
        for kernel in report.taken[0].kernel.cost().kernels:
            (device,) = [each for each in kernel.levels if each.name == "device"]
            assert device.memory_bytes < 16 * 1024 * 1024 * 2


def test_a_maximum_is_compared_with_what_it_is_of() -> None:
    """In f16 a kernel does not round the scores that it makes again, and a maximum that was saved was rounded."""
    given = leaves([torch.randn(19, 4) * 3, torch.randn(23, 4) * 3, torch.randn(23, 4)], torch.float16)
    for mine in gradients(compiled(written_out), given):
        assert mine is not None
        assert mine.isfinite().all()


def test_only_what_requires_a_gradient_has_one() -> None:
    q, k, v = leaves(random((9, 4), (19, 4), (19, 4))(), torch.float32)
    k.requires_grad_(False)
    reports: list[GraphReport] = []
    result = compiled(attention, reports)(q, k, v)
    assert [each.kind for each in reports] == ["forward"], "a backward is compiled when it is asked for"
    result.sum().backward()
    assert k.grad is None
    assert q.grad is not None
    assert v.grad is not None
    products = sum(name.startswith(("mm", "bmm")) for each in reports[1].taken for name in each.operations)
    assert products == 4, "scores, and the gradients of the scores, the queries and the values"


def test_without_a_gradient_nothing_is_saved() -> None:
    reports: list[GraphReport] = []
    with torch.no_grad():
        compiled(attention, reports)(*random((9, 4), (19, 4), (19, 4))())
    assert [each.kind for each in reports] == ["inference"]
    assert len(reports[0].taken) == 1


def test_dropout_drops_the_same_backward() -> None:
    x = torch.randn(64, requires_grad=True)
    result = compiled(lambda x: F.dropout(x * 2, 0.5).sin())(x)
    (ours,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(ours == 0, result == 0)
    assert 0 < (result == 0).sum() < 64


def test_what_is_changed_in_place() -> None:
    def run(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x.detach().sum(0))
        return (x * total).relu()

    x, total = torch.randn(5, 7, requires_grad=True), torch.randn(7)
    ours, theirs = total.clone(), total.clone()
    mine = torch.autograd.grad(compiled(run)(x, ours).sum(), x)
    torch.testing.assert_close(mine, torch.autograd.grad(run(x, theirs).sum(), x))
    torch.testing.assert_close(ours, theirs)


def test_lengths_that_vary() -> None:
    run = compiled(attention, dynamic=True)
    for q, x in ((19, 23), (21, 25)):
        given = leaves(random((2, q, 4), (2, x, 4), (2, x, 4))(), torch.float32)
        for mine, eager in zip(gradients(run, given), gradients(attention, given), strict=True):
            torch.testing.assert_close(mine, eager, atol=1e-5, rtol=1e-5)


def test_a_users_checkpoint() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        made = checkpoint(lambda x: torch.softmax(x @ w, -1).sin(), x, use_reentrant=False)
        return made @ w.t()  # type: ignore[operator]

    given = leaves(random((9, 8), (8, 19))(), torch.float32)
    for mine, eager in zip(gradients(compiled(run), given), gradients(run, given), strict=True):
        torch.testing.assert_close(mine, eager, atol=1e-5, rtol=1e-5)


def test_a_gradient_of_the_gradient_is_refused() -> None:
    x = torch.randn(5, 7, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(lambda x: torch.softmax(x, -1).sin())(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def test_explain_shows_the_backward() -> None:
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))
    trained = {"training": True}
    report = treadle.explain(model, (torch.randn(9, 8),), options=trained)
    assert [each.kind for each in report.graphs] == ["forward", "backward"]
    assert report.graphs[1].taken
    text = str(report)
    assert "2 graph(s), 1 of them backward" in text
    assert ", backward: mm" in text
    assert f"beside arguments and results: {report.graphs[0].saved_bytes:,} bytes" in text
    assert all(each.grad is None for each in model.parameters())
    with torch.no_grad():
        assert "backward" not in str(treadle.explain(model, (torch.randn(9, 8),), options=trained))


def test_unasked_the_backward_stays_with_pytorch() -> None:
    model, reports = nn.Linear(8, 5), list[GraphReport]()
    x = torch.randn(3, 8, requires_grad=True)
    made = torch.compile(model, backend=make_backend(Options(), reports.append))
    for mine, plain in zip(
        *(torch.autograd.grad(f(x).sin().sum(), [x, model.weight]) for f in (made, model)), strict=True
    ):
        torch.testing.assert_close(mine, plain)
    assert [each.kind for each in reports] == ["inference"]
    assert len(treadle.explain(model, (x,)).graphs) == 1


def test_training_is_true_or_false() -> None:
    with pytest.raises(treadle.TreadleError, match="the option training is 1: it is True or False"):
        Options.of({"training": 1})


def rows(a: torch.Tensor, v: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> Any:
    """A product, and a row sum of a gradient of it: of its own values, or of others."""
    product = torch.bmm(a, v)
    gradient = torch.bmm(g, u.permute(0, 2, 1))
    return product, (a.float() * gradient.float()).sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("x", "e", "shared", "exchanged"), [(23, 5, True, True), (5, 23, True, False), (23, 5, False, False)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_are_exchanged(dtype: torch.dtype, x: int, e: int, shared: bool, exchanged: bool) -> None:
    """Where the product's rows are not longer than what was summed along, and where it is that product."""
    a, v, g = torch.randn(2, 7, x).to(dtype), torch.randn(2, x, e).to(dtype), torch.randn(2, 7, e).to(dtype)
    u = torch.randn(2, x, e).to(dtype)
    run = (lambda a, v, g, u: rows(a, v, g, v)) if shared else rows
    module = make_fx(run, tracing_mode="fake")(a, v, g, u)
    before = run(a, v, g, u)
    (old,) = module.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    exchange_sums(module.graph)
    module.graph.lint()
    module.recompile()
    assert (old in module.graph.nodes) is not exchanged
    close = 1e-4 if dtype is torch.float32 else 5e-2
    torch.testing.assert_close(module(a, v, g, u)[1], before[1], atol=close, rtol=close)
