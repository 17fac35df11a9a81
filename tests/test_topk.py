"""The first few of an order (`tl.topk`), arrays side by side (`tl.stack`), results with axes that functions make."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.language.gradient import GradientKernel

INF = np.float32(np.inf)
NOWHERE = 2**31 - 1


def rows(length: int = 40) -> Any:
    """Rows of few different numbers, each in many places; of infinities; with NaNs, and of little else; with zeros of
    both signs; and of nothing but -inf and one number."""
    a = np.random.default_rng(0).integers(-4, 5, (9, length)).astype(np.float32)
    a[2], a[3] = -INF, INF
    a[4, 5] = a[5, 30] = a[6, 3] = a[6, 35] = np.nan
    a[5, 2:], a[5, 9], a[5, 11] = np.nan, INF, INF
    a[7] = np.where(a[7] > 0, np.float32(-0.0), np.float32(0))
    a[8] = -INF
    a[8, length - 1] = -1e30
    return a


def first(a: Any, k: int, largest: bool = True) -> tuple[Any, Any]:
    """The largest (or smallest) numbers, NaNs before (or behind) them; of equal ones the first."""
    order = [np.lexsort((np.where(np.isnan(row), 0, -row if largest else row), np.isnan(row) != largest)) for row in a]
    places = np.array(order)[:, :k]
    return np.take_along_axis(a, places, 1), places


def top(k: int, largest: bool = True, machine: str = "a100", **how: Any) -> Any:
    function = lambda a: tl.topk(a, k, over="x", axis="r", largest=largest)  # noqa: E731
    return treadle.kernel("q x -> q r, q r", machine=machine, **how)(function)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_the_first_of_an_order(k: int, largest: bool, machine: str) -> None:
    a, found = rows(), top(k, largest, machine)
    assert found.compiled(a).estimate.kernels == 1
    for backend in ("interpreter", "emulator"):
        values, places = found(a, backend=backend)
        expected = first(a, k, largest)
        np.testing.assert_array_equal(values, expected[0])
        np.testing.assert_array_equal(places, expected[1])
        assert places.dtype == np.int32


def test_each_of_an_order_takes_as_much_as_the_last() -> None:
    """However many come before it."""
    lengths = [len(str(top(k).trace(["f32"], {"q": 9, "x": 40})).splitlines()) for k in (4, 8, 16)]
    assert lengths[2] - lengths[1] == 2 * (lengths[1] - lengths[0])


def test_no_group_makes_an_order_again_for_each_of_it() -> None:
    """The axis that has the first few is held whole, for what they are made of lacks it."""
    kernel = treadle.compile(str(top(8).trace(["f16"], {"q": 4096, "x": 256}, ["x"])), machine="h100")
    (cut,) = re.findall(r"hierarchy.group \[(.*?)\]", kernel.hierarchy)
    assert "q = " in cut
    assert "r = " not in cut


def test_it_is_that_of_pytorch() -> None:
    a = np.random.default_rng(1).standard_normal((7, 90)).astype(np.float32)
    for k, largest in ((1, True), (6, True), (3, False)):
        expected = torch.from_numpy(a).topk(k, largest=largest)
        values, places = top(k, largest)(a, backend="emulator")
        np.testing.assert_array_equal(values, expected.values)
        np.testing.assert_array_equal(places, expected.indices)


def test_an_axis_of_any_length() -> None:
    found = top(3)
    for length in (40, 33, 100, 1500):
        a = np.random.default_rng(length).standard_normal((5, length)).astype(np.float32)
        values, places = found(a, backend="emulator")
        np.testing.assert_array_equal(values, first(a, 3)[0])
        np.testing.assert_array_equal(places, first(a, 3)[1])


def test_integers_stay_integers() -> None:
    a = np.random.default_rng(2).integers(-5, 5, (4, 30)).astype(np.int32)
    a[0] = -(2**31)
    values, places = top(4)(a, backend="emulator")
    assert values.dtype == np.int32
    np.testing.assert_array_equal(places, first(a.astype(np.float64), 4)[1])
    np.testing.assert_array_equal(values, np.take_along_axis(a, places, 1))


def test_of_what_is_absent_there_is_nothing() -> None:
    a, n = np.random.default_rng(3).standard_normal((5, 30)).astype(np.float32), np.array([0, 1, 2, 3, 30], np.int32)

    @treadle.kernel("q x, q -> q r, q r", machine="a100")
    def found(a: Any, n: Any) -> Any:
        return tl.topk(tl.keep(a, "x < n[q]", n=n), 3, over="x", axis="r")

    values, places = found(a, n, backend="emulator")
    for row, length in enumerate(n):
        there = min(length, 3)
        expected = first(a[row : row + 1, :length], 3)
        np.testing.assert_array_equal(values[row], [*expected[0][0], *[-INF] * (3 - there)])
        np.testing.assert_array_equal(places[row], [*expected[1][0], *[NOWHERE] * (3 - there)])


@treadle.kernel("t d, e d -> t r, t r", machine="h100", result="f32")
def routed(X: Any, W: Any) -> Any:
    values, experts = tl.topk(tl.contract(X, W, over="d"), 3, over="e", axis="r")
    return tl.softmax(values, "r"), experts


def arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(4)
    X, W = (random.standard_normal((n, 48)).astype(np.float16) for n in (70, 20))
    return X * np.float16(0.3), W


def test_a_router_is_one_kernel_with_its_product() -> None:
    X, W = arguments()
    made = routed.compiled(X, W)
    assert made.estimate.kernels == 1
    assert all(verdict.ok for verdict in made.verify(X, W, backend="emulator"))
    shares, experts = made.run(X, W, backend="emulator")
    expected = torch.topk(torch.from_numpy(X).double() @ torch.from_numpy(W).double().T, 3)
    np.testing.assert_array_equal(experts, expected.indices)
    np.testing.assert_allclose(shares, expected.values.softmax(-1), atol=1e-5)


def test_its_gradient() -> None:
    """Which goes to the elements that were found."""
    X, W = arguments()
    shares, experts = routed(X, W, backend="emulator")
    slope = np.random.default_rng(5).standard_normal(shares.shape).astype(np.float32)
    given = (X, W, shares, experts, slope, np.zeros_like(slope))
    derived = GradientKernel(routed).compiled(*given)
    assert all(verdict.ok for verdict in derived.verify(*given, backend="emulator"))
    tensors = [torch.from_numpy(each).double().requires_grad_() for each in (X, W)]
    (torch.topk(tensors[0] @ tensors[1].T, 3).values.softmax(-1) * torch.from_numpy(slope)).sum().backward()
    for found, tensor in zip(derived.run(*given, backend="emulator"), tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad, atol=4e-3)


def test_sampling_from_the_first_of_an_order() -> None:
    """What is below the k-th largest is left out, and one of the others drawn."""

    @treadle.kernel("q x, -> q", machine="a100")
    def drawn(scores: Any, seed: Any) -> Any:
        values, _ = tl.topk(scores, 4, over="x", axis="r")
        kept = tl.where(scores < tl.min(values, "r"), float("-inf"), scores)
        return tl.argmax(kept - tl.log(-tl.log(tl.uniform(seed, scores))), over="x")

    scores = np.random.default_rng(6).standard_normal((200, 50)).astype(np.float32)
    places = drawn(scores, np.int32(7), backend="emulator")
    allowed = first(scores, 4)[1]
    assert (allowed == places[:, None]).any(1).all()
    assert len({int(np.flatnonzero(row == place)[0]) for row, place in zip(allowed, places, strict=True)}) == 4


def test_arrays_side_by_side() -> None:
    a = np.random.default_rng(7).standard_normal((5, 30)).astype(np.float32)

    @treadle.kernel("q x -> q x r, q r, q o", machine="a100", result="f32")
    def stacked(a: Any) -> Any:
        several = tl.stack([a, a * 2, a.sum("x")], "r")
        sums = tl.stack([a.sum("x"), a.max("x"), a.min("x")], "r")
        return several, sums, tl.stack([a.sum("x")], "o")

    whole, sums, one = stacked(a, backend="emulator")
    np.testing.assert_allclose(whole, np.stack([a, a * 2, np.repeat(a.sum(1)[:, None], 30, 1)], 2), rtol=1e-5)
    np.testing.assert_allclose(sums, np.stack([a.sum(1), a.max(1), a.min(1)], 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(one, a.sum(1)[:, None], rtol=1e-5, atol=1e-5)


def test_integers_side_by_side_are_integers() -> None:
    @treadle.kernel("x -> x r", machine="a100")
    def stacked(a: Any) -> Any:
        return tl.stack([a, tl.index("x", a)], "r")

    a = np.array([2**31 - 1, -(2**31), 5], np.int32)
    np.testing.assert_array_equal(stacked(a, backend="emulator"), np.stack([a, np.arange(3)], 1))


REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "topk of k=33: it is a whole number, at least 1 and at most 32": ("", lambda a: tl.topk(a, 33, "x", "r")),
    "topk of k=0:": ("", lambda a: tl.topk(a, 0, "x", "r")),
    "topk of k=2.0:": ("", lambda a: tl.topk(a, 2.0, "x", "r")),  # pyright: ignore[reportArgumentType]
    "topk of k=31 over 'x', which has 30 elements": ("", lambda a: tl.topk(a, 31, "x", "r")),
    "topk over 'x q': a position is along one axis": ("", lambda a: tl.topk(a, 2, "x q", "r")),
    "there is no axis 'z'": ("", lambda a: tl.topk(a, 2, "z", "r")),
    "topk of 2 along 'q', which has 5 elements: take another name": ("", lambda a: tl.topk(a, 2, "x", "q")),
    "axis name '9' is not an identifier": ("", lambda a: tl.topk(a, 2, "x", "9")),
    "stack of no arrays": ("q x -> q x r", lambda a: tl.stack([], "r")),
    "'stack' of float": ("q x -> q x r", lambda a: tl.stack([a, 1.0], "r")),  # pyright: ignore[reportArgumentType]
    "stack along 'x', an axis that <f32[q, x]> has already": ("q x -> q x", lambda a: tl.stack([a] * 30, "x")),
    "axis 'r' of result 0 of kernel is in no argument, and nothing in the function makes it": (
        "q x -> q r",
        lambda a: a.sum("x"),
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_refused(said: str) -> None:
    signature, function = REFUSED[said]
    with pytest.raises(TreadleError) as error:
        treadle.kernel(signature or "q x -> q r, q r")(function)(np.zeros((5, 30), np.float32))
    assert said in str(error.value)


def test_a_symbolic_axis_is_not_stacked_along() -> None:
    function = treadle.kernel("q x -> q x")(lambda a: tl.stack([a.sum("x"), a.max("x")], "x"))
    with pytest.raises(TreadleError, match="stack of 2 along 'x', which has several sizes"):
        function.trace(["f32"], {"q": 5, "x": 2})


def test_places_are_read_by_the_names_of_their_axes() -> None:
    """The new axis is the last, also of an array that has one other."""

    @treadle.kernel("t e, n d -> t r d", machine="a100")
    def rows_of(X: Any, T: Any) -> Any:
        _, places = tl.topk(X, k=3, over="e", axis="r")
        assert places.axes == ("t", "r")
        return tl.read(T, "place[t, r], d", place=places)

    X, T = (np.random.default_rng(n).standard_normal((n, 9)).astype(np.float32) for n in (5, 9))
    for backend in ("interpreter", "emulator"):
        np.testing.assert_array_equal(rows_of(X, T, backend=backend), T[first(X, 3)[1]])


def test_entries_in_another_order_are_refused() -> None:
    function = treadle.kernel("t e, r t -> t r")(lambda X, p: tl.read(X, "t, p[t, r]", p=p))
    with pytest.raises(TreadleError, match=r"'p' has the axes \[r, t\], in this order: write 'p\[r, t\]'"):
        function(np.zeros((2, 4), np.float32), np.zeros((3, 2), np.int32))


def test_the_gradient_of_an_operator_that_gives_places() -> None:
    """Integers have no cotangent."""
    from treadle.torch import operator

    @treadle.kernel("t d, e d -> t r, t r", machine="h100")
    def chosen(X: Any, W: Any) -> Any:
        values, experts = tl.topk(tl.contract(X, W, over="d"), 2, over="e", axis="r")
        return tl.softmax(values, "r"), experts

    X, W = (torch.randn(n, 16, generator=torch.Generator().manual_seed(n), requires_grad=True) for n in (7, 5))
    shares, _ = operator("tests_topk::chosen", chosen)(X, W)
    found = torch.autograd.grad((shares * torch.arange(2.0)).sum(), [X, W])
    stated = torch.topk(X @ W.T, 2).values.softmax(-1)
    expected = torch.autograd.grad((stated * torch.arange(2.0)).sum(), [X, W])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


REDUCED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda s: tl.sum(s, "r"), lambda s: s.sum(0)),
    "max": (lambda s: tl.max(s, "r"), lambda s: s.amax(0)),
    "logsumexp": (lambda s: tl.logsumexp(s, "r"), lambda s: s.logsumexp(0)),
    "last of cumsum": (lambda s: tl.max(tl.cumsum(s * s, "r"), "r"), lambda s: (s * s).sum(0)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_what_is_stacked_is_reduced(name: str) -> None:
    """Along an axis that no array has which the kernel reads."""
    function, expected = REDUCED[name]
    arrays = [np.random.default_rng(n).standard_normal((21, 30)).astype(np.float32) for n in range(3)]
    made = treadle.kernel("a b, a b, a b -> a b", machine="h100")(lambda *each: function(tl.stack(each, "r")))
    stacked = torch.stack([torch.from_numpy(each).double() for each in arrays])
    np.testing.assert_allclose(made(*arrays, backend="emulator"), expected(stacked), rtol=1e-5, atol=1e-5)
