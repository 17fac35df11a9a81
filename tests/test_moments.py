"""Sums about a value that is known late run in one stream with what makes it: a variance, a cross-entropy. As exact as
the plain form, also where the mean is large beside the spread."""

from __future__ import annotations

import numpy as np
import pytest

from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.hierarchy import StreamOp
from treadle.passes.expressions.polynomials import unfolded
from treadle.passes.expressions.scalars import Leaf, Node, walk

A, R = array("f32", t=None, x=None), array("f32", t=None)


def law(name: str, result: str = R) -> str:
    return f"""
func.func @f(%A: {A}) -> {result} {{
  %y = diagram.apply @{name}(%A) over [x] : ({A}) -> {result}
  func.return %y : {result}
}}
"""


CROSS_ENTROPY = f"""
func.func @f(%Z: {A}, %Y: {A}) -> {R} {{
  %l = diagram.apply @log_softmax(%Z) over [x] : ({A}) -> {A}
  %T = diagram.map (%y = %Y : {A}, %a = %l : {A}) -> {A} {{
    %n = arith.negf %a : f32
    %t = arith.mulf %y, %n : f32
    diagram.yield %t : f32
  }}
  %loss = diagram.reduce add %T over [x] : {A} -> {R}
  func.return %loss : {R}
}}
"""

KEPT = f"""
func.func @f(%A: {A}, %len: {array("i32", t=None)} {{diagram.up_to = "x"}}) -> {R} {{
  %W = diagram.where %A if "x < len[t]" with (len = %len : {array("i32", t=None)}) : {A}
  %y = diagram.apply @variance(%W) over [x] : ({A}) -> {R}
  func.return %y : {R}
}}
"""


@pytest.fixture(scope="module")
def variance() -> Road:
    return compiled(law("variance"), sizes={"t": 6})


def streams(text: str) -> int:
    module = parse_module(text)
    run_pipeline(module, Options(), last="hierarchy-expand-streams")
    return sum(isinstance(op, StreamOp) for op in module.walk())


@pytest.mark.parametrize("text", [law("variance"), CROSS_ENTROPY], ids=["variance", "cross-entropy"])
def test_one_stream(text: str) -> None:
    assert streams(text) == 1


@pytest.mark.parametrize(("example", "count"), [("variance", 1), ("cross_entropy", 1), ("layer_norm", 2)])
def test_the_examples(example: str, count: int) -> None:
    """Layer norm reads its rows twice: once for their moments, and to write them."""
    module = load_module(f"examples/{example}.mlir")
    run_pipeline(module, Options(), last="hierarchy-expand-streams")
    assert sum(isinstance(op, StreamOp) for op in module.walk()) == count


@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4, -1e5])
@pytest.mark.parametrize("length", [1, 37, 1024, 3000])
def test_a_variance_far_from_zero(variance: Road, mean: float, length: int) -> None:
    """Within what the data itself has lost: f32 near 1e5 knows it to 2^-7. The sums of x and of x^2 would be wrong by
    more than the variance from 1e4 on."""
    data = (np.random.default_rng(length).standard_normal((6, length)) + mean).astype(np.float32)
    (got,) = variance.run([data])
    wanted = data.astype(np.float64).var(axis=1)
    lost = (4 * np.abs(data).max() * 2.0**-24) ** 2  # the mean itself is rounded
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=lost + 1e-12)


def test_rows_whose_first_piece_is_nothing_like_the_rest(variance: Road) -> None:
    data = np.random.default_rng(0).standard_normal((6, 2100)).astype(np.float32)
    data[:, :1024] -= 5000
    (got,) = variance.run([data])
    np.testing.assert_allclose(got, data.astype(np.float64).var(axis=1), rtol=2e-5)


@pytest.mark.parametrize("sizes", [{"t": 1, "x": 1}, {"t": 5, "x": 333}, {"t": 3, "x": 2049}])
def test_cross_entropy(sizes: dict[str, int]) -> None:
    compiled(CROSS_ENTROPY).check(sizes)


def test_cross_entropy_of_huge_scores() -> None:
    """As exact as the plain form: the distance from the maximum is formed before anything is rounded."""
    dice = np.random.default_rng(1)
    scores = (dice.standard_normal((4, 1500)) * 3 + 20000).astype(np.float32)
    targets = np.eye(1500, dtype=np.float32)[scores.argmax(axis=1)]
    (got,) = compiled(CROSS_ENTROPY).run([scores, targets])
    exact = scores.astype(np.float64)
    wanted = np.log(np.exp(exact - exact.max(axis=1, keepdims=True)).sum(axis=1))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("sizes", [{"t": 5, "x": 77}, {"t": 2, "x": 1500}])
def test_only_what_is_there_counts(sizes: dict[str, int]) -> None:
    assert streams(KEPT) == 1
    compiled(KEPT).check(sizes)


def test_of_nothing() -> None:
    """No NaN where the plain form has none: the sum of no squares is 0."""
    text = f"""
func.func @f(%A: {A}) -> {R} {{
  %s = diagram.reduce add %A over [x] : {A} -> {R}
  %n = diagram.extent "x" : i32
  %m = diagram.map (%a = %s : {R}, %b = %n : i32) -> {R} {{
    %c = arith.sitofp %b : i32 to f32
    %d = arith.divf %a, %c : f32
    diagram.yield %d : f32
  }}
  %D = diagram.map (%a = %A : {A}, %b = %m : {R}) -> {A} {{
    %d = arith.subf %a, %b : f32
    %e = arith.mulf %d, %d : f32
    diagram.yield %e : f32
  }}
  %t = diagram.reduce add %D over [x] : {A} -> {R}
  func.return %t : {R}
}}
"""
    assert streams(text) == 1
    (got,) = compiled(text).run([np.zeros((3, 0), np.float32)])
    np.testing.assert_array_equal(got, np.zeros(3, np.float32))


# A late value that is made, over several maps, of what no polynomial holds: its parts are unfolded while others are
# dropped, and one must never be taken for another that had its place in memory.
GELU = f"""
func.func @f(%A: {A}) -> {R} {{
  %B = diagram.map (%a = %A : {A}) -> {A} {{
    %c = arith.constant 1.5 : f32
    %d = arith.addf %a, %c : f32
    diagram.yield %d : f32
  }}
  %H = diagram.map (%b = %B : {A}) -> {A} {{
    %c = arith.constant 0.5 : f32
    %h = arith.mulf %c, %b : f32
    diagram.yield %h : f32
  }}
  %S = diagram.map (%b = %B : {A}) -> {A} {{
    %c = arith.constant 0.7071 : f32
    %s = arith.mulf %b, %c : f32
    diagram.yield %s : f32
  }}
  %E = diagram.map (%s = %S : {A}) -> {A} {{
    %e = math.erf %s : f32
    diagram.yield %e : f32
  }}
  %P = diagram.map (%e = %E : {A}) -> {A} {{
    %c = arith.constant 1.0 : f32
    %p = arith.addf %c, %e : f32
    diagram.yield %p : f32
  }}
  %G = diagram.map (%h = %H : {A}, %p = %P : {A}) -> {A} {{
    %g = arith.mulf %h, %p : f32
    diagram.yield %g : f32
  }}
  %y = diagram.apply @variance(%G) over [x] : ({A}) -> {R}
  func.return %y : {R}
}}
"""


def test_maps_are_unfolded_into_what_they_compute() -> None:
    summand = next(
        op.operand
        for op in parse_module(f"""
{GELU.split("  %y")[0]}  %y = diagram.reduce add %G over [x] : {A} -> {R}
  func.return %y : {R}
}}
""").walk()
        if isinstance(op, ReduceOp)
    )
    for _ in range(50):
        kinds = sorted(part.kind.name for part in walk(unfolded(Leaf(summand), "x")) if isinstance(part, Node))
        assert kinds == ["arith.addf", "arith.addf", "arith.mulf", "arith.mulf", "arith.mulf", "math.erf"]


def test_a_variance_of_what_maps_make(pytestconfig: pytest.Config) -> None:
    roads = [compiled(GELU) for _ in range(5 if pytestconfig.getoption("--all") else 2)]
    assert len({road.text for road in roads}) == 1
    roads[0].check({"t": 3, "x": 50})
