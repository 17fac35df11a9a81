# pyright: standard
"""Tensors that are put one after another, and of which only parts are read: what is done with the whole is done with
each part, and no whole is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
import torch
from test_torch_operations import nothing_is_left, report_of

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Heads(torch.nn.Module):
    """What `eager_attention_forward` asks of the module that calls it."""

    num_key_value_groups = 2

    def __init__(self, sinks: torch.Tensor):
        super().__init__()
        self.sinks = torch.nn.Parameter(sinks)


def attention(sinks: torch.Tensor, mask: bool) -> Function:
    heads = Heads(sinks).eval()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return gpt_oss.eager_attention_forward(heads, q, k, v, added if mask else None, 0.125)[0]

    return attend


def given(dtype: torch.dtype, length: int = 70) -> tuple[torch.Tensor, ...]:
    q = torch.randn(2, 4, length, 64, dtype=dtype)
    k, v = (torch.randn(2, 2, length, 64, dtype=dtype) for _ in range(2))
    added = torch.full((length, length), torch.finfo(dtype).min, dtype=dtype).triu(1)
    return q, k, v, added


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention_with_a_sink_is_one_kernel(dtype: torch.dtype, mask: bool) -> None:
    """As gpt-oss writes it: the sinks behind the scores, less the largest, their softmax, without the last."""
    function = attention(torch.randn(4).to(dtype), mask)
    report = report_of(function, *given(dtype))
    nothing_is_left(report)
    assert dtype == torch.float32 or len(report.taken) == report.taken[0].kernel.estimate.kernels == 1


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_one_stream_feeds_it(machine: str) -> None:
    function = attention(torch.randn(4).half(), True)
    report = report_of(function, *given(torch.float16), machine=machine, backend="interpreter")
    (taken,) = report.taken
    laws = [step.law for step in taken.kernel.derivation if step.rewrite == "streaming"]
    assert laws == ["associativity of max", "cascade", "cascade"]


def ending(size: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, size)


WHOLE = torch.randn(3, 5, 9)

CASES: dict[str, tuple[Function, bool]] = {
    "maps": (lambda a, b: torch.cat([a * 2, b], -1).exp()[..., :9] + 1, True),
    "several parts": (lambda a, b: torch.cat([a, b, a[..., :2]], -1).relu()[..., 9:].sum(-1), True),
    "sum": (lambda a, b: torch.cat([a, b], -1).sum(-1, keepdim=True) * a, True),
    "sums": (lambda a, b: torch.cat([a, b], 2).sum([1, 2]) + a.sum(), True),
    "largest": (lambda a, b: torch.cat([a, b], -1).amax(-1) - torch.cat([b, a], -1).amin(-1), True),
    "what is shared": (lambda a, b: (torch.cat([a, b], -1) * a[..., :1] + 1.0)[..., :9] * 2, True),
    "given as it is cut": (lambda a, b: torch.cat([a, b], -1).exp()[..., :9].transpose(0, 1), False),
    "two that are alike": (lambda a, b: (torch.cat([a, b], -1) * torch.cat([a.cos(), b.sin()], -1)).sum(-1), False),
    "softmax": (lambda a, b: torch.softmax(torch.cat([a, b], -1), -1)[..., :9] * 2, True),
    "softmax of the other": (lambda a, b: torch.softmax(torch.cat([a, b], -1), -1)[..., 9:] * 2, True),
    "softmax of both": (lambda a, b: both(torch.softmax(torch.cat([b, a], -1), -1), b.shape[-1]), True),
    "another dimension": (lambda a, b: torch.cat([a, b], -1)[:, 1:, :9].exp(), True),
    "across": (lambda a, b: torch.softmax(torch.cat([a, b[..., :1].expand_as(a)], 1), 1)[:, :5].sum(-1), True),
    "cut elsewhere": (lambda a, b: torch.cat([a, b], -1).exp()[..., :8] + 1, False),
    "read as a whole": (lambda a, b: (torch.cat([a, b], -1), torch.cat([a, b], -1).exp()[..., :9]), False),
    "along another dimension": (lambda a, b: torch.cat([a, b], -1).softmax(1)[..., :9] + 1, False),
    "of two formats": (lambda a, b: torch.cat([a, b.half()], -1).exp()[..., :9] + 1, False),
    "with an empty one": (lambda a, b: torch.softmax(torch.cat([a, b[..., :0]], -1), -1)[..., :9] + 1, True),
    "with an array of its own": (lambda a, b: (torch.cat([a, b], -1) * torch.cat([b, a], -1)).sum(-1), False),
}


def both(shares: torch.Tensor, first: int) -> torch.Tensor:
    return shares[..., first:].sum(-1) - shares[..., :first].amax(-1)


@pytest.mark.parametrize("more", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_parts_alone(case: str, more: int) -> None:
    function, is_apart = CASES[case]
    report = report_of(function, WHOLE, ending(more, 3, 5), backend="interpreter")
    left = [each.operation for each in report.left]
    assert ("cat.default" in left) is not is_apart, report


@pytest.mark.parametrize("sink", [0.5, 200.0, -200.0, inf, -inf])
def test_a_sink_beside_rows_of_infinities(sink: float) -> None:
    """Beside a sink a row of nothing but -inf has zeros, which is what PyTorch says of it, too."""
    rows = torch.randn(6, 40)
    rows[0] = rows[1, 1:] = rows[2, :20] = -inf
    rows[3, 5] = inf
    values = torch.randn(40, 16)

    def shares(rows: torch.Tensor, sink: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.cat([rows, sink.expand(6, 1)], -1), -1)[:, :-1] @ values

    nothing_is_left(report_of(shares, rows, torch.tensor([[sink]]), values))


def test_shares_of_doubles_are_as_exact() -> None:
    def function(x: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.cat([x, beside], -1), -1)[..., :7] * 2

    x, beside = torch.randn(5, 7).double(), torch.randn(5, 1).double()
    report = Report()
    made = torch.compile(function, backend=make_backend(Options(), report.graphs.append))
    torch.testing.assert_close(made(x, beside), function(x, beside), atol=1e-15, rtol=1e-14)
    assert "cat.default" not in [left.operation for left in report.left], report


@pytest.mark.parametrize(("dtype", "mean"), [(torch.float16, 1e5), (torch.bfloat16, 300.0)])
def test_a_maximum_is_subtracted_before_a_format_that_does_not_hold_it(dtype: torch.dtype, mean: float) -> None:
    """1e5 is beyond f16, and bf16 has numbers 2 apart near 300."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x - x.amax(-1, keepdim=True)).to(dtype), -1) * 2

    x = torch.randn(5, 7) * 3 + mean
    made = torch.compile(function, backend=make_backend(Options.of({"machine": "a100"}), lambda _: None))
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(made(x), function(x), atol=unit, rtol=2 * unit)


def test_lengths_are_symbols() -> None:
    """One kernel serves a class of lengths."""
    function, report = attention(torch.randn(4).half(), True), Report()
    options = Options.of({"backend": "interpreter"})
    compiled = torch.compile(function, backend=make_backend(options, report.graphs.append), dynamic=True)
    with torch.no_grad():
        for length in (33, 50, 64):
            inputs = given(torch.float16, length)
            torch.testing.assert_close(compiled(*inputs), function(*inputs), atol=4e-3, rtol=4e-3)
    assert not report.left, report
    assert len(report.taken) == 1
