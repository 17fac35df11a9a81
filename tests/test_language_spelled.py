"""What users write from habit: names of numpy and PyTorch, and what the message says to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError

A = np.random.default_rng(5).standard_normal((5, 7)).astype(np.float32)
AT = np.array([3, 0, 4, 1, 3], np.int32)
SUMS = np.stack([A[i == AT].sum(0) for i in range(256)])
ONE_HOT = np.eye(7)[AT]

WRITTEN: list[tuple[str, str, Any]] = [
    ("clip", "q x, q -> q x", np.clip(A, -0.5, 0.5)),
    ("sign", "q x, q -> q x", np.sign(A)),
    ("norm", "q x, q -> q", np.linalg.norm(A, axis=1)),
    ("std", "q x, q -> q", A.std(1)),
    ("any", "q x, q -> q", (A > 0).any(1)),
    ("all", "q x, q -> q", (A > 0).all(1)),
    ("amax", "q x, q -> q", A.max(1)),
    ("amin", "q x, q -> q", A.min(1)),
    ("arange", "q x, q -> q x", np.broadcast_to(np.arange(7), A.shape)),
    ("take", "q x, q -> q x", A[AT]),
    ("segment_sum", "n d, n -> s d", SUMS),
    ("one_hot", "q v, q -> q v", ONE_HOT),
    ("tril", "q x, q -> q x", np.tril(A)),
    ("concatenate", "q x, q -> q x r", np.stack([A, A], -1)),
]


def said_of(name: str) -> str:
    with pytest.raises(AttributeError) as refused:
        getattr(tl, name)
    assert not hasattr(tl, name)
    return re.sub(r".*: write ", "", str(refused.value))


@pytest.mark.parametrize(("name", "signature", "expected"), WRITTEN, ids=[name for name, *_ in WRITTEN])
def test_what_is_said_to_be_written_means_that(name: str, signature: str, expected: Any) -> None:
    said = said_of(name)

    def function(a: Any, i: Any) -> Any:
        return eval(said, {"tl": tl, "a": a, "b": a, "i": i, "low": -0.5, "high": 0.5})

    kernel = treadle.kernel(signature, machine="h100", result="f32")(function)
    np.testing.assert_allclose(kernel(A, AT, backend="emulator"), expected, atol=1e-5)


def test_a_product_is_said_to_be_a_contraction() -> None:
    said = said_of("matmul")

    def function(a: Any, b: Any) -> Any:
        return eval(said, {"tl": tl, "a": a, "b": b})

    kernel = treadle.kernel("m k, n k -> m n", machine="h100")(function)
    np.testing.assert_allclose(kernel(A, A, backend="emulator"), A @ A.T, atol=1e-5)


def test_an_order_is_said_to_be_topk() -> None:
    assert said_of("argsort").startswith("tl.topk(")


def captures(a: Any) -> Any:
    def step(s: Any, x: Any) -> Any:
        return s * a + x

    return tl.recurrence(step, over="q", states="x", inputs=[a])[0] + a


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda a: a * (a > 0), "'*' of a comparison, which is no array: make one by treadle.language.where"),
    (lambda a: 1 - (a > 0), "arithmetic of a comparison, which is no array: make one by treadle.language.where"),
    (lambda a: a % 2, "subtract what is whole in it, as a - b * treadle.language.floor(a / b) does"),
    (captures, "let a recurrence give its step what that uses, in `inputs`"),
]


@pytest.mark.parametrize(("function", "said"), REFUSED)
def test_messages(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TreadleError, match=re.escape(said)):
        treadle.kernel("q x -> q x", machine="h100")(function)(A)
