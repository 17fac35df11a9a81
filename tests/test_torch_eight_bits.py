# pyright: standard
"""Products of matrices in 8 bits that `torch.compile` finds, beside what makes their operands and what uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of

from treadle.torch.registry import aten

Function = Callable[..., Any]

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(21)
    yield
    torch._dynamo.reset()


def floats(*shape: int, format: torch.dtype = E4M3) -> torch.Tensor:
    return torch.randn(*shape).to(format)


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def by_columns(*shape: int, format: torch.dtype = E4M3) -> torch.Tensor:
    """As PyTorch wants the right operand of a scaled product."""
    return floats(*reversed(shape), format=format).t()


def scales(*shape: int) -> torch.Tensor:
    """Of a few bits, so that the order of factors, which is PyTorch's matter, rounds nothing."""
    return torch.randint(1, 8, shape) / 4


def number(value: float) -> torch.Tensor:
    return torch.tensor(value)


OPERANDS = {
    "numbers": (floats(16, 32), by_columns(32, 48), number(0.5), number(3.0)),
    "numbers of one row": (floats(16, 32), by_columns(32, 48), scales(1, 1), scales(1)),
    "rows and columns": (floats(16, 32), by_columns(32, 48), scales(16, 1), scales(1, 48)),
    "two formats": (floats(16, 32, format=E5M2), by_columns(32, 48), number(0.5), number(3.0)),
}


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPERANDS)
def test_scaled_products(name: str, out: torch.dtype) -> None:
    if name == "rows and columns" and out != torch.bfloat16:
        pytest.skip("PyTorch takes these in bfloat16 alone")
    nothing_is_left(report_of(lambda *operands: aten._scaled_mm(*operands, out_dtype=out), *OPERANDS[name]))


def test_a_bias_is_added() -> None:
    left, right, *scales = OPERANDS["numbers"]
    bias = torch.randn(48).bfloat16()

    def function(*operands: Any) -> Any:
        return aten._scaled_mm(*operands[:4], bias=operands[4], out_dtype=torch.bfloat16)

    nothing_is_left(report_of(function, left, right, *scales, bias))


def linear(x: Any, w: Any, scale: Any) -> Any:
    """A layer whose input is quantised by rows, as it comes."""
    by = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    return aten._scaled_mm((x.float() / by).clamp(-448, 448).to(E4M3), w, by, scale, out_dtype=torch.bfloat16)


def between(x: Any, w: Any, scale: Any) -> Any:
    return F.relu(linear(F.relu(x), w, scale)).sign()


def of_integers(x: Any, w: Any, scale: Any) -> Any:
    by = x.abs().amax(-1, keepdim=True).float() / 127
    eight = (x.float() / by).round().clamp(-128, 127).to(torch.int8)
    return (aten._int_mm(eight, w).float() * by * scale).to(torch.bfloat16)


@pytest.mark.parametrize("function", [linear, between])
def test_quantised_layers_of_floats(function: Function) -> None:
    nothing_is_left(report_of(function, torch.randn(16, 32).bfloat16(), by_columns(32, 48), scales(1, 48)))


def test_quantised_layers_of_integers() -> None:
    nothing_is_left(report_of(of_integers, torch.randn(32, 32).bfloat16(), integers(48, 32).t(), scales(1, 48)))


def test_products_of_integers() -> None:
    nothing_is_left(
        report_of(lambda a, b: (aten._int_mm(a, b), aten._int_mm(a, b) * 2), integers(32, 16), integers(16, 24))
    )


@pytest.mark.parametrize("format", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_of_integers(format: torch.dtype) -> None:
    operands = (torch.randint(-8, 9, (9, 64)) / 8).to(format), integers(32, 64), scales(32).to(format)
    nothing_is_left(report_of(aten._weight_int8pack_mm, *operands))


def test_scales_of_blocks_stay_with_pytorch() -> None:
    """PyTorch has such products on GPUs alone, so that only what a program says of one is seen here."""
    from dataclasses import replace

    from treadle.torch.eight_bits import scaled_mm
    from treadle.torch.tensors import Body, Unsupported

    body = Body()

    def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
        return replace(body.tensor(body.new_dims(shape)), dtype=dtype)

    left, right, one = tensor(256, 256, dtype=E4M3), tensor(256, 384, dtype=E4M3), tensor(1, 384)
    for scale in (tensor(256, 2), tensor(2), tensor(256, 384)):
        with pytest.raises(Unsupported, match="scales of blocks"):
            scaled_mm(body, left, right, scale, one)
    with pytest.raises(Unsupported, match="scale of the result"):
        scaled_mm(body, left, right, one, one, None, one)
    with pytest.raises(Unsupported, match=r"a scaled product of torch\.float16"):
        scaled_mm(body, tensor(256, 256, dtype=torch.float16), right, one, one)
