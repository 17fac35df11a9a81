# pyright: standard
"""Integers under `torch.compile`, bit for bit as eager PyTorch's: taken apart, shifted, divided, and in 8 bits, which
wrap around; and layers whose weights are packed, which become one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of
from torch import nn

Function = Callable[..., Any]

I32 = torch.tensor([[0, 1, -1, 7, -8, 100], [127, -128, 128, 255, -300, 2**31 - 1], [-(2**31), 3, 5, -5, 64, 65]])
DTYPES = {
    "i32": I32.to(torch.int32),
    "i8": torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).reshape(16, 16),
    "ui8": torch.arange(256, dtype=torch.int16).to(torch.uint8).reshape(16, 16),
}
BY = torch.tensor([0, 1, 3, 7, 8, 31, 32, 40, -1], dtype=torch.int32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


OPERATIONS: dict[str, Function] = {
    "and": lambda a, b: (a & 15, a & b, a & -4 if a.dtype != torch.uint8 else a & 200),
    "or": lambda a, b: (a | 15, a | b),
    "xor": lambda a, b: (a ^ 15, a ^ b),
    "not": lambda a, b: (~a, ~b & a),
    "shifts by numbers": lambda a, b: (a >> 4, a << 3, a >> 7, (a << 5) >> 5),
    "sums": lambda a, b: (a + b, a - b, a + 100, a - 100),
    "products": lambda a, b: (a * b, a * 3),
    "negatives": lambda a, b: (-a, (-b).abs()),
    "quotients": lambda a, b: (a // 3, a // 16, (a + b) // 7),
    "remainders": lambda a, b: (a % 3, a % 16, (a - b) % 7),
    "chosen": lambda a, b: (torch.where(a > b, a, b) - 100, torch.maximum(a, b) + b, a.clamp(3, 100) + b),
    "converted": lambda a, b: ((a + b).to(torch.int8) + 1, (a - b).to(torch.uint8) + 1, (a * b).to(torch.int32) - 1),
    "joined": lambda a, b: (torch.cat([a & 15, a >> 4]) * 3, torch.stack([a & 15, a >> 4], -1) * 3),
    "as fractions": lambda a, b: ((a - b).float() * 0.5, (a & 15).half() - 8),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_integers_are_as_pytorchs(name: str, dtype: str) -> None:
    one = DTYPES[dtype]
    other = one.flip(0).roll(1, 1).contiguous()
    # (One operation alone stays with PyTorch.)
    nothing_is_left(report_of(lambda a, b: OPERATIONS[name]((a + 1) - 1, (b + 1) - 1), one, other))


@pytest.mark.parametrize("dtype", DTYPES)
def test_shifts_by_what_tensors_hold(dtype: str) -> None:
    """Beyond the bits, and by less than none."""
    numbers = DTYPES[dtype].flatten()[:, None]
    by = BY.to(numbers.dtype) if dtype != "ui8" else BY[:-1].to(torch.uint8)
    nothing_is_left(report_of(lambda a, b: ((a >> b) + 1, (a << b) + 1), numbers, by))


def test_integers_of_64_bits_that_need_32() -> None:
    """Positions, whose bits are taken apart; what may need more stays."""

    def bits(x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[-1])
        return x * ((at >> 1) & 1) + (at // 4) % 3

    nothing_is_left(report_of(bits, torch.randn(5, 40)))
    large = report_of(lambda x, at: x * ((at << 8) & 3), torch.randn(4), torch.arange(4) + 2**40)
    assert any("64 bits" in why or "torch.int64" in why for why in reasons(large)), reasons(large)


def reasons(report: Any) -> list[str]:
    return [left.reason for left in report.left]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda a, b: (a // b, a * 2.0), "by what is no number but 0"),
        (lambda a, b: (torch.div(a, 3, rounding_mode="trunc"), a * 2.0), "rounded as 'trunc'"),
        (lambda a, b: (a - 500 + a, a * 2.0), "500 beside torch.int8"),
    ],
)
def test_what_stays(function: Function, why: str) -> None:
    numbers = DTYPES["i8"].clone()
    numbers[numbers == 0] = 1
    report = report_of(function, numbers, numbers)
    assert any(why in each for each in reasons(report)), reasons(report)


# -- packed weights ----------------------------------------------------------------------------------------------------

WIDE, GROUP = 128, 32


class Interleaved(nn.Module):
    """Two neighbours to a byte."""

    def __init__(self, out: int):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, WIDE // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(out, WIDE // GROUP).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = (self.packed & 0xF).to(torch.int32) - 8, (self.packed >> 4).to(torch.int32) - 8
        weights = torch.stack([low, high], -1).reshape(self.packed.shape[0], -1).to(x.dtype)
        return F.linear(x, weights * self.scales.repeat_interleave(GROUP, 1))


class Halves(nn.Module):
    """Both halves of a row in the same bytes, in arithmetic of 8 bits."""

    def __init__(self, out: int):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, WIDE // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(out, WIDE // GROUP, 1).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.cat([self.packed & 0xF, self.packed >> 4], 1).to(torch.int8) - 8
        grouped = weights.view(weights.shape[0], -1, GROUP).to(x.dtype) * self.scales
        return F.linear(x, grouped.view(weights.shape[0], -1))


class Words(nn.Module):
    """Eight along the summed axis to a word of 32 bits; which scale, an index says."""

    def __init__(self, out: int):
        super().__init__()
        self.register_buffer("packed", torch.randint(-(2**31), 2**31 - 1, (WIDE // 8, out), dtype=torch.int32))
        self.register_buffer("scales", torch.rand(WIDE // GROUP, out).half())
        self.register_buffer("bits", torch.arange(0, 32, 4, dtype=torch.int32))
        self.register_buffer("group", torch.arange(WIDE) // GROUP)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.bitwise_right_shift(self.packed[:, None].expand(-1, 8, -1), self.bits[:, None]) & 15
        weights = (numbers.reshape(-1, numbers.shape[2]) - 8).to(x.dtype)
        return x @ (weights * self.scales[self.group])


class Bytes(nn.Module):
    """Bytes with a zero point, subtracted in 8 bits."""

    def __init__(self, out: int):
        super().__init__()
        self.register_buffer("weights", torch.randint(-100, 100, (out, WIDE), dtype=torch.int8))
        self.register_buffer("zeros", torch.randint(-8, 8, (out, 1), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(out, 1).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, (self.weights - self.zeros).to(x.dtype) * self.scales)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("layer", [Interleaved, Halves, Words, Bytes])
def test_layers_of_packed_weights_are_one_program(layer: type[nn.Module], machine: str) -> None:
    torch.manual_seed(3)
    report = report_of(layer(40), torch.randn(10, WIDE).half() * 0.1, machine=machine)
    nothing_is_left(report)
    assert len(report.taken) == 1
