# pyright: standard
"""Latent attention as it is written for PyTorch: keys of which the values are a part, by views, and keys and queries
that are put together of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import treadle.torch
from treadle.compiler.source import parse_module
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

Function = Callable[..., Tensor]

C, R = 96, 16
"""Columns of values, and those that hold positions."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def grouped(q: Tensor, kv: Tensor) -> Tensor:
    k = kv.unsqueeze(1)
    return F.scaled_dot_product_attention(q, k, k[..., :C], enable_gqa=True)


def grouped_causal(q: Tensor, kv: Tensor) -> Tensor:
    k = kv.unsqueeze(1)
    return F.scaled_dot_product_attention(q, k, k[..., :C], enable_gqa=True, is_causal=True)


def expanded(q: Tensor, kv: Tensor) -> Tensor:
    k = kv.unsqueeze(1).expand(-1, q.shape[1], -1, -1)
    return F.scaled_dot_product_attention(q, k, k[..., :C])


def repeated(q: Tensor, kv: Tensor) -> Tensor:
    k = kv.unsqueeze(1).repeat_interleave(q.shape[1], 1)
    return F.scaled_dot_product_attention(q, k, k[..., :C])


def last_columns(q: Tensor, kv: Tensor) -> Tensor:
    return torch.softmax(q @ kv.mT[:, None] * 0.1, -1) @ kv[:, None, :, R:]


def middle_columns(q: Tensor, kv: Tensor) -> Tensor:
    return torch.softmax(q @ kv.mT[:, None] * 0.1, -1) @ kv[:, None, :, 8:72]


def split(q: Tensor, kv: Tensor) -> Tensor:
    values, _ = kv.split([C, R], -1)
    return torch.softmax(torch.einsum("bhsd,btd->bhst", q, kv) * 0.1, -1) @ values[:, None]


IN_PART: dict[str, Function] = {
    each.__name__: each for each in (grouped, grouped_causal, expanded, repeated, last_columns, middle_columns, split)
}
"""Of queries `b h s d` and keys `b t d`."""


def whole_keys(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> Tensor:
    k = torch.cat([c, r], -1)[:, None]
    return F.scaled_dot_product_attention(torch.cat([q, u], -1), k, c[:, None], enable_gqa=True)


def part_of_whole_keys(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> Tensor:
    k = torch.cat([c, r], -1)[:, None]
    return F.scaled_dot_product_attention(torch.cat([q, u], -1), k, k[..., :C], enable_gqa=True)


def whole_by_einsum(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> Tensor:
    scores = torch.einsum("bhsd,btd->bhst", torch.cat([q, u], -1), torch.cat([c, r], -1)) * 0.1
    return torch.einsum("bhst,btc->bhsc", scores.softmax(-1), c)


def three_parts(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> Tensor:
    keys, queries = torch.cat([r, c, r], -1), torch.cat([u, q, u], -1)
    return torch.softmax(queries @ keys.mT[:, None] * 0.1, -1) @ c[:, None]


TOGETHER: dict[str, Function] = {each.__name__: each for each in (whole_keys, part_of_whole_keys, whole_by_einsum)}
"""Of queries `b h s c` and `b h s r`, and of keys `b t c` and `b t r`."""


def linear(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    return torch.cat([a, b], -1) @ weight


def with_bias(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    return F.linear(torch.cat([a, b], -1), weight.mT, weight[0])


PRODUCTS: dict[str, Function] = {each.__name__: each for each in (linear, with_bias)}


def run(function: Function, given: tuple[Tensor, ...], **options: Any) -> treadle.torch.Report:
    """What became of it, where its results are PyTorch's."""
    asked = {"machine": "h100", "cpu_work": 1e12, **options}
    report = treadle.torch.explain(function, given, options=asked)
    got = torch.compile(function, backend="treadle", options=asked)(*given)
    wanted = function(*(each.double() for each in given))
    error = float((got.double() - wanted).abs().max() / wanted.abs().max())
    assert got.dtype == given[0].dtype
    assert error < {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[given[0].dtype]
    return report


def arguments(report: treadle.torch.Report) -> list[int]:
    """How many arrays each program takes."""
    modules = (parse_module(part.kernel.diagram) for part in report.taken)
    return [len(next(iter(module.body.block.ops)).regions[0].block.args) for module in modules]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", IN_PART)
def test_keys_of_which_values_are_a_part_are_one_argument(name: str, dtype: torch.dtype) -> None:
    q, kv = torch.randn(2, 4, 5, C + R, dtype=dtype), torch.randn(2, 70, C + R, dtype=dtype)
    report = run(IN_PART[name], (q, kv))
    assert (arguments(report), report.left) == ([2], [])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", TOGETHER)
def test_keys_that_are_put_together_are_read_where_they_lie(name: str, dtype: torch.dtype) -> None:
    widths = ((2, 4, 5, C), (2, 4, 5, R), (2, 70, C), (2, 70, R))
    report = run(TOGETHER[name], tuple(torch.randn(*shape, dtype=dtype) for shape in widths))
    assert (arguments(report), report.left) == ([4], [])


@pytest.mark.parametrize("name", IN_PART)
def test_of_f32_a_part_is_right(name: str) -> None:
    """However many kernels that is, by the model."""
    report = run(IN_PART[name], (torch.randn(2, 4, 5, C + R), torch.randn(2, 70, C + R)))
    assert report.left == []


@pytest.mark.parametrize("function", [*TOGETHER.values(), three_parts])
def test_of_f32_what_is_put_together_is_right(function: Function) -> None:
    widths = ((2, 4, 5, C), (2, 4, 5, R), (2, 70, C), (2, 70, R))
    report = run(function, tuple(torch.randn(*shape) for shape in widths))
    assert report.left == []


@pytest.mark.parametrize("name", IN_PART)
def test_keys_of_any_length_are_one_argument(name: str) -> None:
    report = treadle.torch.Report()
    options = Options.of({"machine": "h100", "cpu_work": 1e12})
    compiled = torch.compile(IN_PART[name], backend=make_backend(options, report.graphs.append))
    q = torch.randn(2, 4, 5, C + R, dtype=torch.float16)
    for length in (70, 71, 90):
        kv = torch.randn(2, length, C + R, dtype=torch.float16)
        torch.testing.assert_close(compiled(q, kv), IN_PART[name](q, kv), rtol=2e-3, atol=2e-3)
    assert (arguments(report), report.left) == ([2, 2], [])


def test_parts_that_have_gaps_in_memory_are_read_there() -> None:
    """Keys in a cache that is longer than they are."""
    shapes = ((2, 4, 5, C), (2, 4, 5, R), (2, 90, C), (2, 90, R))
    q, u, c, r = (torch.randn(*shape, dtype=torch.float16) for shape in shapes)
    report = run(part_of_whole_keys, (q, u, c[:, :70], r[:, :70]))
    assert (arguments(report), report.left) == ([4], [])


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_a_layer_multiplies_is_not_put_together(name: str) -> None:
    report = run(PRODUCTS[name], (torch.randn(40, 128), torch.randn(40, 32), torch.randn(160, 64)))
    assert report.left == []


@pytest.mark.parametrize("machine", ["h100", "h200"])
def test_keys_of_which_values_are_a_part_are_loaded_once(machine: str) -> None:
    """At the widths of a model that is served: one kernel, as fast as from two arrays."""

    def decode(q: Tensor, kv: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, kv, kv[..., :512])

    def apart(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> Tensor:
        scores = torch.einsum("bhc,btc->bht", q, c) + torch.einsum("bhr,btr->bht", u, r)
        return torch.einsum("bht,btc->bhc", torch.softmax(scores * 0.04, -1), c)

    def zeros(*widths: int) -> tuple[Tensor, ...]:
        queries = (torch.zeros(64, 128, width, dtype=torch.bfloat16) for width in widths)
        return *queries, *(torch.zeros(64, 512, width, dtype=torch.bfloat16) for width in widths)

    options = {"machine": machine, "cpu_work": 1e12, "backend": "interpreter"}
    reports = [treadle.torch.explain(decode, zeros(576), options=options)]
    reports.append(treadle.torch.explain(apart, zeros(512, 64), options=options))
    one, other = ([each.kernel.estimate for each in report.taken] for report in reports)
    assert [each.kernels for each in one] == [1]
    assert sum(each.time_us or 0 for each in one) <= 1.02 * sum(each.time_us or 0 for each in other)


# -- what stays --------------------------------------------------------------------------------------


def given_too(q: Tensor, k: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    keys = torch.cat([k, r], -1)
    return q @ keys.mT, keys


def both_factors(q: Tensor, k: Tensor, r: Tensor) -> Tensor:
    keys = torch.cat([k, r], -1)
    return keys @ keys.mT


def of_no_part(q: Tensor, k: Tensor, r: Tensor) -> Tensor:
    keys = torch.cat([k, r], -1)
    return (q @ keys.mT) @ keys[..., :40]


@pytest.mark.parametrize("function", [given_too, both_factors, of_no_part])
def test_what_something_else_reads_is_put_together(function: Callable[..., Any]) -> None:
    given = (torch.randn(5, C + R), torch.randn(70, C), torch.randn(70, R))
    report = treadle.torch.explain(function, given, options={"machine": "h100", "cpu_work": 1e12})
    assert [each.operation for each in report.left] == ["cat.default"]
    got = torch.compile(function, backend="treadle", options={"machine": "h100", "cpu_work": 1e12})(*given)
    torch.testing.assert_close(got, function(*given), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("widths", [(300, 280), (64, 12), (64, 16, 16, 16, 16)])
def test_parts_for_which_sums_are_no_kernel_are_put_together(widths: tuple[int, ...]) -> None:
    """Several that no group holds whole, one that begins between 16 bytes of f16, and too many."""

    def function(x: Tensor, *parts: Tensor) -> Tensor:
        return x @ torch.cat([*reversed(parts)], -1).mT

    given = (torch.randn(40, sum(widths)), *(torch.randn(50, width) for width in widths))
    halves = tuple(each.half() for each in given)
    report = run(function, halves)
    assert not any("addmm" in operation for part in report.taken for operation in part.operations)


def test_parts_that_have_no_such_view_stay_together() -> None:
    """Halves of what is transposed, which lie in memory as that does, where the whole is contiguous."""

    def rotated(x: Tensor, y: Tensor) -> Tensor:
        first, second = x.transpose(1, 2).chunk(2, -1)
        return torch.softmax(torch.cat((first * 0.5 - second, second * 0.5 + first), -1) @ y, -1)

    x, y = torch.randn(2, 8, 4, 16), torch.randn(2, 4, 16, 8)
    options = {"machine": "h100", "cpu_work": 1e12, "backend": "interpreter"}
    torch.testing.assert_close(torch.compile(rotated, backend="treadle", options=options)(x, y), rotated(x, y))
