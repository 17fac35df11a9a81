"""Results of one function in formats of their own (`treadle.kernel`, `result`)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.language.gradient import GradientKernel

LARGEST = 448.0
"""Of float8_e4m3fn."""


def quantised(A: tl.Array) -> tuple[tl.Array, tl.Array]:
    """Rows as numbers of 8 bits, and what each row is multiplied by."""
    scale = tl.maximum(tl.max(abs(A.to("f32")), over="d"), 1e-6) / LARGEST
    return A.to("f32") / scale, scale


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("shape", [(64, 256), (7, 33), (1, 1)])
def test_quantised_rows_and_their_scales_are_one_kernel(machine: str, shape: tuple[int, int]):
    kernel = treadle.kernel("t d -> t d, t", machine=machine, result="f8E4M3FN, f32")(quantised)
    A = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    rows, scales = kernel(A, backend="emulator")
    assert (rows.dtype, scales.dtype) == (ml_dtypes.float8_e4m3fn, np.float32)
    wanted = np.maximum(np.abs(A.astype(float)).max(1), 1e-6) / LARGEST
    np.testing.assert_allclose(scales, wanted, rtol=1e-6)
    np.testing.assert_allclose(
        rows.astype(float) * wanted[:, None], A.astype(float), rtol=2**-4, atol=wanted.max() / 512
    )
    assert kernel.compiled(A).estimate.kernels == 1


@pytest.mark.parametrize(
    ("result", "formats"),
    [
        (None, ["f16", "i32"]),
        ("f32", ["f32", "f32"]),
        ("f32, i32", ["f32", "i32"]),
        (["bf16", "i8"], ["bf16", "i8"]),
        (("f32", None), ["f32", "i32"]),
        ((None, "f32"), ["f16", "f32"]),
    ],
)
def test_a_format_for_each(result: Any, formats: list[str]):
    kernel = treadle.kernel("m n -> m, m", result=result)(lambda A: (A.max(over="n"), tl.argmax(A, over="n")))
    types = kernel.result_types(["f16"], {"m": 4, "n": 8})
    assert [str(each.element_type) for each in types] == formats


def test_gradients_take_results_in_their_formats():
    kernel = treadle.kernel("m n -> m n, m", result="f16, f32")(lambda A: (A * 2.0, A.sum(over="n")))
    A = np.arange(12, dtype=np.float16).reshape(3, 4)
    doubled, sums = kernel(A, backend="emulator")
    gradient = GradientKernel(kernel)
    ones = np.ones_like(doubled), np.arange(3, dtype=np.float32)
    found = gradient(A, doubled, sums, *ones, backend="emulator")
    np.testing.assert_array_equal(found, 2 + np.arange(3.0)[:, None] + np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            "f32, f16, f16",
            r"`result` has 3 formats \(f32, f16, f16\), the signature 2 results: give one format for each",
        ),
        (("f32",), r"`result` has 1 formats \(f32\), the signature 2 results"),
        ("f32, float16", "unknown number format 'float16'.* did you mean 'f16'"),
        ("f32,", "unknown number format ''"),
        (("f32", 16), "unknown number format '16'"),
        (32, "`result` is a format, as 'f32', or one for each result, not a int"),
    ],
)
def test_what_is_no_format_of_a_result_is_refused(result: Any, message: str):
    with pytest.raises(TreadleError, match=message):
        treadle.kernel("m n -> m, m", result=result)
