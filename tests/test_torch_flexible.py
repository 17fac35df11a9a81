# pyright: standard
"""`flex_attention` under `torch.compile(backend="treadle")`: one kernel, whose numbers are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

torch.manual_seed(3)

LENGTH, HEADS = 100, 4
SLOPES = torch.randn(HEADS)
BIAS = torch.randn(HEADS, LENGTH, LENGTH)
TURNED = torch.randn(LENGTH, HEADS)
LONGER = torch.randn(LENGTH + 7)
FAR = torch.randn(2 * LENGTH)
DOCUMENTS = torch.arange(LENGTH, dtype=torch.int32) // 37
TABLE = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=torch.bool)
NUMBERS = torch.randint(0, 2, (2, 2, 4), dtype=torch.int32)

UNIT = 2e-5
"""Exponents reach 200 with slopes, and of that f32 has 1.2e-5."""

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def causal(b: Any, h: Any, q: Any, x: Any) -> Any:
    return q >= x


def window(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (q >= x) & (q - x <= 30)


def strided(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (q >= x) & (((q - x) % 12 == 0) | (q - x < 10))


def of_neighbours(b: Any, h: Any, q: Any, x: Any) -> Any:
    return q // 16 - torch.div(x, 8, rounding_mode="floor") <= h


def near(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (q - x).abs() < 12


def far(b: Any, h: Any, q: Any, x: Any) -> Any:
    return ((q - x).abs() >= 12) | ((x - q).abs() == 3) | (abs(x - q + 1) > 90)


def near_in_an_image(b: Any, h: Any, q: Any, x: Any) -> Any:
    return ((q // 10 - x // 10).abs() <= 2) & ((q % 10 - x % 10).abs() <= 3)


def documents(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (DOCUMENTS[q] == DOCUMENTS[x]) & (q >= x)


def nothing_seen(b: Any, h: Any, q: Any, x: Any) -> Any:
    return x + 10 <= q


def of_heads(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (h < 2) & (q >= x)


def table(b: Any, h: Any, q: Any, x: Any) -> Any:
    return TABLE[q // 32, x // 32]


def causal_table(b: Any, h: Any, q: Any, x: Any) -> Any:
    return (NUMBERS[h // 2, q // 64, x // 32] == 1) & (x <= q)


def of_blocks(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return s + LONGER[q // 4]


def sloped(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return s - SLOPES[h] * (q - x)


def capped(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return 20 * torch.tanh(s / 20)


def biased(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return s + BIAS[h, q, x]


def turned(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return s + TURNED[x, h] * LONGER[q]


def turned_twice(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return s + FAR[x - q + LENGTH]


def masked(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return torch.where(x + 10 <= q, s, -inf)


def far_behind(b: Any, h: Any, q: Any, x: Any) -> Any:
    return q >= x + 30


def of_documents(s: Any, b: Any, h: Any, q: Any, x: Any) -> Any:
    return torch.where(DOCUMENTS[q] == DOCUMENTS[x], s, -inf)


CASES: dict[str, tuple[Function | None, Function | None]] = {
    "plain": (None, None),
    "causal": (None, causal),
    "window": (capped, window),
    "strided": (None, strided),
    "blocks": (None, of_neighbours),
    "distances": (None, near),
    "distances that are large": (None, far),
    "neighbours in an image": (None, near_in_an_image),
    "documents": (None, documents),
    "rows that see nothing": (None, nothing_seen),
    "some heads": (None, of_heads),
    "slopes": (sloped, causal),
    "bias": (biased, None),
    "tables of other axes": (turned, causal),
    "minus infinity": (masked, None),
    "minus infinity in all that the mask leaves": (of_documents, far_behind),
}


def given(kv_heads: int = HEADS, length: int = LENGTH, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    q = torch.randn(2, HEADS, LENGTH, 32, dtype=dtype)
    return [q, *(torch.randn(2, kv_heads, length, 32, dtype=dtype) for _ in range(2))]


def attention(
    score: Function | None, mask: Function | None, length: int = LENGTH, batch: int | None = None, **options: Any
) -> Function:
    blocks = None if mask is None else create_block_mask(mask, batch, None, LENGTH, length, device="cpu")

    def attend(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks, **options)

    return attend


def report_of(function: Function, inputs: list[torch.Tensor], backend: str = "interpreter", **options: Any) -> Report:
    report = Report()
    how = make_backend(Options.of({"backend": backend, **options}), report.graphs.append)
    compiled = torch.compile(function, backend=how)
    with torch.no_grad():
        got, want = compiled(*inputs), function(*inputs)
    unit = 2.0**-9 if inputs[0].dtype == torch.float16 else UNIT
    torch.testing.assert_close(got, want, atol=unit, rtol=unit)
    return report


def is_one_kernel(report: Report) -> bool:
    (taken,) = report.taken
    return not report.left and taken.kernel.estimate.kernels == 1


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
@pytest.mark.parametrize("case", CASES)
def test_one_kernel(case: str, backend: str) -> None:
    assert is_one_kernel(report_of(attention(*CASES[case]), given(dtype=torch.float16), backend))


@pytest.mark.parametrize("case", ["plain", "causal", "documents"])
def test_in_f32(case: str) -> None:
    assert not report_of(attention(*CASES[case]), given()).left


def test_a_mask_bounds_what_is_visited() -> None:
    """Keys outside of the window are not read: the stream has a first and a last piece."""
    (taken,) = report_of(attention(None, window), given(dtype=torch.float16)).taken
    assert "m0 = m_first; m0 < m_full" in taken.kernel.cuda


def test_heads_share_keys() -> None:
    assert is_one_kernel(report_of(attention(None, causal, enable_gqa=True), given(2, dtype=torch.float16)))


def test_keys_of_one_sequence_for_all() -> None:
    q, k, v = given(dtype=torch.float16)
    assert is_one_kernel(report_of(attention(None, causal, batch=2), [q, k[:1], v[:1]]))


def test_other_lengths_and_a_scale() -> None:
    function = attention(None, nothing_seen, 61, scale=0.3)
    assert is_one_kernel(report_of(function, given(length=61, dtype=torch.float16)))


@pytest.mark.parametrize("mask", [None, nothing_seen])
def test_the_logarithm_of_the_sum(mask: Function | None) -> None:
    report_of(attention(sloped, mask, return_aux=AuxRequest(lse=True)), given())


def test_tiles_that_a_table_leaves_out_are_skipped() -> None:
    report = report_of(attention(None, causal_table), given(dtype=torch.float16), "emulator")
    assert is_one_kernel(report)
    told = [str(step) for step in report.taken[0].kernel.derivation]
    assert any("asked once for each cell" in step for step in told)


@pytest.mark.parametrize(("score", "mask"), [(None, table), (turned_twice, None), (of_blocks, None)])
def test_what_is_looked_up_elsewhere_is_right(score: Function | None, mask: Function | None) -> None:
    """A table of truth values for blocks, one that is read at distances, and one of scores for blocks: PyTorch looks
    them up."""
    report = report_of(attention(score, mask), given(dtype=torch.float16))
    assert report.taken
