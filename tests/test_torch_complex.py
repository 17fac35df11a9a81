# pyright: standard
"""Complex numbers that `torch.compile` finds, made of pairs and taken apart again: programs do with the parts what is
done with the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import report_of

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

Function = Callable[..., Any]

ROWS, HEADS, WIDTH = 6, 2, 8


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(23)
    yield
    torch._dynamo.reset()


def turns() -> torch.Tensor:
    angles = torch.rand(ROWS, WIDTH // 2) * 6
    return torch.polar(torch.ones_like(angles), angles)


def rows() -> torch.Tensor:
    return torch.randn(2, ROWS, HEADS, WIDTH)


def in_pairs(x: Any) -> Any:
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def seen(z: Any) -> Any:
    return torch.view_as_real(z).flatten(-2)


def rotated(x: Any, turn: Any) -> Any:
    return seen(in_pairs(x) * turn[None, :, None]).to(x.dtype)


def turned_back(x: Any, turn: Any) -> Any:
    return seen(in_pairs(x) * turn[None, :, None].conj())


def both(x: Any, turn: Any) -> Any:
    return rotated(x, turn), turned_back(x * 2, turn)


def scaled(x: Any, turn: Any) -> Any:
    z = in_pairs(x) * turn[None, :, None] * 0.5 * x.abs().amax((-1,), keepdim=True)
    return seen((z + in_pairs(x)) * 2j - z.conj())


def of_products(x: Any, turn: Any) -> Any:
    z = in_pairs(x)
    return seen((z * z * turn[None, :, None]).view(2, ROWS, HEADS * WIDTH // 2).unsqueeze(1))


def angles_too(x: Any, angles: Any) -> Any:
    return seen(in_pairs(x) * torch.polar(angles.abs(), angles)[None, :, None])


@pytest.mark.parametrize("function", [rotated, turned_back, both, scaled, of_products])
def test_numbers_that_are_made_and_seen(function: Function) -> None:
    report = report_of(function, rows(), turns())
    assert len(report.taken) == (2 if function is both else 1)
    assert {each.operation for each in report.left} <= {"view_as_real.default"}, report  # of what is given


def test_numbers_of_magnitudes_and_angles() -> None:
    """`torch.polar` is PyTorch's."""
    report = report_of(angles_too, rows(), torch.rand(ROWS, WIDTH // 2))
    assert len(report.taken) == 1
    assert {each.operation for each in report.left} <= {"view_as_real.default", "abs.default", "polar.default"}, report


@pytest.mark.parametrize("format", [torch.bfloat16, torch.float16])
def test_rotations_of_16_bits(format: torch.dtype) -> None:
    assert len(report_of(rotated, rows().to(format), turns()).taken) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, turn: in_pairs(x).abs(),
        lambda x, turn: seen((in_pairs(x) * turn[None, :, None]).transpose(1, 2)),
        lambda x, turn: seen(in_pairs(x) / turn[None, :, None]),
        lambda x, turn: seen(torch.fft.fft(in_pairs(x) * turn[None, :, None])),
        lambda x, turn: (in_pairs(x) * turn[None, :, None], rotated(x, turn)),
        lambda x, turn: torch.view_as_real(turn) * 2,
        lambda x, turn: seen(torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2)) * turn[None, :, None]),
        lambda x, turn: seen(in_pairs(x) + x[..., :4].exp()),
    ],
    ids=["magnitude", "transposed", "quotient", "transform", "given away", "given", "64 bits", "sum with reals"],
)
def test_others_are_right(function: Function) -> None:
    report_of(function, rows(), turns())


def test_what_is_seen_lies_as_it_did() -> None:
    x, turn = rows(), turns()
    with torch.no_grad():
        made = torch.compile(pairs_of, backend="treadle")
        assert made(x, turn).stride() == pairs_of(x, turn).stride()


def pairs_of(x: Any, turn: Any) -> Any:
    return torch.view_as_real(in_pairs(x) * turn[None, :, None])


def attention(x: Any, q: Any, k: Any, turn: Any) -> Any:
    def heads(weights: Any) -> Any:
        return (x @ weights).view(*x.shape[:-1], HEADS, WIDTH)

    queries, keys = (rotated(heads(each), turn[: x.shape[1]]).transpose(1, 2) for each in (q, k))
    return F.scaled_dot_product_attention(queries, keys, heads(k).transpose(1, 2), is_causal=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_rotary_embeddings(dynamic: bool) -> None:
    """As in DeepSeek's and in Meta's own code."""
    report = Report()
    backend = make_backend(Options.of({"backend": "interpreter"}), report.graphs.append)
    made: Any = torch.compile(attention, backend=backend, dynamic=dynamic)
    q, k = (torch.randn(16, HEADS * WIDTH) / 4 for _ in range(2))
    with torch.no_grad():
        for size in (ROWS, ROWS - 1) if dynamic else (ROWS,):
            x, turn = torch.randn(2, size, 16), turns()
            torch.testing.assert_close(made(x, q, k, turn), attention(x, q, k, turn), atol=1e-5, rtol=1e-5)
    assert not any("mul" in each.operation for each in report.left), report


def test_rotary_embeddings_are_trained() -> None:
    report = Report()
    backend = make_backend(Options.of({"backend": "interpreter", "training": True}), report.graphs.append)
    made: Any = torch.compile(attention, backend=backend)
    x, turn = torch.randn(2, ROWS, 16, requires_grad=True), turns()
    q, k = (torch.randn(16, HEADS * WIDTH) / 4 for _ in range(2))
    got, want = (torch.autograd.grad(function(x, q, k, turn).sin().sum(), x)[0] for function in (made, attention))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert {each.kind for each in report.graphs if each.taken} == {"forward", "backward"}
    assert not any("mul" in each.operation for each in report.left), report
