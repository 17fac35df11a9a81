"""`diagram-merge-reduced-axes`: axes that are reduced together are one in what is made with both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from test_two_axes_streamed import SIMPLICIAL

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError

ASKED = ["diagram-merge-reduced-axes{axes=x,y}"]
HEAD = 32
SCALE = 1 / 8


def pairs(
    Q: tl.Array, K1: tl.Array, K2: tl.Array, V1: tl.Array, V2: tl.Array, condition: str = "", **inputs: tl.Array
) -> tl.Array:
    """2-simplicial attention: scores of a query and of pairs of keys, shares of all pairs, values that are products."""
    scores = tl.contract(Q, (K1 * K2).to("f16"), over="d") * SCALE
    scores = tl.keep(scores, condition, **inputs) if condition else scores
    return tl.contract(tl.softmax(scores, over="x y").to("f16"), (V1 * V2).to("f16"), over="x y")


def traced(condition: str, q: int, x: int, y: int, static: str = "y d") -> str:
    """The program, in which x is known only at launch unless `static` has it."""

    def function(*arrays: tl.Array) -> tl.Array:
        return pairs(*arrays, condition=condition)

    sizes = {"q": q, "x": x, "y": y, "d": HEAD}
    kernel = treadle.kernel("q d, x d, y d, x d, y d -> q d", static=static)(function)
    fixed = {axis: sizes[axis] for axis in static.split()}
    return str(kernel.trace(["f16"] * 5, sizes, fixed))


def arrays(q: int, x: int, y: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((rows, HEAD)).astype(np.float16) for rows in (q, x, y, x, y)]


def formula(given: list[np.ndarray], keeps: Any = None) -> np.ndarray:
    """In float64, with keys and values of pairs rounded as the program says."""
    Q, K1, K2, V1, V2 = (each.astype(float) for each in given)
    keys, values = ((a[:, None] * b[None]).astype(np.float16).astype(float) for a, b in ((K1, K2), (V1, V2)))
    scores = np.einsum("qd,xyd->qxy", Q, keys) * SCALE
    if keeps is not None:
        q, x, y = np.indices(scores.shape)
        scores = np.where(keeps(q, x, y), scores, -np.inf)
    powers = np.exp(scores - scores.max((1, 2), keepdims=True))
    return np.einsum("qxy,xye->qe", powers, values) / powers.sum((1, 2))[:, None]


CONDITIONS = {
    "": None,
    "x <= q": lambda q, x, y: x <= q,
    "x <= q and y <= q": lambda q, x, y: (x <= q) & (y <= q),
    "x - y <= q": lambda q, x, y: x - y <= q,
    "(x // 2) * 3 <= q + y": lambda q, x, y: x // 2 * 3 <= q + y,
}


@pytest.mark.parametrize("machine", ["a100", "h100", "l40s"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_pairs_under_conditions(condition: str, machine: str) -> None:
    kernel = treadle.compile(traced(condition, 4096, 64, 16), machine=machine, passes=ASKED)
    for q, x in ((33, 9), (1, 1), (70, 3)):
        given = arrays(q, x, 16)
        (verdict,) = kernel.verify(*given, backend="emulator")
        assert verdict.ok, str(verdict)
        made = np.asarray(kernel.run(*given, backend="emulator"), float)
        np.testing.assert_allclose(made, formula(given, CONDITIONS[condition]), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_no_pairs_at_all(machine: str) -> None:
    kernel = treadle.compile(traced("", 4096, 64, 16), machine=machine, passes=ASKED)
    (verdict,) = kernel.verify(*arrays(5, 0, 16), backend="emulator")
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("static", ["y d", "x y d"])
def test_the_model_finds_pairs_faster_as_one_axis(machine: str, static: str) -> None:
    def time(passes: list[str]) -> float:
        return treadle.compile(traced("x <= q", 4096, 512, 64, static), machine=machine, passes=passes).estimate.time_us

    assert time([]) == time(ASKED)
    assert time([]) < 0.5 * time(["diagram-merge-reduced-axes{axes=none}"])


def test_what_data_say_of_one_axis_is_asked_at_the_quotient() -> None:
    def function(Q: tl.Array, K1: tl.Array, K2: tl.Array, V1: tl.Array, V2: tl.Array, last: tl.Array) -> tl.Array:
        return pairs(Q, K1, K2, V1, V2, "x <= last[q] and y <= other[x]", last=last, other=tl.index("x", K1) * 2)

    kernel = treadle.kernel("q d, x d, y d, x d, y d, q -> q d", machine="h100", static="y d")(function)
    text = str(kernel.trace(["f16"] * 5 + ["i32"], {"q": 64, "x": 9, "y": 16, "d": HEAD}, {"y": 16, "d": HEAD}))
    compiled = treadle.compile(text, machine="h100", passes=ASKED)
    assert "x_y // 16" in compiled.hierarchy
    last = np.random.default_rng(1).integers(0, 9, 40).astype(np.int32)
    given = arrays(40, 9, 16)
    made = np.asarray(compiled.run(*given, last, backend="emulator"), float)
    wanted = formula(given, lambda q, x, y: (x <= last[q]) & (y <= 2 * x))
    np.testing.assert_allclose(made, wanted, atol=2e-2, rtol=2e-2)


VIEWS: dict[str, tuple[str, tuple[int, int]]] = {
    "x - q + 3, y": ("i y", (9, 6)),
    "x // 2, y": ("i y", (3, 6)),
    "x + 1, y + 1": ("i j", (7, 8)),
}


@pytest.mark.parametrize("place", VIEWS)
def test_a_view_is_read_where_one_place_says_or_saved(place: str) -> None:
    axes, shape = VIEWS[place]

    def function(Q: tl.Array, K: tl.Array, V: tl.Array, B: tl.Array) -> tl.Array:
        scores = tl.keep(tl.contract(Q, K, over="d") * SCALE + tl.read(B, place), "x <= q")
        return tl.contract(tl.softmax(scores, over="x y").to("f16"), V, over="x y")

    fixed = {"x": 5, "y": 6, "d": HEAD, **dict(zip(axes.split(), shape, strict=True))}
    kernel = treadle.kernel(f"q d, x y d, y x d, {axes} -> q d", static=" ".join(fixed))(function)
    text = str(kernel.trace(["f16"] * 4, {"q": 16, **fixed}, fixed))
    compiled = treadle.compile(text, machine="h100", passes=ASKED)
    random = np.random.default_rng(0)
    shapes = ((16, HEAD), (5, 6, HEAD), (6, 5, HEAD), shape)
    given = [random.standard_normal(each).astype(np.float16) for each in shapes]
    (verdict,) = compiled.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)


def test_a_product_of_single_rows_is_left_alone() -> None:
    """`(Q K1) K2` has no rows of pairs: a product for each index of x."""
    kernel = treadle.compile(SIMPLICIAL, machine="h100")
    with pytest.raises(TreadleError, match="nowhere a product has axis 'x'"):
        treadle.compile(SIMPLICIAL, machine="h100", passes=ASKED)
    assert not [step for step in kernel.derivation if step.rewrite == "diagram-merge-reduced-axes"]


def mixture(G: tl.Array, W: tl.Array, X: tl.Array) -> tl.Array:
    return tl.sum(tl.contract(X, W, over="k") * G, over="e").to("bf16")


def divided(G: tl.Array, W: tl.Array, X: tl.Array) -> tl.Array:
    return tl.sum(-tl.contract(X, W, over="k") / (1 + tl.exp(G)), over="e").to("bf16")


def mixture_program(function: Any, t: int, e: int, k: int, n: int) -> str:
    sizes = {"t": t, "e": e, "k": k, "n": n}
    kernel = treadle.kernel("t e, e k n, t k -> t n", static="e k n")(function)
    return str(kernel.trace(["f32", "bf16", "bf16"], sizes, {axis: sizes[axis] for axis in "ekn"}))


def test_scaled_products_are_one_stream_of_pieces_where_that_is_faster() -> None:
    kernel = treadle.compile(mixture_program(mixture, 4096, 8, 4096, 4096), machine="h100")
    assert kernel.estimate.kernels == 1
    apart = ["diagram-merge-reduced-axes{axes=none}"]
    other = treadle.compile(mixture_program(mixture, 4096, 8, 4096, 4096), machine="h100", passes=apart)
    assert other.estimate.kernels == 2
    assert kernel.estimate.time_us < 0.8 * other.estimate.time_us


@pytest.mark.parametrize("machine", ["a100", "h100", "l40s"])
@pytest.mark.parametrize("function", [mixture, divided])
@pytest.mark.parametrize(("t", "e", "n"), [(33, 3, 72), (1, 1, 8), (0, 2, 16), (130, 2, 24)])
def test_mixtures(function: Any, t: int, e: int, n: int, machine: str) -> None:
    passes = ["diagram-merge-reduced-axes{axes=e,k}"] if e > 1 else []
    kernel = treadle.compile(mixture_program(function, 4096, e, 256, n), machine=machine, passes=passes)
    random = np.random.default_rng(3)
    G = random.standard_normal((t, e)).astype(np.float32)
    shapes = ((e, 256, n), (t, 256))
    W, X = (random.standard_normal(shape).astype(bfloat16) for shape in shapes)
    (verdict,) = kernel.verify(G, W, X, backend="emulator")
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(
    "function",
    [
        lambda G, W, X: tl.sum(tl.sigmoid(tl.contract(X, W, over="k")) * G, over="e").to("bf16"),
        lambda G, W, X: tl.sum(tl.contract(X, W, over="k") + G, over="e").to("bf16"),
        lambda G, W, X: tl.sum(G / tl.contract(X, W, over="k"), over="e").to("bf16"),
        lambda G, W, X: tl.max(tl.contract(X, W, over="k") * G, over="e").to("bf16"),
    ],
    ids=["a sigmoid", "a term", "a divisor", "a maximum"],
)
def test_what_is_no_scale_is_left_alone(function: Any) -> None:
    with pytest.raises(TreadleError, match="nowhere a product has axis 'e'"):
        treadle.compile(
            mixture_program(function, 4096, 4, 1024, 64),
            machine="h100",
            passes=["diagram-merge-reduced-axes{axes=e,k}"],
        )
