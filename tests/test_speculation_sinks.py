"""Turns that take their powers from the maximum so far, of rows with a sink (`cuda-speculate`): beside the formula in
float64, whether the sink is in the maximum or in the sum alone, and however far it is from the scores."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from test_speculation import PIECE, ROWS, SLACK, Array, sized, stepping, steps

from roads import Road, array
from treadle.dialects import cuda
from treadle.runtime.backend import has_host_compiler

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

Q, KEY = array("f16", q=None, d=64), array("f16", x=None, d=64)
V, OUT = array("f16", x=None, e=64), array("f16", q=None, e=64)
S, P, A = array("f32", q=None, x=None), array("f16", q=None, x=None), array("f32", q=None, e=64)
R = array("f32", q=None)
SCALE = 0.125


def program(form: str, condition: str = "") -> str:
    """Attention of which each row has a sink."""
    scores, most = ("%W" if condition else "%T"), ("%M" if form == "in the maximum" else "%m")
    return f"""
func.func @f(%Q: {Q}, %K: {KEY}, %V: {V}, %sink: {R}) -> {OUT}
    attributes {{sizes = #diagram.sizes<q = 16384, x = 4096>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : {Q}, {KEY} -> {S}
  %T = diagram.map (%s = %S : {S}) -> {S} {{
    %c = arith.constant {SCALE} : f32
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }}
  {f'%W = diagram.where %T if "{condition}" : {S}' if condition else ""}
  %m = diagram.reduce max {scores} over [x] : {S} -> {R}
  %M = diagram.map (%a = %m : {R}, %k = %sink : {R}) -> {R} {{
    %w = arith.maximumf %a, %k : f32
    diagram.yield %w : f32
  }}
  %E = diagram.map (%t = {scores} : {S}, %b = {most} : {R}) -> {S} {{
    %d = arith.subf %t, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }}
  %l = diagram.reduce add %E over [x] : {S} -> {R}
  %H = diagram.map (%p = %E : {S}, %n = %l : {R}, %k = %sink : {R}, %b = {most} : {R}) -> {S} {{
    %d = arith.subf %k, %b : f32
    %y = math.exp %d : f32
    %all = arith.addf %n, %y : f32
    %share = arith.divf %p, %all : f32
    diagram.yield %share : f32
  }}
  %P = diagram.cast %H : {S} -> {P}
  %A = diagram.contract %P, %V over [x] accumulate f32 : {P}, {V} -> {A}
  %O = diagram.cast %A : {A} -> {OUT}
  func.return %O : {OUT}
}}
"""


CASES = [("in the sum", ""), ("in the maximum", ""), ("in the maximum", "x <= q")]


@cache
def road(form: str, condition: str = "", without: bool = False) -> Road:
    made = sized(program(form, condition), 64 if condition else PIECE, 1, ("cuda-speculate",) if without else ())
    assert any(isinstance(op, cuda.ExceedsOp) for each in made.kernels for op in each.walk()) is not without
    return made


SINKS = np.array([0.0, 4.0, -4.0, 30.0, 100.0, -100.0, 1e4, -1e4, np.inf, -np.inf, np.nan, 5.5, 11.0], np.float32)


def with_sinks(inputs: tuple[Array, Array, Array]) -> tuple[Array, ...]:
    """Those of neighbouring rows differ, in every warp."""
    return (*inputs, np.resize(SINKS, ROWS))


def plain(given: tuple[Array, ...], form: str, condition: str) -> tuple[Array, Array]:
    """The formula, and the size of what it adds up."""
    q, k, v, sink = (each.astype(np.float64) for each in given)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = SCALE * q @ k.T
        if condition:
            scores[np.arange(len(k)) > np.arange(len(q))[:, None]] = -np.inf
        most = np.maximum(scores.max(-1), sink) if form == "in the maximum" else scores.max(-1)
        powers = np.exp(scores - most[:, None])
        shares = powers / (powers.sum(-1) + np.exp(sink - most))[:, None]
        return shares @ v, shares @ np.abs(v)


def check(inputs: tuple[Array, Array, Array], form: str, condition: str) -> None:
    given, unit = with_sinks(inputs), 2.0**-11
    expected, size = plain(given, form, condition)
    for without in (False, True):
        (output,) = road(form, condition, without).run(given)
        assert (np.isnan(output) == np.isnan(expected)).all()
        there = ~np.isnan(expected)
        bound = (4 * unit * size + unit)[there]
        assert (np.abs(output.astype(np.float64) - expected)[there] <= bound).all()


@pytest.mark.parametrize(("form", "condition"), CASES)
@pytest.mark.parametrize(
    "step", [0.0, SLACK / 3, 0.99 * SLACK, 1.01 * SLACK, 3 * SLACK, -SLACK / 3, -3 * SLACK, 1000.0]
)
def test_scores_that_climb_and_fall(step: float, form: str, condition: str) -> None:
    check(stepping(steps(step)), form, condition)


@pytest.mark.parametrize(("form", "condition"), CASES)
@pytest.mark.parametrize("keys", [1, PIECE, PIECE + 1, 300])
def test_rows_of_minus_infinity_at_first(keys: int, form: str, condition: str) -> None:
    q, k, v = stepping(steps(SLACK / 3))
    k[:keys, 0] = -np.inf
    check((q, k, v), form, condition)


@pytest.mark.parametrize(("form", "condition"), CASES)
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [3, PIECE + 3])
def test_what_is_no_number_in_a_key(place: int, number: float, form: str, condition: str) -> None:
    """Rows of a negative product with infinity leave the key out."""
    q, k, v = stepping(steps(SLACK / 3), grows=np.where(np.arange(ROWS) % 3, 1.0, -1.0))
    k[place, 0] = number
    check((q, k, v), form, condition)
