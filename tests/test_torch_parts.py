# pyright: standard
"""Slices and single places of what a program computes: they are read where they lie, or computed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of

from treadle.torch import Report, explain

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def compiled_for(function: Function, machine: str = "a100", **options: Any) -> Function:
    return torch.compile(function, backend="treadle", options={"machine": machine, "backend": "emulator"}, **options)


def kernels_of(report: Report) -> list[int]:
    steps = [each.kernel.derivation for each in report.taken]
    return [sum(step.rewrite == "fusion" and " into @" in step.subject for step in each) for each in steps]


def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    gate, value = (x @ w).chunk(2, -1)
    return F.silu(gate) * value


def rotated(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    heads = (x @ w).view(*x.shape[:-1], 4, 32).transpose(-2, -3)
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


def modulated(x: torch.Tensor, c: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    shift, scale, gate = (F.silu(c) @ w).chunk(3, -1)
    return x + gate[:, None] * (F.layer_norm(x, x.shape[-1:]) * (1 + scale[:, None]) + shift[:, None])


def of_tokens(which: Any) -> Function:
    return lambda x, w: (F.layer_norm(x, x.shape[-1:])[:, which] @ w).relu()


def r(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * 0.5).to(dtype)


CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "gated": (gated, (r(37, 64), r(64, 48))),
    "gated, in bf16": (gated, (r(2, 19, 64, dtype=torch.bfloat16), r(64, 48, dtype=torch.bfloat16))),
    "gated, in f32": (gated, (r(37, 64, dtype=torch.float32), r(64, 48, dtype=torch.float32))),
    "rotated halves": (rotated, (r(2, 19, 64), r(64, 128), r(19, 32), r(19, 32))),
    "modulated": (modulated, (r(3, 17, 64), r(3, 64), r(64, 192))),
    "the first token": (of_tokens(0), (r(3, 17, 64), r(64, 24))),
    "the last token": (of_tokens(-1), (r(3, 17, 64), r(64, 24))),
    "the last token, kept": (of_tokens(slice(-1, None)), (r(3, 17, 64), r(64, 24))),
    "all but the first token": (of_tokens(slice(1, None)), (r(3, 17, 64), r(64, 24))),
    "every third token": (of_tokens(slice(1, 15, 3)), (r(3, 17, 64), r(64, 24))),
    "halves of heads": (
        lambda x, w: torch.softmax((x @ w).view(-1, 2, 3, 8)[:, 1], -1) + (x @ w).view(-1, 2, 3, 8)[:, 0, 2:],
        (r(19, 64), r(64, 48)),
    ),
    "neighbours": (lambda x: x.exp()[1:] - x.exp()[:-1], (r(40, 24, dtype=torch.float32),)),
    "even and odd": (lambda x: x.tanh()[..., ::2] * x.tanh()[..., 1::2], (r(19, 24),)),
    "of integers": (lambda n: (n * 3)[:, 4:9] + (n + 1)[:, :5], (torch.arange(60, dtype=torch.int32).view(5, 12),)),
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("case", CASES)
def test_parts_are_as_exact_as_pytorchs(case: str, machine: str) -> None:
    function, given = CASES[case]
    compiled = compiled_for(function, machine)
    exact = function(*(each.double() if each.is_floating_point() else each for each in given)).double()
    wanted, found = (each(*given).double() for each in (function, compiled))
    error = (wanted - exact).abs().max()
    assert (found - exact).abs().max() <= 2 * error + 1e-6 * exact.abs().max()


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("neighbours", "gated, in bf16")])
def test_nothing_is_left(case: str) -> None:
    function, given = CASES[case]
    nothing_is_left(report_of(function, *given))


def test_a_gated_layer_is_one_kernel() -> None:
    assert kernels_of(report_of(gated, *CASES["gated"][1])) == [1]


def test_rotated_halves_are_one_program() -> None:
    """Of two kernels: the second reads the product twice, and the first saves nothing else."""
    report = report_of(rotated, *CASES["rotated halves"][1])
    assert len(report.taken) == 1
    assert all(len(each.kernel.results) == 1 for each in report.taken)


def test_positions_stay_what_conditions_can_name() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at = torch.arange(32)
        mask = (at[None, :] <= at[:, None])[:19, :19]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v = (r(2, 4, 19, 64) for _ in range(3))
    compiled = compiled_for(attend)
    torch.testing.assert_close(compiled(q, k, v), attend(q, k, v), atol=2e-3, rtol=2e-3)


def test_lengths_are_symbols() -> None:
    """Of the other dimensions."""
    compiled = compiled_for(gated, dynamic=True)
    for rows in (7, 33, 5):
        given = r(rows, 64), r(64, 48)
        torch.testing.assert_close(compiled(*given), gated(*given), atol=3e-3, rtol=3e-3)


def test_a_rotation_is_in_the_kernel_of_the_projection() -> None:
    """As `transformers` writes it (`apply_rotary_pos_emb`), by the model: 404 us for 467 in three kernels."""

    def rotated(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q = F.linear(x, w).view(*x.shape[:-1], -1, 128).transpose(1, 2)
        first, second = q[..., :64], q[..., 64:]
        return q * cos.unsqueeze(1) + torch.cat((-second, first), -1) * sin.unsqueeze(1)

    shapes = (1, 8192, 4096), (4096, 4096), (1, 8192, 128), (1, 8192, 128)
    given = tuple(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)
    report = explain(rotated, given, options={"machine": "h100", "cpu_work": 1e12, "backend": "interpreter"})
    assert kernels_of(report) == [1]
