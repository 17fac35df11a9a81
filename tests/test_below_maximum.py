"""Powers of what is below its maximum: scales of any size, and what stands for elements past the end of an axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from roads import Road, compiled
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram import ContractOp
from treadle.passes.expressions.spans import Span, span_of

EXAMPLES = Path(__file__).parents[1] / "examples"
F8 = ml_dtypes.float8_e4m3fn


def contraction(format: str, width: str = "128") -> SSAValue:
    text = f"""
    !Q = tensor<4x{width}x{format}, #diagram.array<[q, d]>>
    !K = tensor<8x{width}x{format}, #diagram.array<[x, d]>>
    !S = tensor<4x8xf32, #diagram.array<[q, x]>>
    func.func @f(%Q: !Q, %K: !K) -> !S {{
      %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
      func.return %S : !S
    }}"""
    (found,) = (op for op in parse_module(text).walk() if isinstance(op, ContractOp))
    return found.result


@pytest.mark.parametrize("format", ["f8E4M3FN", "f8E5M2", "f16"])
@pytest.mark.parametrize("width", [1, 16, 128])
def test_a_span_holds_the_sums_of_the_extremes(format: str, width: int) -> None:
    dtype = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "f16": np.float16}[format]
    known: Any = ml_dtypes.finfo(dtype)
    tiny, largest = float(known.smallest_subnormal), float(known.max)
    span = span_of(contraction(format, str(width)))
    assert span is not None
    assert tiny**2 == 2.0**span.apart
    assert width * largest**2 <= 2.0 ** (span.most - 2)


def test_formats_with_many_exponents_have_no_span() -> None:
    assert span_of(contraction("bf16")) is None
    assert span_of(contraction("f32")) is None
    longest = span_of(contraction("f8E4M3FN", "?"))
    assert isinstance(longest, Span)
    assert longest.most >= 2 * 9 + 31


@pytest.fixture(scope="module")
def road() -> Road:
    return compiled((EXAMPLES / "attention_f8.mlir").read_text(), machine="h100")


def small(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float64)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-3, 1.0, 30.0, 1e5, 1e10, 1e20, 1e30, 3e38])
@pytest.mark.parametrize("size", [2.0**-9, 1.0, 64.0])
def test_scales_of_any_size(road: Road, scale: float, size: float) -> None:
    """Scores are exact, and two of them are equal or apart: weights are those of the formula, but for 8 bits."""
    q, k = small((1, 1, 20, 64), 0) * size, small((1, 1, 160, 64), 1)
    k[0, 0, 80:] = k[0, 0, :80]
    v = np.random.default_rng(2).uniform(-2, 2, (1, 1, 64, 160)).astype(F8)
    factor = float(max(np.float32(scale) * np.float32(0.125), np.float32(1e-30)))
    scores = factor * np.einsum("bhqd,bhxd->bhqx", q, k)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    values = v.astype(np.float64)
    (output,) = road.run((q.astype(F8), k.astype(F8), v, np.float32(scale), np.float32(1), np.float32(1)))
    bound = 0.08 * np.einsum("bhqx,bhex->bhqe", weights, abs(values)) + 0.01
    assert road.backend().variants[-1].endswith("_specialised")
    assert (abs(output.astype(np.float64) - np.einsum("bhqx,bhex->bhqe", weights, values)) <= bound).all()


@pytest.mark.parametrize("name", ["attention", "attention_f8"])
def test_a_last_piece_is_masked_once(name: str, road: Road) -> None:
    """-inf past the last key changes nothing in the maximum, the sum and the product that scores meet there."""
    made = road if name == "attention_f8" else compiled((EXAMPLES / f"{name}.mlir").read_text(), machine="h100")
    masks = [op for op in made.kernels[0].walk() if isinstance(op, cuda.MaskOp)]
    assert [op.other.value.data for op in masks] == [-np.inf]


def test_what_meets_loaded_numbers_is_masked_where_it_is_reduced() -> None:
    """A bias past the last key may be anything, as far as one knows: -inf before it is added need not stay."""
    made = compiled((EXAMPLES / "attention_bias.mlir").read_text(), machine="h100")
    others = [op.other.value.data for op in made.kernels[0].walk() if isinstance(op, cuda.MaskOp)]
    assert -np.inf in others
    assert 0 in others


def test_a_sum_begins_with_a_multiply_add() -> None:
    text = compiled((EXAMPLES / "attention.mlir").read_text(), machine="h100").text
    assert " ? fmaf(l" in text
