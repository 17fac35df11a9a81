"""Conditions on an integer argument without axes: one number for all rows, where each row has its own otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl

X = np.random.default_rng(0).standard_normal((20, 70)).astype(np.float16)
LENGTHS = np.arange(20, dtype=np.int32)

OF_ONE = ("d < n", "d < n and d <= q", "d >= q - n and d < 2 * n - 3", "d < n or d >= n + 7", "d < q + n and q >= n")
OF_BOTH = ("d < n + m[q]", "d >= n and d < m[q]")


def sums(condition: str) -> Any:
    def function(X: Any, n: Any) -> Any:
        kept = tl.keep(X, condition, n=n)
        return tl.sum(kept, over="d"), tl.max(tl.softmax(kept, over="d"), over="q")

    return function


def sums_of_both(condition: str) -> Any:
    def function(X: Any, n: Any, m: Any) -> Any:
        return tl.sum(tl.keep(X, condition, n=n, m=m), over="d")

    return function


def verify(function: treadle.language.NamedKernel, *given: Any) -> None:
    for verdict in function.compiled(*given).verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", OF_ONE)
def test_one_number(condition: str, machine: str) -> None:
    kernel = treadle.kernel("q d, -> q, d", machine=machine)(sums(condition))
    for number in (0, 5, -3, 100):
        verify(kernel, X, number)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", OF_BOTH)
def test_one_number_beside_those_of_rows(condition: str, machine: str) -> None:
    kernel = treadle.kernel("q d, , q -> q", machine=machine)(sums_of_both(condition))
    verify(kernel, X, 5, LENGTHS)
