"""Positions of extrema (`argmax`), and whatever else is reduced of the elements that equal one: a state of the stream
that finds the extremum, which begins anew when that moves, and of which parts of an axis are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import Road
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes

SPLIT = "hierarchy-split-streams"
Function: TypeAlias = Callable[[Any], Any]

INF = np.float32(np.inf)
NOWHERE = 2**31 - 1
SIZES = {"q": 9, "x": 700}


def kernel(function: Callable[..., Any], axes: str = "q x -> q", formats: tuple[str, ...] = ("f32",)) -> treadle.Kernel:
    """With an axis of any length, so that no group holds it whole."""
    module = treadle.kernel(axes, machine="a100")(function).trace(formats, SIZES | {"d": 16}, ["d"] * ("d" in axes))
    return treadle.compile(str(module), machine="a100", sizes=SIZES)


def first(name: str) -> Function:
    """`argmax` or `argmin`."""
    return lambda a: getattr(tl, name)(a, over="x")


def nearest(Q: Any, K: Any) -> Any:
    return tl.argmax(tl.contract(Q, K, over="d"), over="x")


def nearest_of_some(Q: Any, K: Any) -> Any:
    return tl.argmax(tl.keep(tl.contract(Q, K, over="d"), "x + 3 <= 90 * q"), over="x")


def first_of_a_tenth(a: Any) -> Any:
    return tl.argmax(a * 0.1, over="x")


def is_one_stream(kernel: treadle.Kernel) -> bool:
    laws = [step.law for step in kernel.derivation if step.rewrite == "streaming"]
    return "cascade" in laws and "recomputation" not in laws


def rows() -> Any:
    """Rows of few different numbers, the largest and the smallest of which are in many places; of one number; of
    nothing but infinities; with a NaN in the first piece, in the last, and several; and zeros of both signs."""
    a = np.random.default_rng(0).integers(-4, 5, (SIZES["q"], SIZES["x"])).astype(np.float32)
    a[1] = 3
    a[2], a[3] = -INF, INF
    a[4, 5] = a[5, 690] = a[6, 300] = a[6, 650] = np.nan
    a[7] = np.where(a[7] > 0, np.float32(-0.0), np.float32(0))
    a[8] = -INF
    a[8, 699] = -1e30
    return a


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_position(name: str) -> None:
    a = rows()
    made = kernel(first(name))
    assert is_one_stream(made)
    np.testing.assert_array_equal(made.run(a, backend="emulator"), getattr(a, name)(1))


def test_scores_that_are_scaled_meet_where_they_round_to_one() -> None:
    """0.1 times the next number above 3 is rounded to what 0.1 times 3 is, or it is not: the first of both counts."""
    a = np.full((SIZES["q"], SIZES["x"]), 1, np.float32)
    for i in range(SIZES["q"]):
        here = np.float32(3 + i)
        a[i, 50], a[i, 400], a[i, 650] = here, np.nextafter(here, INF), np.nextafter(np.nextafter(here, INF), INF)
    made = kernel(first_of_a_tenth)
    assert is_one_stream(made)
    scaled = a * np.float32(0.1)
    assert len({*scaled.argmax(1)}) > 1
    np.testing.assert_array_equal(made.run(a, backend="emulator"), scaled.argmax(1))


SUMMED: dict[str, tuple[Function, Function]] = {
    "how many": (
        lambda a: tl.sum(tl.where(a.equals(tl.max(a, "x")), 1.0, 0.0), "x"),
        lambda a: (a == a.max(1, keepdims=True)).sum(1),
    ),
    "the last": (
        lambda a: tl.max(tl.where(a.equals(tl.max(a, "x")), tl.index("x", a), -(2**31)), "x"),
        lambda a: a.shape[1] - 1 - a[:, ::-1].argmax(1),
    ),
    "the first that is even": (
        lambda a: tl.min(
            tl.where(a.equals(tl.max(a, "x")) & (tl.index("x", a) % 2).equals(0), tl.index("x", a), NOWHERE), "x"
        ),
        lambda a: 2 * (a[:, ::2] == a.max(1, keepdims=True)).argmax(1),
    ),
}


@pytest.mark.parametrize("name", SUMMED)
def test_what_is_reduced_of_them(name: str) -> None:
    function, expected = SUMMED[name]
    a = rows()[[0, 1, 3, 7, 0, 1, 3, 7, 0]]
    made = kernel(function)
    assert is_one_stream(made)
    np.testing.assert_array_equal(np.asarray(made.run(a, backend="emulator")), expected(a))


OTHERS: dict[str, Function] = {
    "or something else": lambda a: tl.min(
        tl.where(a.equals(tl.max(a, "x")) | a.equals(1.0), tl.index("x", a), NOWHERE), "x"
    ),
    "or another number": lambda a: tl.min(tl.where(a.equals(tl.max(a, "x")), tl.index("x", a), 5), "x"),
    "nearly it": lambda a: tl.min(tl.where(a >= tl.max(a, "x"), tl.index("x", a), NOWHERE), "x"),
    "its square": lambda a: tl.min(
        tl.where((a * a).equals(tl.max(a, "x") * tl.max(a, "x")), tl.index("x", a), NOWHERE), "x"
    ),
    "its opposite": lambda a: tl.min(tl.where(a.equals(-tl.max(a, "x")), tl.index("x", a), NOWHERE), "x"),
    "rounded on one side": lambda a: tl.min(
        tl.where(a.to("f16").to("f32").equals(tl.max(a, "x")), tl.index("x", a), NOWHERE), "x"
    ),
    "what moves": lambda a: tl.sum(tl.where(a.equals(tl.max(a, "x")), tl.max(a, "x") + a, 0.0), "x"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_still_count_later_takes_another_stream(name: str) -> None:
    a = np.random.default_rng(1).integers(-9, 10, (SIZES["q"], SIZES["x"])).astype(np.float32)
    a[:, 0] = 9.001
    a[:, 1] = 9
    a[:, 600] = np.float16(9.001)
    made = kernel(OTHERS[name])
    assert not is_one_stream(made)
    (verdict,) = made.verify(a, backend="emulator")
    assert not verdict.wrong


def test_elements_that_the_maximum_leaves_out() -> None:
    """The maximum is of the first half only, and equals elements of both."""

    def function(a: Any) -> Any:
        largest = tl.max(tl.keep(a, "2 * x <= 699"), "x")
        return tl.min(tl.where(a.equals(largest), -tl.index("x", a), NOWHERE), "x")

    a = np.random.default_rng(1).integers(-4, 5, (SIZES["q"], SIZES["x"])).astype(np.float32)
    made = kernel(function)
    assert not is_one_stream(made)
    expected = [-np.flatnonzero(row == row[:350].max())[-1] for row in a]
    np.testing.assert_array_equal(made.run(a, backend="emulator"), expected)


@pytest.mark.parametrize("format", ["f16", "i32"])
def test_other_formats(format: str) -> None:
    a = np.random.default_rng(2).integers(-50, 50, (SIZES["q"], SIZES["x"]))
    a = a.astype({"f16": np.float16, "i32": np.int32}[format])
    made = kernel(first("argmax"), formats=(format,))
    assert is_one_stream(made)
    np.testing.assert_array_equal(made.run(a, backend="emulator"), a.argmax(1))


def test_of_a_product_under_a_condition() -> None:
    """Rows below the third have no element."""
    dice = np.random.default_rng(3)
    Q, K = (dice.integers(-3, 4, (SIZES[axis], 16)).astype(np.float16) for axis in "qx")
    made = kernel(nearest_of_some, "q d, x d -> q", ("f16", "f16"))
    assert is_one_stream(made)
    scores = (Q.astype(np.float32) @ K.astype(np.float32).T).astype(np.float64)
    scores[np.arange(SIZES["x"])[None] + 3 > 90 * np.arange(SIZES["q"])[:, None]] = -np.inf
    expected = np.where(np.isneginf(scores).all(1), NOWHERE, scores.argmax(1))
    assert expected[0] == NOWHERE
    np.testing.assert_array_equal(made.run(Q, K, backend="emulator"), expected)


def with_sums(a: Any) -> tuple[Any, Any]:
    """Powers are told from a number that stands for the maximum while that is -inf, and the position from itself."""
    return tl.argmax(a * 0.5, "x"), tl.logsumexp(a * 0.5, "x")


def with_sums_first(a: Any) -> tuple[Any, Any]:
    return with_sums(a)[::-1]


def sums_of(a: Any) -> Any:
    exact = a.astype(np.float64) * 0.5
    with np.errstate(all="ignore"):
        peak = exact.max(1)
        return np.where(np.isinf(peak), peak, peak + np.log(np.exp(exact - peak[:, None]).sum(1)))


@pytest.mark.parametrize("function", [with_sums, with_sums_first])
def test_powers_follow_the_same_maximum(function: Callable[[Any], tuple[Any, Any]]) -> None:
    a = rows()
    made = kernel(function, "q x -> q, q")
    assert is_one_stream(made)
    found = [*made.run(a, backend="emulator")]
    position, sum = found if function is with_sums else found[::-1]
    np.testing.assert_array_equal(position, a.argmax(1))
    np.testing.assert_allclose(sum, sums_of(a), rtol=1e-6)


def attention(Q: Any, K: Any, V: Any) -> tuple[Any, Any]:
    scores = tl.contract(Q, K, over="d") * 0.25
    return tl.contract(tl.softmax(scores, "x").to("f16"), V, over="x"), tl.argmax(scores, "x")


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_attention_that_tells_the_best_key(machine: str) -> None:
    """Two heads; of one query no score is a number."""
    sizes = {"h": 40, "q": 256, "x": 640, "d": 64, "e": 64}
    traced = treadle.kernel("h q d, h x d, h x e -> h q e, h q", machine=machine)(attention)
    made = treadle.compile(str(traced.trace(["f16"] * 3, sizes, ["d", "e"])), machine=machine)
    assert is_one_stream(made)
    dice = np.random.default_rng(0)
    Q, K, V = (dice.standard_normal((2, n, 64)).astype(np.float16) for n in (70, 611, 611))
    Q[1, 5, 3] = np.nan
    verdict, _ = made.verify(Q, K, V, backend="emulator")
    assert verdict.ok, verdict
    _, position = made.run(Q, K, V, backend="emulator")
    np.testing.assert_array_equal(position, (Q.astype(np.float64) @ K.astype(np.float64).transpose(0, 2, 1)).argmax(2))


def in_parts(function: Function, axes: str, parts: int) -> Road:
    module = treadle.kernel(axes)(function).trace(["f32"], SIZES, SIZES)
    algorithm = module.clone()
    specs = [ArgSpec(SPLIT, {"parts": (parts,)}) if spec.name == SPLIT else spec for spec in pipeline(Options())]
    run_passes(module, specs)
    road = Road(algorithm, module, print_cuda(module))
    assert len(road.kernels) == 2
    return road


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_parts_are_merged(name: str, parts: int) -> None:
    """Some of which are without an element that counts, and the last of which is longer."""
    a = rows()
    (found,) = in_parts(first(name), "q x -> q", parts).run((a,))
    np.testing.assert_array_equal(found, getattr(a, name)(1))


@pytest.mark.parametrize("parts", [2, 7])
def test_parts_with_powers_are_merged(parts: int) -> None:
    a = rows()
    position, sum = in_parts(with_sums, "q x -> q, q", parts).run((a,))
    np.testing.assert_array_equal(position, a.argmax(1))
    np.testing.assert_allclose(sum, sums_of(a), rtol=1e-6)


def test_few_rows_of_a_long_axis_are_cut_unasked() -> None:
    """64 queries and 100000 keys: a second kernel merges what the first finds of each part."""
    sizes = {"q": 64, "x": 100_000, "d": 128}
    traced = treadle.kernel("q d, x d -> q", machine="h100")(nearest).trace(["f16", "f16"], sizes, ["d"])
    made = treadle.compile(str(traced), machine="h100")
    assert [step.rewrite for step in made.derivation].count(SPLIT) == 1
    assert is_one_stream(made)  # of the parts, and of the kernel that merges them
    assert made.estimate.kernels == 2
