"""Shares of which some are left out: what divides them leaves the sum if random bits tell which, and stays if data do
(`diagram-hoist-factors`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import run_function


def shares(S: Any) -> Any:
    return tl.softmax(S, over="x")


def positive(S: Any, T: Any, V: Any) -> Any:
    """Shares of scores above zero alone."""
    return tl.contract(tl.where(S > 0, shares(S), 0.0), V, over="x")


def in_range(S: Any, T: Any, V: Any) -> Any:
    """A factor that is no number where it is left out."""
    return tl.contract(tl.where(T > 0, shares(S) * tl.sin(tl.log(T)), 0.0), V, over="x")


def drawn(S: Any, T: Any, V: Any) -> Any:
    return tl.contract(tl.where(tl.random_bits(3, S) < 30000, shares(S), 0.0), V, over="x")


def left_out(S: Any, T: Any, V: Any) -> Any:
    return tl.contract(tl.where(tl.uniform(3, S) < 0.3, 0.0, shares(S) * tl.sin(T)), V, over="x")


def masked(S: Any, T: Any, V: Any) -> Any:
    return tl.contract(tl.where(tl.random_bits(3, S) < 30000, shares(tl.keep(S, "x <= q")), 0.0), V, over="x")


def drawn_by_data(S: Any, T: Any, V: Any) -> Any:
    """A row may have nothing below its own number."""
    return tl.contract(tl.where(tl.uniform(3, S) < tl.max(T, over="x"), shares(S), 0.0), V, over="x")


def none_is_zero(S: Any) -> Any:
    """Shares that are zero in rows of nothing but -inf, as PyTorch makes them."""
    return tl.where(tl.max(S, over="x").equals(-np.inf), 0.0, shares(S))


def drawn_safely(S: Any, T: Any, V: Any) -> Any:
    P = none_is_zero(tl.keep(S * 0.125, "x <= q"))
    return tl.contract(tl.where(tl.random_bits(3, S) < 30000, P * 1.5, 0.0), V, over="x")


def safely_by_data(S: Any, T: Any, V: Any) -> Any:
    return tl.contract(tl.where(T > 0, none_is_zero(S), 0.0), V, over="x")


SIGNATURE = "q x, q x, x e -> q e"
ONE, TWO = (drawn, left_out, masked, drawn_safely), (positive, in_range, drawn_by_data, safely_by_data)
STREAMS = dict.fromkeys(ONE, 1) | dict.fromkeys(TWO, 2)


def traced(function: Any) -> str:
    kernel = treadle.kernel(SIGNATURE, static="e")(function)
    return str(kernel.trace(("f32", "f32", "f16"), {"q": 70, "x": 90, "e": 32}, fixed=("e",)))


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("function", STREAMS)
def test_one_stream_makes_what_is_drawn_of_shares(function: Any, machine: str) -> None:
    kernel = treadle.compile(traced(function), machine=machine)
    assert kernel.estimate.kernels == 1
    assert kernel.hierarchy.count("hierarchy.stream") == STREAMS[function]
    random = np.random.default_rng(2)
    S, T = (random.standard_normal((70, 90)).astype(np.float32) for _ in range(2))
    T[3], S[5, :] = -1.0, -2.0  # rows of which nothing, or everything, is left out
    V = random.standard_normal((90, 32)).astype(np.float16)
    assert all(each.ok for each in kernel.verify(S, T, V, backend="emulator"))


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_rows_of_nothing_are_zero(machine: str) -> None:
    """But where a value that they would weigh is infinite: zero times that is no number, as the formula says."""
    kernel = treadle.compile(traced(drawn_safely), machine=machine)
    random = np.random.default_rng(6)
    S = random.standard_normal((70, 90)).astype(np.float32)
    S[5], S[6, 4], S[50, :40], S[60] = -np.inf, np.inf, -np.inf, np.linspace(-900, 900, 90)
    V = random.standard_normal((90, 32)).astype(np.float16)
    found = check_safely(kernel, S, V)
    assert (found[5] == 0).all()
    assert np.isfinite(found[50]).all()
    V[0, 3] = np.inf  # which all rows see
    assert np.isnan(check_safely(kernel, S, V)[5, 3])


def check_safely(kernel: treadle.Kernel, S: np.ndarray, V: np.ndarray) -> np.ndarray:
    """What the emulator says, which is what the plain formula does, no numbers included."""
    found = np.asarray(kernel.run(S, S, V, backend="emulator"))
    (wanted,) = run_function(parse_module(traced(drawn_safely)), [S, S, V]).results
    np.testing.assert_allclose(found, wanted, atol=1e-2)
    return found


def test_the_reference_says_the_same() -> None:
    random = np.random.default_rng(3)
    S, T, V = (random.standard_normal(shape) for shape in ((9, 11), (9, 11), (11, 32)))
    (found,) = run_function(parse_module(traced(in_range)), [S, T, V]).results
    P = np.exp(S) / np.exp(S).sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        wanted = np.where(T > 0, P * np.sin(np.log(T)), 0.0) @ V.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(found, wanted, atol=2e-2)


def test_what_may_be_zero_stays() -> None:
    """Of a row that sums to zero nothing may be chosen: that is zero, not zero by zero."""
    kernel = treadle.kernel("m n -> m")(lambda A: tl.sum(tl.where(A > 0, A / A.sum("n"), 0.0), over="n"))
    array = -np.abs(np.random.default_rng(4).standard_normal((5, 40))).astype(np.float32)
    array[2] = 0.0
    compiled = kernel.compiled(array)
    assert all(each.ok for each in compiled.verify(array, backend="emulator"))
    assert (np.asarray(compiled.run(array, backend="emulator")) == 0).all()


def test_a_choice_by_the_shares_themselves() -> None:
    """What a test says of shares is late, whatever leaves the sum."""
    random = np.random.default_rng(5)
    S, V = random.standard_normal((33, 70)).astype(np.float32), random.standard_normal((70, 16)).astype(np.float16)

    def large(S: Any, V: Any) -> Any:
        P = shares(S)
        return tl.contract(tl.where(P > 0.02, P, 0.0), V, over="x")

    kernel = treadle.kernel("q x, x e -> q e")(large).compiled(S, V)
    assert all(each.ok for each in kernel.verify(S, V, backend="emulator"))
