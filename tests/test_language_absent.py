"""`treadle.language` of elements that `keep` leaves out, joined comparisons, and functions made of reductions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.runtime.verify import verify

torch = pytest.importorskip("torch")

A = np.random.default_rng(3).standard_normal((13, 37)).astype(np.float32)
q, x = np.indices(A.shape)
SEEN = torch.from_numpy(x <= q)
NONE_OF_FIRST = torch.from_numpy(x < q)


def masked(name: str, seen: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda a: getattr(torch.masked, name)(a, dim=1, mask=seen, **options)


CASES: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "mean": ("q", lambda a: tl.mean(tl.keep(a, "x <= q"), over="x"), masked("mean", SEEN)),
    "nothing": (
        "q",
        lambda a: tl.mean(tl.keep(a, "x < q") * 2, over="x"),
        lambda a: masked("mean", NONE_OF_FIRST)(a) * 2,
    ),
    "variance": ("q", lambda a: tl.var(tl.keep(a, "x <= q"), over="x"), masked("var", SEEN, unbiased=False)),
    "unbiased": ("q", lambda a: tl.var(a, over="x", correction=1), lambda a: a.var(1)),
    "shares": (
        "q",
        lambda a: tl.mean(tl.softmax(tl.keep(a, "x <= q"), over="x"), over="x"),
        lambda a: 1 / torch.arange(1, 14, dtype=torch.float64),
    ),
    "joined": (
        "q x",
        lambda a: tl.where((a > 0) & (a < 1) | ~(a > -1) ^ (a > 1.5), a, 9.0),
        lambda a: torch.where((a > 0) & (a < 1) | ~(a > -1) ^ (a > 1.5), a, 9.0),
    ),
    "product": ("q", lambda a: tl.prod(a + 0.5, over="x"), lambda a: (a + 0.5).prod(1)),
    "logsumexp": ("q", lambda a: tl.logsumexp(a * 50, over="x"), lambda a: (a * 50).logsumexp(1)),
    "log_softmax": ("q x", lambda a: tl.log_softmax(a * 50, over="x"), lambda a: (a * 50).log_softmax(1)),
    "argmax": ("q", lambda a: tl.argmax(a, over="x"), lambda a: a.argmax(1)),
    "argmin": ("q", lambda a: tl.argmin(a, over="x"), lambda a: a.argmin(1)),
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("case", CASES)
def test_as_pytorch(case: str, machine: str) -> None:
    axes, mine, theirs = CASES[case]
    traced = treadle.kernel(f"q x -> {axes}", machine=machine)(lambda a: mine(a))
    expected = theirs(torch.from_numpy(A).double()).numpy()
    for backend in ("interpreter", "emulator"):
        result = traced(A, backend=backend)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [5, 7])
def test_unmasked_means_divide_by_the_size(size: int) -> None:
    """As a constant: nothing is counted."""
    traced = treadle.kernel("m n -> m")(lambda a: tl.mean(a, over="n"))
    text = str(traced.trace(["f32"], {"m": 3, "n": size}, {"m": 3, "n": size}))
    assert text.count("diagram.reduce") == 1
    assert "divf" not in text


def test_masked_means_of_lengths_known_at_launch() -> None:
    traced = treadle.kernel("m n -> m")(lambda a: tl.mean(tl.keep(a, "n <= m"), over="n"))
    for length in (9, 11, 14):
        a = np.ones((6, length), np.float32)
        np.testing.assert_array_equal(traced(a, backend="emulator"), np.ones(6))


def test_masked_means_of_no_element_are_known_to_be_no_numbers() -> None:
    """Of two exact zeros the quotient is NaN; one that is a number there is wrong."""
    S = np.random.default_rng(0).standard_normal((37, 20)).astype(np.float32)
    program = treadle.kernel("q x -> q")(lambda S: tl.mean(tl.keep(S, "x + 3 < q"), over="x"))
    kernel, module = program.compiled(S), parse_module(str(program.trace(["f32"], {"q": 37, "x": 20})))
    (verdict,) = kernel.verify(S, backend="emulator")
    assert verdict.ok, verdict
    assert verdict.unchecked == 0
    right = kernel.run(S, backend="emulator")
    assert np.isnan(right).tolist() == [True] * 4 + [False] * 33
    for place, number in ((3, 0.0), (0, 1e-30), (4, np.nan)):
        wrong = right.copy()
        wrong[place] = number
        (verdict,) = verify(module, [S], [wrong], "here")
        assert verdict.wrong == 1, verdict


def test_positions_of_ties_and_nans() -> None:
    a = np.array([[1, 3, 3, 0, 0], [1, np.nan, 9, np.nan, 0], [-np.inf] * 5], np.float32)
    largest, smallest = treadle.kernel("m n -> m, m")(lambda a: (tl.argmax(a, "n"), tl.argmin(a, "n")))(a)
    assert largest.dtype == np.int32
    np.testing.assert_array_equal(largest, torch.from_numpy(a).argmax(1))
    np.testing.assert_array_equal(smallest, torch.from_numpy(a).argmin(1))


def test_logarithms_of_infinite_sums() -> None:
    a = np.array([[-np.inf, -np.inf], [np.inf, 0], [np.nan, 1]], np.float32)
    result = treadle.kernel("m n -> m")(lambda a: tl.logsumexp(a, "n"))(a)
    np.testing.assert_array_equal(result, torch.from_numpy(a).logsumexp(1))


def test_a_mean_under_torch_compile_divides_by_the_size() -> None:
    """There, what a mask leaves out is a number as any other: a share of 0."""

    def mean(scores: Any) -> Any:
        return torch.ops.treadle.masked_softmax(scores, SEEN).mean(-1)

    result = torch.compile(mean, backend="treadle")(torch.from_numpy(A))
    np.testing.assert_allclose(result, np.full(13, 1 / 37), rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda a: tl.sum((a > 0) & (a < 1), over="x"), "'sum' of a comparison, which is no array: make one by"),
        (lambda a: tl.prod(3.0, over="x"), "'prod' of float: it takes an array of the traced function"),
        (lambda a: tl.logsumexp(np.ones(3), over="x"), "'logsumexp' of ndarray: it takes an array"),
        (lambda a: tl.var(a, over="x", correction="1"), "var of correction='1': a number of elements"),
        (lambda a: tl.argmax(a, over="r x"), "argmax over 'r x': a position is along one axis, as in over='x'"),
        (lambda a: tl.where(a > (0 & a) < 1, a, a), "put comparisons that it joins in parentheses"),
        (lambda a: tl.keep(a, "m[r, x] == 1", m=a), "'m' has elements f32: write m.to('i32')"),
    ],
)
def test_what_is_no_array_is_said(wrong: Any, said: str) -> None:
    with pytest.raises(TreadleError, match=re.escape(said)):
        treadle.kernel("r x -> r")(wrong)(np.ones((3, 5), np.float32), backend="emulator")
