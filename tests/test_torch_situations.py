# pyright: standard
"""How compiled modules are used: sizes that change, formats that are chosen around them, training, threads, copies.
Each result is eager PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.torch import Report, backend, operator, simplified
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

INTERPRETER: dict[str, Any] = {"backend": "interpreter"}
"""What is asked here is not what kernels compute, and the emulator has a compiler to wait for."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Layer(nn.Module):
    """One kernel, with dropout before its product or without."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.out = nn.Linear(8, 8)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.out(F.dropout(x * 2, self.dropout, self.training)))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT, -1) @ v


def compiled(function: Callable[..., Any], **how: Any) -> tuple[Any, Report]:
    report = Report()
    return torch.compile(function, backend=make_backend(Options.of(INTERPRETER), report.graphs.append), **how), report


def same(got: torch.Tensor, want: torch.Tensor, digits: float = 1e-5) -> None:
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    assert (got.requires_grad, got.is_inference()) == (want.requires_grad, want.is_inference())
    torch.testing.assert_close(got, want, atol=digits, rtol=digits, equal_nan=True)


# -- sizes and what lies in memory -------------------------------------------------------------------


def test_attention_of_symbolic_sizes() -> None:
    """One of them is 1 at last: what the order of the result in memory is said to be may not be a symbol."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)

    made, _ = compiled(function, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 3), (2, 1)):
            x = torch.randn(batch, length, 4)
            same(made(x), function(x))


def test_no_keys() -> None:
    made, report = compiled(attend)
    q, k = torch.randn(2, 5, 8), torch.randn(2, 0, 8)
    with torch.no_grad():
        same(made(q, k, k), attend(q, k, k))
    assert {left.reason for left in report.left} == {"it has no elements"}


def test_memory_that_is_read_with_another_sign() -> None:
    x = torch.complex(torch.randn(5, 8), torch.randn(5, 8))
    made, report = compiled(lambda x: torch.softmax(x, -1))
    with torch.no_grad():
        for each in (x.imag, x.conj().imag):
            torch.testing.assert_close(made(each), torch.softmax(each, -1))
    assert report.taken


def test_statistics_in_another_format_than_pytorch_says() -> None:
    """Of f16 they are in f16, where its graph has them in f32."""
    theirs = nn.InstanceNorm2d(4, track_running_stats=True).half()
    ours = copy.deepcopy(theirs)
    made, report = compiled(ours)
    x = torch.randn(2, 4, 3, 5).half()
    with torch.no_grad():
        same(made(x), theirs(x), 2.0**-9)
    for got, want in zip(ours.buffers(), theirs.buffers(), strict=True):
        same(got, want, 2.0**-9)
    assert report.taken


def test_views_that_are_written_in_place() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ x.t()
        y[:, 1:3] = torch.softmax(y[:, 1:3], -1)
        part = y.view(-1)[3:9]
        part += 1
        x[0].mul_(2)
        return y @ x, part

    made, report = compiled(function)
    ours = torch.randn(5, 8)
    theirs = ours.clone()
    with torch.no_grad():
        for got, want in zip(made(ours), function(theirs), strict=True):
            same(got, want, 1e-4)
    same(ours, theirs)
    assert report.taken


# -- around the call ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_switched_on_and_off(dtype: torch.dtype) -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    made, report = compiled(layer)
    with torch.no_grad():
        same(made(x), layer(x))
        with torch.autocast("cpu", dtype):
            assert made(x).dtype == dtype
            same(made(x), layer(x), 2.0**-6)
        same(made(x), layer(x))
    assert not report.left


def test_autocast_inside_and_its_gradients() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.tanh(x @ w).float() * 2

    made, report = compiled(function)
    x, w = (torch.randn(*shape, requires_grad=True) for shape in ((5, 8), (8, 8)))
    ours, theirs = (torch.autograd.grad(f(x, w).square().sum(), (x, w)) for f in (made, function))
    for got, want in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, want, atol=2.0**-5 * want.abs().max().item(), rtol=0.0)
    assert report.taken


def test_inference_and_gradients_in_turn() -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    made, _ = compiled(layer)
    for mode in (torch.inference_mode, torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            same(made(x), layer(x))


@pytest.mark.parametrize("asked", [(0,), (1,), (0, 2)])
def test_gradients_of_some_arguments(asked: tuple[int, ...]) -> None:
    made, report = compiled(attend)
    given = [torch.randn(2, n, 8).requires_grad_(i in asked) for i, n in enumerate((3, 5, 5))]
    wanted = [given[i] for i in asked]
    ours, theirs = (torch.autograd.grad(f(*given).square().sum(), wanted) for f in (made, attend))
    for got, want in zip(ours, theirs, strict=True):
        same(got, want, 1e-4)
    assert report.taken


def test_dropout_is_by_a_seed_of_pytorchs() -> None:
    """In training the same elements by the same seed, others by the next; none in evaluation, of the same module."""
    layer, x = Layer(0.5), torch.randn(5, 8)
    made, report = compiled(layer)
    results = []
    for seed in (3, 3, None):
        if seed is not None:
            torch.manual_seed(seed)
        results.append(torch.autograd.grad(made(x).sum(), layer.out.weight)[0])
    same(*results[:2])
    assert not torch.equal(*results[1:])
    assert [left.operation for left in report.left] == ["randint.low"]
    layer.eval()
    same(made(x), layer(x))


# -- modules and functions ---------------------------------------------------------------------------


def test_a_module_that_is_compiled_twice() -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    with torch.no_grad():
        wanted = layer(x)
        made, first = compiled(layer)
        again, second = compiled(layer, fullgraph=True)
        same(made(x), wanted)
        same(again(x), wanted)
        same(compiled(made)[0](x), wanted)
    assert len(first.taken) == len(second.taken) == 1


def test_parameters_that_are_exchanged() -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    made, _ = compiled(layer)
    with torch.no_grad():
        same(made(x), layer(x))
        layer.out.weight.data = torch.randn(8, 8).t()
        same(made(x), layer(x))
        layer.out.bias = nn.Parameter(torch.randn(8))
        same(made(x), layer(x))


def test_copies_of_a_compiled_module() -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    made = torch.compile(layer, backend=backend, options=INTERPRETER)
    with torch.no_grad():
        wanted = layer(x)
        same(made(x), wanted)
        other: Any = copy.deepcopy(made)
        same(other(x), wanted)
        other._orig_mod.out.bias.add_(1)
        same(other(x), other._orig_mod(x))
        same(made(x), wanted)


def test_a_module_that_is_saved() -> None:
    layer, x = Layer().eval(), torch.randn(5, 8)
    layer.compile(backend=backend, options=INTERPRETER)
    with torch.no_grad():
        wanted = layer(x)
        same(pickle.loads(pickle.dumps(layer))(x), wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_threads(dynamic: bool) -> None:
    """Each compiles what no other did before, or waits for it."""
    layer = Layer().eval()
    made, _ = compiled(layer, dynamic=dynamic)

    def call(n: int) -> None:
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(3 + n % 2, 8)
                same(made(x), layer(x))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(call, range(6)))


# -- operators ---------------------------------------------------------------------------------------


@treadle.kernel("b q d, b x d, b x e -> b q e")
def attention(Q: Any, K: Any, V: Any) -> Any:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d"), over="x"), V, over="x")


MINE = operator("treadle_situations::attention", attention, attend)


class Calls(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.ops.treadle_situations.attention(q, k, v) * 2


def test_an_operator_is_exported_with_sizes_that_change() -> None:
    batch, length = torch.export.Dim("batch", max=8), torch.export.Dim("length", min=2, max=64)
    sizes = ({0: batch}, {0: batch, 1: length}, {0: batch, 1: length})
    exported = torch.export.export(Calls(), tuple(torch.randn(2, n, 8) for n in (3, 5, 5)), dynamic_shapes=sizes)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    given = [torch.randn(3, n, 8) for n in (3, 6, 6)]
    got = torch.export.load(file).module()(*given)
    torch.testing.assert_close(got, attend(*given) * 2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_an_operator_on_nothing(sizes: tuple[int, int, int]) -> None:
    batch, q, x = sizes
    given = torch.randn(batch, q, 8), torch.randn(batch, x, 8), torch.randn(batch, x, 8)
    torch.testing.assert_close(MINE(*given), attend(*given))


def test_an_operator_that_is_mapped() -> None:
    given = [torch.randn(3, 2, n, 8) for n in (3, 5, 5)]
    torch.testing.assert_close(torch.func.vmap(MINE)(*given), attend(*given), atol=1e-5, rtol=1e-5)


def test_an_operator_of_tensors_on_several_devices() -> None:
    q, k = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    assert MINE(q.to("meta"), k.to("meta"), k.to("meta")).shape == q.shape
    with pytest.raises(TreadleError, match="of treadle_situations::attention lie on several devices, meta, cpu"):
        MINE(q.to("meta"), k, k)


def test_a_device_without_kernels_stays() -> None:
    made, report = compiled(attend)
    q, k = torch.randn(2, 3, 8, device="meta"), torch.randn(2, 5, 8, device="meta")
    with torch.no_grad():
        assert made(q, k, k).device == q.device
    assert {left.reason for left in report.left} == {"its tensors lie on the device 'meta', where no kernel runs"}


def test_jagged_tensors_stay_with_pytorch() -> None:
    """Some of their sizes are lists, which are no axis."""
    rows = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)], layout=torch.jagged)
    made, report = compiled(lambda a: torch.tanh(a * 2))
    torch.testing.assert_close(made(rows).values(), torch.tanh(rows.values() * 2))
    assert not report.taken
    assert "it is of nested tensors" in str(report)


def test_a_graph_that_cannot_be_simplified_is_compiled_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(graph: Graph) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(simplified, "take_apart", failing)
    made, report = compiled(attend)
    q, k = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="failed to simplify a graph .*a mistake of ours"):
        same(made(q, k, k), attend(q, k, k))
    assert report.taken
