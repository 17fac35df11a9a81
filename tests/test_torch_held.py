# pyright: standard
"""Fractions that `torch.compile` finds converted to integers or to floats of 8 bits: as kernels where the format surely
holds them, as behind `clamp`, and PyTorch's where it may not; and elements of 8 bits that are only moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of

from treadle.torch.held import check_held, limit_of_fractions
from treadle.torch.registry import aten
from treadle.torch.tensors import Tensor, Unsupported

Function = Callable[..., Any]

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(20)
    yield
    torch._dynamo.reset()


def per_row(x: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def normed(x: Any) -> Any:
    return per_row(F.rms_norm(x, (32,)))


def in_fours(x: Any) -> Any:
    groups = x.view(9, 4, 8)
    least, largest = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = (largest - least) / 15
    zero = (-least / scale).round()
    four = (groups / scale + zero).round().clamp(0, 15).to(torch.uint8)
    packed = four[..., ::2] | (four[..., 1::2] << 4)
    return packed, (torch.stack([packed & 15, packed >> 4], -1).flatten(-2).float() - zero) * scale


def of_floats(x: Any) -> Any:
    scale = 448 / x.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    eight = (x * scale).clamp(-448, 448).to(E4M3)
    return eight.float(), eight.float() / scale, (x * 1e6).clamp(-57344, 57344).to(E5M2)


def wholes(x: Any) -> Any:
    """Toward zero, from all formats, with ends that are no whole numbers."""
    return (
        (x * 90).clamp(-128, 127).to(torch.int8) + 1,
        (x * 90).clamp(-120.7, 120.7).to(torch.int8) * 2,
        (x * 300).clamp(0, 255).to(torch.uint8) // 3,
        (x * 90).clamp(-300, 300).int() * 2,
        (x * 9).clamp(-6e4, 6e4).floor().long() + 1,
        F.hardtanh(x * 90, -100, 100).neg().to(torch.int32) - 1,
        torch.where(x > 0, (x * 90).clamp(-100, 100), 7.5).to(torch.int8) + 0,
    )


@pytest.mark.parametrize("function", [per_row, normed, in_fours, of_floats, wholes])
def test_what_a_format_holds_is_converted(function: Function) -> None:
    nothing_is_left(report_of(function, torch.randn(9, 32) * 2))


@pytest.mark.parametrize("format", [torch.float16, torch.bfloat16])
def test_what_16_bits_round_is_rounded_before(format: torch.dtype) -> None:
    """Elsewhere numbers stay in f32; here the last digit makes another whole number."""
    nothing_is_left(report_of(wholes, (torch.randn(9, 32) * 2).to(format)))


def test_floats_of_eight_bits_hold_all() -> None:
    """The largest that there is in place of what is larger, and NaN of NaN, as this version of PyTorch has it."""
    special = torch.tensor([[float("inf"), -float("inf"), float("nan"), 448, 464, 480, 1e9, -1e-9]])
    x = torch.cat([torch.randn(9, 8) * 300, special])
    nothing_is_left(report_of(lambda a: ((a * 1).to(E4M3), (a * 1).to(E4M3).float() + 1), x))


@pytest.mark.parametrize(
    ("dtype", "ends"), [(torch.int8, "-128, 127"), (torch.uint8, "0, 255"), (E5M2, "-57344, 57344")]
)
def test_what_may_be_larger_stays(dtype: torch.dtype, ends: str) -> None:
    report = report_of(lambda a: (a * 2).clamp(min=-1).to(dtype), torch.randn(9, 32))
    (left,) = report.left
    assert f"behind .clamp({ends}) it does" in left.reason
    assert report.taken


def test_a_limit_is_none_of_what_is_not_known() -> None:
    """Of no number there is no limit to tell, and what is not known beside one stays unknown."""
    unknown, known = Tensor((), None, torch.float32, float("inf")), Tensor((), None, torch.float32, 127.0)
    for operands in ((float("nan"), unknown), (unknown, float("nan"))):
        assert limit_of_fractions(aten.where.self, torch.float32, (None, *operands)) == float("inf")
    assert limit_of_fractions(aten.where.self, torch.float32, (None, known, float("nan"))) == 127
    assert limit_of_fractions(aten.clamp.default, torch.float32, (unknown, None, 3)) == float("inf")
    assert limit_of_fractions(aten.clamp.default, torch.float32, (unknown, 3)) == float("inf")
    assert limit_of_fractions(aten.clamp.default, torch.float16, (unknown, -448.3, 1)) == 448.25
    assert limit_of_fractions(aten.round.default, torch.float32, (Tensor((), None, torch.float32, 127.5),)) == 128
    assert limit_of_fractions(aten.exp.default, torch.float32, (known,)) == float("inf")
    with pytest.raises(Unsupported, match="where nothing says that it holds all"):
        check_held(Tensor((), None, torch.float32, 128.5), torch.int8)


def test_floats_of_eight_bits_are_read() -> None:
    w, scale = torch.randn(16, 32).to(E4M3), torch.rand(16, 1)

    def function(x: Any, w: Any, scale: Any) -> Any:
        return x @ (w.float() * scale).t(), w.to(torch.bfloat16) * 2, (w.float() - w.float().amax(1, True)).softmax(1)

    nothing_is_left(report_of(function, torch.randn(9, 32), w, scale))


def test_elements_of_eight_bits_are_moved() -> None:
    w, u = torch.randint(-128, 128, (16, 32), dtype=torch.int8), torch.randint(0, 256, (16, 32), dtype=torch.uint8)
    b, i = torch.randn(16, 32).to(E4M3), torch.tensor([3, 1, 7, 15, 0])

    def function(w: Any, u: Any, b: Any, i: Any) -> Any:
        return (
            w[i].float() * 2,
            w[i] + 1,
            F.embedding(i, u, padding_idx=0) // 2,
            w.index_select(1, i).to(torch.int32) - 1,
            torch.gather(u, 0, i[:, None].expand(-1, 32)).float() / 255,
            torch.cat([u[:3], u[3:6]]) + u[0, 0],
            b[i].float() + 1,
            torch.cat([b, b]).float() * 2,
        )

    nothing_is_left(report_of(function, w, u, b, i))


def test_a_cache_in_pages_of_eight_bits_is_one_kernel() -> None:
    def function(q: Any, keys: Any, values: Any, table: Any, scale: Any) -> Any:
        k, v = (each.index_select(0, table).to(q.dtype).reshape(1, -1, 32) * scale for each in (keys, values))
        return F.scaled_dot_product_attention(q, k, v)

    keys, values = torch.randn(8, 4, 32).to(E4M3), torch.randn(8, 4, 32).to(E5M2)
    given = torch.randn(1, 3, 32).half(), keys, values, torch.tensor([5, 2, 7]), torch.tensor(0.5).half()
    report = report_of(function, *given)
    nothing_is_left(report)
    assert [each.kernel.estimate.kernels for each in report.taken] == [1]
