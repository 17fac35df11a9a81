"""`diagram-tile-windows`: rows in tiles, each with all that its windows along two axes reach."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError

HEAD = 32
SCALE = 1 / 8
ASKED = ["diagram-tile-windows{axes=x,y}"]
AS_IT_IS = ["diagram-tile-windows{axes=none}"]
NEAR = "x <= r + 2 and r <= x + 2 and y <= c + 3 and c <= y + 1"
"""Neighbours in an image: 2 rows before and behind, 1 column before and 3 behind."""


def near(r: Any, c: Any, x: Any, y: Any) -> Any:
    return (abs(x - r) <= 2) & (y <= c + 3) & (c <= y + 1)


def program(function: Any, height: int, width: int, heads: int = 2, signature: str = "") -> str:
    sizes = {"h": heads, "r": height, "c": width, "x": height, "y": width, "d": HEAD}
    signature = signature or "h r c d, h x y d, h x y d -> h r c d"
    given = signature.partition("->")[0].split(",")
    axes = [axis for axis in sizes if axis in signature]
    kernel = treadle.kernel(signature, static=" ".join(axes))(function)
    fixed = {axis: sizes[axis] for axis in axes}
    return str(kernel.trace(["f16"] * len(given), fixed, fixed))


def neighbours(Q: tl.Array, K: tl.Array, V: tl.Array, condition: str = NEAR) -> tl.Array:
    scores = tl.keep(tl.contract(Q, K, over="d") * SCALE, condition)
    return tl.contract(tl.softmax(scores, over="x y").to("f16"), V, over="x y")


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def formula(Q: np.ndarray, K: np.ndarray, V: np.ndarray, keeps: Any = near, bias: Any = 0.0) -> np.ndarray:
    Q, K, V = (each.astype(float) for each in (Q, K, V))
    scores = np.einsum("hrcd,hxyd->hrcxy", Q, K) * SCALE + bias
    scores = np.where(keeps(*np.indices(scores.shape[1:])), scores, -np.inf)
    powers = np.exp(scores - scores.max((-2, -1), keepdims=True))
    return np.einsum("hrcxy,hxyd->hrcd", powers, V) / powers.sum((-2, -1))[..., None]


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("machine", ["a100", "h100", "l40s"])
@pytest.mark.parametrize(("height", "width"), [(13, 21), (1, 1), (9, 40), (16, 16)])
def test_neighbours(height: int, width: int, machine: str, rows: int) -> None:
    passes = [f"diagram-tile-windows{{axes=x,y rows={rows}}}"] if height > 1 else []
    kernel = treadle.compile(program(neighbours, height, width), machine=machine, passes=passes)
    given = arrays(*[(2, height, width, HEAD)] * 3)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)
    made = np.asarray(kernel.run(*given, backend="emulator"), float)
    np.testing.assert_allclose(made, formula(*given), atol=2e-2, rtol=2e-2)


def test_an_image_of_the_size_that_people_have_is_faster_in_tiles() -> None:
    def neighbourhood(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        return neighbours(Q, K, V, "x <= r + 6 and r <= x + 6 and y <= c + 6 and c <= y + 6")

    text = program(neighbourhood, 128, 128, heads=8)
    for machine, most in (("h100", 0.65), ("a100", 0.5)):
        tiled, flat = (treadle.compile(text, machine=machine, passes=each).estimate for each in ([], AS_IT_IS))
        assert tiled.time_us < most * flat.time_us
        assert tiled.kernels == 2  # the second one puts rows back


def test_what_is_given_along_rows_and_what_is_made_of_shares_are_in_tiles_too() -> None:
    """A bias for each distance, read at positions; a gate for each row; a sum that leaves beside the result."""

    def function(Q: tl.Array, K: tl.Array, V: tl.Array, B: tl.Array, G: tl.Array) -> Any:
        scores = tl.contract(Q, K, over="d") * SCALE + tl.read(B, "h, x - r + 2, y - c + 1")
        scores = tl.keep(scores, NEAR)
        most = tl.max(scores, over="x y")
        powers = tl.exp(scores - most)
        total = tl.sum(powers, over="x y")
        return tl.contract(powers.to("f16"), V, over="x y") / total * G, most + tl.log(total)

    sizes = {"h": 2, "r": 10, "c": 17, "x": 10, "y": 17, "d": HEAD, "i": 5, "j": 5}
    signature = "h r c d, h x y d, h x y d, h i j, r c -> h r c d, h r c"
    kernel = treadle.kernel(signature, static=" ".join(sizes))(function)
    compiled = treadle.compile(str(kernel.trace(["f16"] * 5, sizes, sizes)), machine="h100", passes=ASKED)
    assert "%B_tiles" not in compiled.hierarchy  # read at once where both places say
    Q, K, V, B, G = given = arrays(*[(2, 10, 17, HEAD)] * 3, (2, 5, 5), (10, 17))
    for verdict in compiled.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)
    r, c, x, y = np.indices((10, 17, 10, 17))
    inside = near(r, c, x, y)
    bias = np.where(inside, B.astype(float)[:, np.where(inside, x - r + 2, 0), np.where(inside, y - c + 1, 0)], 0)
    made, _ = compiled.run(*given, backend="emulator")
    wanted = formula(Q, K, V, bias=bias) * G.astype(float)[None, :, :, None]
    np.testing.assert_allclose(np.asarray(made, float), wanted, atol=3e-2, rtol=3e-2)


FLAT = {
    "x // 9 <= q // 9 + 2 and q // 9 <= x // 9 + 1 and x % 9 <= q % 9 + 1 and q % 9 <= x % 9 + 3": 9,
    "x // 9 - q // 9 <= 2 and q // 9 - x // 9 <= 1 and q % 9 - x % 9 <= 3 and x % 9 <= 1 + q % 9 and q // 9 != 3": 9,
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", FLAT)
def test_an_image_as_one_axis(condition: str, machine: str) -> None:
    """Lines and columns are what conditions divide: as two axes they are in tiles."""

    def function(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        scores = tl.contract(Q, K, over="d") * SCALE
        for part in condition.split(" and "):
            scores = tl.keep(scores, part)
        return tl.contract(tl.softmax(scores, over="x").to("f16"), V, over="x")

    sizes = {"h": 2, "q": 99, "x": 99, "d": HEAD}
    kernel = treadle.kernel("h q d, h x d, h x d -> h q d", static=" ".join(sizes))(function)
    text = str(kernel.trace(["f16"] * 3, sizes, sizes))
    compiled = treadle.compile(text, machine=machine, passes=["diagram-tile-windows{axes=x_line,x_column rows=64}"])
    assert "q_line_tile" in compiled.hierarchy
    given = arrays(*[(2, 99, HEAD)] * 3)
    (verdict,) = compiled.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)
    plain = treadle.compile(text, machine=machine, passes=AS_IT_IS)
    one, other = (np.asarray(each.run(*given, backend="emulator"), float) for each in (compiled, plain))
    np.testing.assert_allclose(one, other, atol=1e-2)


@pytest.mark.parametrize(
    "condition",
    [
        "x // 9 <= q // 9 + 2 and q // 9 <= x // 9 + 1 and x % 9 <= q % 9 + 1 and q % 9 <= x % 9 + 3 and x <= q",
        "x // 9 <= q // 9 + 2 and q // 9 <= x // 9 + 1 and x % 3 <= q % 3 and q % 3 <= x % 3 + 3",
        "x // 10 <= q // 10 + 2 and q // 10 <= x // 10 + 1 and x % 10 <= q % 10 + 1 and q % 10 <= x % 10 + 3",
        "(x + 1) // 9 <= q // 9 + 2 and q // 9 <= x // 9 + 1 and x % 9 <= q % 9 + 1 and q % 9 <= x % 9 + 3",
    ],
    ids=["a position, too", "two divisors", "no whole lines", "another line"],
)
def test_what_are_no_lines_stays_one_axis(condition: str) -> None:
    def function(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        scores = tl.keep(tl.contract(Q, K, over="d") * SCALE, condition)
        return tl.contract(tl.softmax(scores, over="x").to("f16"), V, over="x")

    sizes = {"h": 2, "q": 99, "x": 99, "d": HEAD}
    kernel = treadle.kernel("h q d, h x d, h x d -> h q d", static=" ".join(sizes))(function)
    with pytest.raises(TreadleError, match="nowhere axis 'x_line' is reduced together"):
        treadle.compile(
            str(kernel.trace(["f16"] * 3, sizes, sizes)),
            machine="h100",
            passes=["diagram-tile-windows{axes=x_line,x_column}"],
        )


def test_views_are_read_where_both_places_say_or_are_saved() -> None:
    """A bias of blocks of keys, whose quotient no place of a tile says; one that data choose; and two conditions."""

    def function(Q: tl.Array, K: tl.Array, V: tl.Array, B: tl.Array, T: tl.Array, of: tl.Array) -> tl.Array:
        scores = tl.contract(Q, K, over="d") * SCALE + tl.read(B, "x // 2, y // 2") + tl.read(T, "of[r], y", of=of)
        scores = tl.keep(tl.keep(scores, "x <= r + 2 and r <= x + 2"), "y <= c + 3 and c <= y + 1")
        return tl.contract(tl.softmax(scores, over="x y").to("f16"), V, over="x y")

    sizes = {"h": 2, "r": 10, "c": 18, "x": 10, "y": 18, "d": HEAD, "i": 5, "j": 9, "n": 4}
    signature = "h r c d, h x y d, h x y d, i j, n y, r -> h r c d"
    kernel = treadle.kernel(signature, static=" ".join(sizes))(function)
    text = str(kernel.trace(["f16"] * 5 + ["i32"], sizes, sizes))
    compiled = treadle.compile(text, machine="h100", passes=ASKED)
    assert "r_tile" in compiled.hierarchy
    given = [*arrays(*[(2, 10, 18, HEAD)] * 3, (5, 9), (4, 18)), np.arange(10, dtype=np.int32) % 4]
    (verdict,) = compiled.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)
    plain = treadle.compile(text, machine="h100", passes=AS_IT_IS)
    one, other = (np.asarray(each.run(*given, backend="emulator"), float) for each in (compiled, plain))
    np.testing.assert_allclose(one, other, atol=1e-2)


def pairs(Q: tl.Array, K1: tl.Array, K2: tl.Array, V1: tl.Array, V2: tl.Array) -> tl.Array:
    scores = tl.contract(Q, (K1 * K2).to("f16"), over="d") * SCALE
    scores = tl.keep(scores, "x <= r and r < x + 20 and y <= r and r < y + 5")
    return tl.contract(tl.softmax(scores, over="x y").to("f16"), (V1 * V2).to("f16"), over="x y")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("length", [1, 40, 150])
def test_pairs_of_keys_in_windows_around_one_query(length: int, machine: str) -> None:
    sizes = {"r": length, "x": length, "y": length, "d": HEAD}
    kernel = treadle.kernel("r d, x d, y d, x d, y d -> r d", static="r x y d")(pairs)
    passes = ["diagram-tile-windows{axes=x,y rows=64}"] if length > 1 else []
    compiled = treadle.compile(str(kernel.trace(["f16"] * 5, sizes, sizes)), machine=machine, passes=passes)
    Q, K1, K2, V1, V2 = given = arrays(*[(length, HEAD)] * 5)
    (verdict,) = compiled.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)
    keys, values = ((a[:, None] * b[None]).astype(float) for a, b in ((K1, K2), (V1, V2)))
    scores = np.einsum("rd,xyd->rxy", Q.astype(float), keys) * SCALE
    r, x, y = np.indices(scores.shape)
    scores = np.where((x <= r) & (r < x + 20) & (y <= r) & (r < y + 5), scores, -np.inf)
    powers = np.exp(scores - scores.max((1, 2), keepdims=True))
    wanted = np.einsum("rxy,xye->re", powers, values) / powers.sum((1, 2))[:, None]
    np.testing.assert_allclose(np.asarray(compiled.run(*given, backend="emulator"), float), wanted, atol=2e-2)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("windows", ["", "w <= t + 1 and t <= w"], ids=["all images", "near ones"])
def test_a_video(windows: str, machine: str) -> None:
    """Windows along three axes, or along two of three."""

    def function(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        parts = [*([windows] if windows else []), "x <= r + 1 and r <= x + 1 and y <= c + 2 and c <= y + 1"]
        scores = tl.keep(tl.contract(Q, K, over="d") * SCALE, " and ".join(parts))
        return tl.contract(tl.softmax(scores, over="w x y").to("f16"), V, over="w x y")

    sizes = {"t": 3, "r": 9, "c": 7, "w": 3, "x": 9, "y": 7, "d": HEAD}
    kernel = treadle.kernel("t r c d, w x y d, w x y d -> t r c d", static=" ".join(sizes))(function)
    passes = ["diagram-tile-windows{axes=w,x,y rows=64}"]
    compiled = treadle.compile(str(kernel.trace(["f16"] * 3, sizes, sizes)), machine=machine, passes=passes)
    Q, K, V = given = arrays(*[(3, 9, 7, HEAD)] * 3)
    (verdict,) = compiled.verify(*given, backend="emulator")
    assert verdict.ok, str(verdict)
    scores = np.einsum("trcd,wxyd->trcwxy", Q.astype(float), K.astype(float)) * SCALE
    t, r, c, w, x, y = np.indices(scores.shape)
    inside = (abs(x - r) <= 1) & (y <= c + 2) & (c <= y + 1) & (not windows or ((w <= t + 1) & (t <= w)))
    powers = np.exp(np.where(inside, scores, -np.inf) - np.where(inside, scores, -np.inf).max((3, 4, 5), keepdims=True))
    wanted = np.einsum("trcwxy,wxyd->trcd", powers, V.astype(float)) / powers.sum((3, 4, 5))[..., None]
    np.testing.assert_allclose(np.asarray(compiled.run(*given, backend="emulator"), float), wanted, atol=2e-2)


@pytest.mark.parametrize(
    "condition",
    [
        "x <= r and y <= c and c < y + 3",
        "x <= 2 * r and r <= x + 2 and y <= c and c < y + 3",
        "x <= r + 2 and r <= x + 2 or y <= c and c < y + 3",
        "",
    ],
    ids=["no window", "twice the row", "either", "none"],
)
def test_what_is_no_window_is_left_alone(condition: str) -> None:
    def function(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        scores = tl.contract(Q, K, over="d")
        scores = tl.keep(scores, condition) if condition else scores
        return tl.contract(tl.softmax(scores, over="x y").to("f16"), V, over="x y")

    with pytest.raises(TreadleError, match="nowhere axis 'x' is reduced together with others, two in windows"):
        treadle.compile(program(function, 32, 32), machine="h100", passes=ASKED)


def test_rows_of_a_tile_are_a_power_of_two() -> None:
    for rows in (-64, 48):
        with pytest.raises(TreadleError, match=f"the rows of a tile are a power of two, not {rows}"):
            treadle.compile(
                program(neighbours, 16, 16), machine="h100", passes=[f"diagram-tile-windows{{axes=x,y rows={rows}}}"]
            )


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("argument", [0, 1, 2])
def test_infinities_stay_in_the_windows_that_have_them(argument: int, value: float) -> None:
    text = program(neighbours, 12, 20)
    given = arrays(*[(2, 12, 20, HEAD)] * 3, seed=5)
    given[argument][1, 4, 9, 3] = value
    tiled = treadle.compile(text, machine="h100", passes=ASKED)
    made, wanted = (np.asarray(tiled.run(*given, backend=place), float) for place in ("emulator", "interpreter"))
    rows = [(r, c) for r, c in product(range(12), range(20)) if not near(r, c, 4, 9)]
    left = tuple(np.transpose(rows))
    np.testing.assert_allclose(made[0], wanted[0], atol=2e-2)
    if argument == 1:
        np.testing.assert_allclose(made[1][left], wanted[1][left], atol=2e-2)
