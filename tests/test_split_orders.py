"""The first few of an order, found part by part (`diagram-split-orders`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_topk import INF, NOWHERE, first, rows

import treadle
import treadle.language as tl
import treadle.torch
from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main

PASS = "diagram-split-orders"


def in_parts(module: Any, length: int, machine: str) -> treadle.Kernel:
    return treadle.compile(str(module), machine=machine, passes=[f"{PASS}{{lengths={length}}}"])


def steps(kernel: treadle.Kernel) -> list[str]:
    return [f"{step.rewrite} {step.subject}" for step in kernel.derivation if PASS in step.rewrite]


def of_rows(k: int, length: int, format: str = "f32", largest: bool = True, fixed: str = "x") -> Any:
    function = lambda a: tl.topk(a, k, over="x", axis="r", largest=largest)  # noqa: E731
    return treadle.kernel("q x -> q r, q r")(function).trace([format], {"q": 9, "x": length}, fixed.split())


def nearest(X: Any, C: Any) -> Any:
    """Of each row the first few in the order of scores."""
    return tl.topk(2 * tl.contract(X, C, over="d") - tl.sum(C * C, over="d"), 8, over="k", axis="r")


def of_products(n: int, k: int, d: int) -> Any:
    return treadle.kernel("n d, k d -> n r, n r")(nearest).trace(["f16", "f16"], {"n": n, "k": k, "d": d}, ["k", "d"])


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("length", [4, 8, 20])
def test_it_is_the_order_of_the_whole(length: int, largest: bool, machine: str) -> None:
    """Of equal elements, infinities and NaNs, too, and of parts with fewer elements than are looked for."""
    a, kernel = rows(), in_parts(of_rows(5, 40, largest=largest), length, machine)
    assert steps(kernel) == [f"{PASS} {'%max' if largest else '%min'} along x in parts of {length}"]
    assert kernel.estimate.kernels == 2
    values, places = kernel.run(a, backend="emulator")
    expected = first(a, 5, largest)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("length", [7, 13, 19])
def test_the_last_part_may_be_shorter(length: int, largest: bool) -> None:
    """No zero past the end is before elements below it, and no place lies there."""
    a, kernel = rows(), in_parts(of_rows(5, 40, largest=largest), length, "h100")
    a[0] = -5 if largest else 5
    assert len(steps(kernel)) == 1
    values, places = kernel.run(a, backend="emulator")
    expected = first(a, 5, largest)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("largest", [True, False])
def test_of_a_length_that_the_launch_tells(largest: bool, machine: str) -> None:
    """One kernel for all of them: a part at most, whole parts, and a last one of one element; fewer than are asked
    for leave places that nothing has."""
    kernel = in_parts(of_rows(5, 40, largest=largest, fixed=""), 8, machine)
    assert steps(kernel) == [f"{PASS} {'%max' if largest else '%min'} along x in parts of 8"]
    missing = -INF if largest else INF
    for length in (1, 3, 5, 8, 9, 16, 33, 40, 257):
        a = rows(max(length, 40))[:, -length:].copy()
        a[0] = -5 if largest else 5
        values, places = kernel.run(a, backend="emulator")
        expected = first(a, 5, largest)
        there = expected[1].shape[1]
        np.testing.assert_array_equal(values[:, :there], expected[0])
        np.testing.assert_array_equal(places[:, :there], expected[1])
        assert (values[:, there:] == missing).all(), length
        assert (places[:, there:] == NOWHERE).all(), length


def test_of_scores_whose_number_the_launch_tells() -> None:
    """They are made in parts, once, and not saved; conditions are asked where keys lie in all."""

    def function(X: Any, C: Any) -> Any:
        scores = tl.keep(-1 - tl.abs(tl.contract(X, C, over="d")), "k <= 3 * n")
        return tl.topk(scores, 3, over="k", axis="r")

    made = treadle.kernel("n d, k d -> n r, n r")(function)
    module = made.trace(["f16", "f16"], {"n": 50, "k": 96, "d": 32}, ["d"])
    kernel = in_parts(module, 16, "h100")
    assert steps(kernel) == [f"{PASS} %max along k in parts of 16"]
    assert "tensor<?x?xf32, #diagram.array<[n, k]>>" not in kernel.hierarchy
    for n, k in ((50, 96), (1, 1), (17, 33), (64, 130)):
        X, C = (np.random.default_rng(each).standard_normal((each, 32)).astype(np.float16) for each in (n, k))
        scores = -1 - np.abs(X.astype(float) @ C.T.astype(float))
        values, places = kernel.run(X, C, backend="emulator")
        for row in range(n):
            expected = first(scores[row : row + 1, : 3 * row + 1], 3)
            there = expected[1].shape[1]
            np.testing.assert_array_equal(places[row], [*expected[1][0], *[NOWHERE] * (3 - there)])
            np.testing.assert_allclose(values[row, :there], expected[0][0], rtol=2**-10)  # rounded to f16


def test_where_it_pays_of_lengths_that_nothing_divides_or_the_launch_tells() -> None:
    """GPT-2 has 50257 tokens, which no number from 64 to 1024 divides."""
    for module in (of_rows(4, 50257), of_rows(4, 32000, fixed="")):
        chosen = treadle.compile(str(module), machine="h100")
        assert steps(chosen) == [f"{PASS} %max along x in parts of 1024"]
        assert 1.5 * chosen.estimate.time_us < in_parts(module, 0, "h100").estimate.time_us


def test_in_16_bits() -> None:
    with np.errstate(over="ignore"):
        a = rows(96).astype(np.float16)
    values, places = in_parts(of_rows(3, 96, "f16"), 32, "h100").run(a, backend="emulator")
    np.testing.assert_array_equal(places, first(a, 3)[1])
    np.testing.assert_array_equal(values, first(a, 3)[0])


@pytest.mark.parametrize("largest", [True, False])
def test_of_what_is_absent_no_part_has_anything(largest: bool) -> None:
    """Of rows that end before the last parts do, and of none; each part asks where its elements lie in the row."""

    @treadle.kernel("q x, q -> q r, q r")
    def found(a: Any, n: Any) -> Any:
        return tl.topk(tl.keep(a, "x < n[q]", n=n), 3, over="x", axis="r", largest=largest)

    a, n = rows(), np.array([40, 0, 1, 7, 8, 9, 30, 2, 39], np.int32)
    kernel = in_parts(found.trace(["f32", "i32"], {"q": 9, "x": 40}, ["x"]), 8, "h100")
    assert steps(kernel) == [f"{PASS} {'%max' if largest else '%min'} along x in parts of 8"]
    values, places = kernel.run(a, n, backend="emulator")
    for row, there in enumerate(n):
        expected, at = first(a[row : row + 1, :there], 3, largest)
        missing = 3 - at.shape[1]
        np.testing.assert_array_equal(values[row], [*expected[0], *[-np.inf if largest else np.inf] * missing])
        np.testing.assert_array_equal(places[row], [*at[0], *[NOWHERE] * missing])


def test_a_condition_on_elements_that_another_takes_keeps_them() -> None:
    def function(a: Any) -> Any:
        there = tl.keep(a, "x <= q + 20")
        return (tl.softmax(there, over="x").sum("x"), *tl.topk(there, 2, over="x", axis="r"))

    module = treadle.kernel("q x -> q, q r, q r")(function).trace(["f32"], {"q": 9, "x": 40}, ["x"])
    assert not steps(in_parts(module, 8, "h100"))


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_products_are_made_once_and_no_scores_are_saved(machine: str) -> None:
    X, C = (np.random.default_rng(n).standard_normal((n, 32)).astype(np.float16) for n in (50, 96))
    kernel = in_parts(of_products(50, 96, 32), 16, machine)
    assert kernel.estimate.kernels == 3  # of the squares of the keys, of parts, and of these
    assert kernel.hierarchy.count("diagram.contract") == 1
    verdicts = kernel.verify(X, C, backend="emulator")
    assert all(verdict.ok for verdict in verdicts), verdicts
    scores = 2 * X.astype(float) @ C.T.astype(float) - (C.astype(float) ** 2).sum(1)
    np.testing.assert_array_equal(kernel.run(X, C, backend="emulator")[1], first(scores, 8)[1])


def test_where_it_pays() -> None:
    """Products are made once, and not written."""
    module = of_products(65536, 8192, 256)
    chosen = treadle.compile(str(module), machine="h100")
    assert steps(chosen) == [f"{PASS} %max along k in parts of 256"]
    assert 1.5 * chosen.estimate.time_us < in_parts(module, 0, "h100").estimate.time_us


def test_the_nearest_are_found_in_parts() -> None:
    """The smallest, of those that lie before an end."""

    def nearest(X: Any, C: Any, n: Any) -> Any:
        apart = tl.sum(C * C, over="d") - 2 * tl.contract(X, C, over="d")
        return tl.topk(tl.keep(apart, "k < end", end=n), 4, over="k", axis="r", largest=False)

    X, C = (np.random.default_rng(n).standard_normal((n, 32)).astype(np.float16) for n in (50, 96))
    traced = treadle.kernel("n d, k d, -> n r, n r")(nearest).trace(
        ["f16", "f16", "i32"], {"n": 50, "k": 96, "d": 32}, ["k", "d"]
    )
    kernel = in_parts(traced, 16, "h100")
    verdicts = kernel.verify(X, C, np.array(90, np.int32), backend="emulator")
    assert all(verdict.ok for verdict in verdicts), verdicts
    apart = (C.astype(float) ** 2).sum(1) - 2 * X.astype(float) @ C.T.astype(float)
    places = kernel.run(X, C, np.array(90, np.int32), backend="emulator")[1]
    np.testing.assert_array_equal(places, first(apart[:, :90], 4, largest=False)[1])


def test_where_it_does_not() -> None:
    assert not steps(treadle.compile(str(of_rows(8, 1000)), machine="h100"))
    declined = treadle.compile(str(of_rows(8, 2048)), machine="h100")
    assert steps(declined) == [f"decline {PASS} %max along x"]


def test_another_use_of_the_scores_keeps_them() -> None:
    def both(X: Any, C: Any) -> Any:
        scores = tl.contract(X, C, over="d")
        return (scores, *tl.topk(scores, 2, over="k", axis="r"))

    X, C = (np.random.default_rng(n).standard_normal((n, 32)).astype(np.float32) for n in (20, 64))
    traced = treadle.kernel("n d, k d -> n k, n r, n r")(both).trace(
        ["f32"] * 2, {"n": 20, "k": 64, "d": 32}, ["k", "d"]
    )
    scores, values, places = in_parts(traced, 16, "h100").run(X, C, backend="emulator")
    expected = first(scores, 2)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@pytest.mark.parametrize("length", [21, 40, -8])
def test_lengths_of_fewer_than_two_parts_are_refused(length: int) -> None:
    with pytest.raises(TreadleError, match=f"there are no two parts of {length}: 'x' of %max has 40 elements"):
        in_parts(of_rows(2, 40), length, "h100")


def two() -> Any:
    def function(a: Any, b: Any) -> Any:
        return (*tl.topk(a, 2, over="x", axis="r"), *tl.topk(b, 2, over="y", axis="r"))

    made = treadle.kernel("q x, q y -> q r, q r, q r, q r")(function)
    return made.trace(["f32"] * 2, {"q": 9, "x": 40, "y": 60}, ["x", "y"])


def test_each_order_has_parts_of_its_own() -> None:
    a, b = rows(), rows(60)
    kernel = treadle.compile(str(two()), machine="h100", passes=[f"{PASS}{{lengths=0,20}}"])
    assert [step.rsplit(" ", 1)[1] for step in steps(kernel)] == ["20"]
    found = kernel.run(a, b, backend="emulator")
    expected = (*first(a, 2), *first(b, 2))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(TreadleError, match="3 lengths for 2 orders"):
        treadle.compile(str(two()), machine="h100", passes=[f"{PASS}{{lengths=0,20,4}}"])


def test_a_derivation_says_how_long_parts_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that they are as long elsewhere."""
    program, derivation = tmp_path / "nearest.mlir", tmp_path / "a.derivation"
    program.write_text(str(of_products(512, 1024, 64)), encoding="utf-8")
    assert main(["explain", str(program), "--machine", "h100", "--derivation"]) == 0
    said = capsys.readouterr().out
    assert f"{PASS}{{lengths=256}}" in said
    derivation.write_text(said.replace("lengths=256", "lengths=128"), encoding="utf-8")
    again = treadle.compile(program.read_text(encoding="utf-8"), replay=derivation)
    assert steps(again) == [f"{PASS} %max along k in parts of 128"]


def test_from_pytorch() -> None:
    def found(x: torch.Tensor) -> Any:
        return x.topk(4)

    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 40000))).float()
    options = {"machine": "h100", "cpu_work": 1e12}
    (taken,) = treadle.torch.explain(found, (x,), options=options).taken
    assert [step.rsplit(" ", 1)[1] for step in steps(taken.kernel)] == ["1000"]
    values, places = torch.compile(found, backend="treadle", options=options)(x)
    torch.testing.assert_close(values, found(x).values)
    torch.testing.assert_close(places, found(x).indices)
