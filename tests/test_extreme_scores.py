"""Powers of scores of any size: no overflow, no NaN and no lost digits where the plain formula has none.

Queries and keys are small integers times a power of two, so that scores are exact, and two of them are equal or far
apart: the softmax is 1 / n for each of the n largest, which leaves the roundings of weights and result, one unit
each."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roads import Road, array, attention, compiled

UNIT = {"f16": 2.0**-11, "f32": 2.0**-20}
"""Of the weights, which are rounded to the format; in f32 they are as good as ex2.approx."""
DTYPES = {"f16": np.float16, "f32": np.float32}
FAR = 40.0
"""Powers further below the largest do not count."""
LOWEST = float(np.finfo(np.float32).min)

road_of = cache(lambda format, scale: compiled(attention(16, 16, format, scale)))


def operands(format: str, size: float, keys: int = 150) -> tuple[NDArray[Any], ...]:
    dice = np.random.default_rng(0)
    dtype = DTYPES[format]
    q, k = ((dice.integers(-3, 4, (rows, 16)) * size).astype(dtype) for rows in (20, keys))
    k[keys // 2 :] = k[: keys - keys // 2]
    return q, k, dice.standard_normal((keys, 16)).astype(dtype)


def plain_softmax(scores: NDArray[Any]) -> NDArray[np.float64]:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def compare(road: Road, format: str, inputs: tuple[Any, ...], scores: NDArray[np.float64]) -> None:
    values = inputs[2].astype(np.float64)
    weights = plain_softmax(scores)
    bound = 4 * UNIT[format] * (weights @ np.abs(values)) + UNIT[format]
    (output,) = road.run(inputs)
    assert np.isfinite(output).all()
    assert (np.abs(output.astype(np.float64) - weights @ values) <= bound).all()


@pytest.mark.sample(14)
@pytest.mark.parametrize("size", [2.0**i for i in (0, 2, 4, 6, 8, 10, 11, 12, 13, 14)])
@pytest.mark.parametrize("scale", [0.125, 0.6, 1.0, 1.5, 100.0, 0.0, -0.0, -0.3, -2.0])
@pytest.mark.parametrize("at_run_time", [False, True], ids=["static", "runtime"])
@pytest.mark.parametrize("format", ["f16", "f32"])
def test_scores_that_are_equal_or_far_apart(format: str, at_run_time: bool, scale: float, size: float) -> None:
    q, k, v = operands(format, size)
    factor = np.float32(scale)
    scores = float(factor) * (q.astype(np.float64) @ k.astype(np.float64).T)
    if scale and abs(scale) * size**2 < FAR:
        q = (q * 0).astype(q.dtype)
        scores = 0 * scores
    road = road_of(format, "%scale" if at_run_time else repr(scale))
    compare(road, format, (q, k, v, factor) if at_run_time else (q, k, v), scores)


@cache
def scaled_above_zero() -> Road:
    """A scale that is given at launch, which the program says is above zero, and shares of up to 256."""
    text = attention(16, 16, "f32", "%scale").replace(
        "%t = arith.mulf %s, %c : f32",
        "%least = arith.constant 1.0e-30 : f32\n%u = arith.maximumf %c, %least : f32\n%t = arith.mulf %s, %u : f32",
    )
    scores = array("f32", q=None, x=None)
    large = f"""%large = diagram.map (%p = %P : {scores}) -> {scores} {{
      %most = arith.constant 256.0 : f32
      %y = arith.mulf %p, %most : f32
      diagram.yield %y : f32
    }}
    %A = diagram.contract %large,"""
    return compiled(text.replace("%A = diagram.contract %P,", large))


@pytest.mark.parametrize("power", [-40, -20, 0, 14, 30, 45])
@pytest.mark.parametrize("scale", [2.0**-60, 0.125, 0.6, 100.0, 1.3 * 2.0**70])
def test_scales_that_are_said_to_be_above_zero(scale: float, power: int) -> None:
    """They pass the maximum, and the factor of the shares becomes a summand of their exponents."""
    road = scaled_above_zero()
    assert "256 of %large into the power" in str(road.module)
    assert "exp2_approx(fmaf(" in road.text
    q, k, v = operands("f32", 2.0**power)
    factor = np.float32(scale)
    scores = float(factor) * (q.astype(np.float64) @ k.astype(np.float64).T)
    if scale * 4.0**power < FAR:
        q = (q * 0).astype(q.dtype)
        scores = 0 * scores
    weights = 256 * plain_softmax(scores)
    (output,) = road.run((q, k, v, factor))
    bound = 4 * UNIT["f32"] * (weights @ np.abs(v)) + UNIT["f32"]
    assert (np.abs(output.astype(np.float64) - weights @ v.astype(np.float64)) <= bound).all()


@pytest.mark.parametrize("power", [20, 30, 45, 58, 60])
def test_scores_up_to_the_largest_f32(power: int) -> None:
    q, k, v = operands("f32", 2.0**power)
    scores = 0.125 * (q.astype(np.float64) @ k.astype(np.float64).T)
    compare(road_of("f32", "0.125"), "f32", (q, k, v), scores)


# -- masks that are added ---------------------------------------------------------------------------


@cache
def masked(format: str) -> Road:
    """softmax(Q K^T / 8 + mask) V."""
    scores, mask = array("f32", q=None, x=None), array("f32", q=None, x=None)
    near = array(format, q=None, x=None)
    q, k, v = array(format, q=None, d=16), array(format, x=None, d=16), array(format, x=None, e=16)
    out, result = array("f32", q=None, e=16), array(format, q=None, e=16)
    round = "" if format == "f32" else f"%N = diagram.cast %P : {scores} -> {near}"
    down = "" if format == "f32" else f"%O = diagram.cast %A : {out} -> {result}"
    inner, last = ("%P", "%A") if format == "f32" else ("%N", "%O")
    return compiled(f"""
func.func @masked(%Q: {q}, %K: {k}, %V: {v}, %M: {mask}) -> {result} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : {q}, {k} -> {scores}
  %T = diagram.map (%s = %S : {scores}, %m = %M : {mask}) -> {scores} {{
    %c = arith.constant 0.125 : f32
    %t = arith.mulf %s, %c : f32
    %u = arith.addf %t, %m : f32
    diagram.yield %u : f32
  }}
  %P = diagram.apply @softmax(%T) over [x] : ({scores}) -> {scores}
  {round}
  %A = diagram.contract {inner}, %V over [x] accumulate f32 : {near}, {v} -> {out}
  {down}
  func.return {last} : {result}
}}
""")


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -1e20, LOWEST], ids=["-1e4", "-1e9", "-1e20", "lowest"])
@pytest.mark.parametrize("format", ["f16", "f32"])
def test_masks_that_are_added(format: str, hidden: float) -> None:
    """Whole rows are masked, too: they are what the formula says in f32, where the mask may swallow the scores."""
    q, k, v = operands(format, 32.0)
    mask = np.where(np.random.default_rng(1).random((20, 150)) < 0.5, hidden, 0).astype(np.float32)
    mask[3], mask[5, 1:] = hidden, hidden
    mask[7, :100], mask[7, 100:] = hidden, 0
    mask[8, 100:], mask[8, :100] = hidden, 0
    scores = (0.125 * (q.astype(np.float32) @ k.astype(np.float32).T) + mask).astype(np.float64)
    assert np.isfinite(scores).all()
    compare(masked(format), format, (q, k, v, mask), scores)


# -- rows that come from outside, exact -----------------------------------------------------------------


@cache
def row_law(law: str) -> Road:
    wide = array("f32", i=None, x=None)
    return compiled(f"""
func.func @rows(%X: {wide}) -> {wide} {{
  %P = diagram.apply @{law}(%X) over [x] : ({wide}) -> {wide}
  func.return %P : {wide}
}}
""")


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, -1e6, 2.0**24, -(2.0**24), 3e38, -3e38])
@pytest.mark.parametrize("length", [7, 300])
def test_softmax_of_rows_keeps_the_digits_of_a_difference(length: int, offset: float) -> None:
    """Exact inputs give exact differences, so a bound exists at any offset; a factor over each side would lose it."""
    rows = (np.random.default_rng(2).integers(-6, 7, (9, length)) + np.float64(offset)).astype(np.float32)
    road = row_law("softmax")
    for verdict in road.verdicts((rows,)):
        assert verdict.ok, verdict
    (output,) = road.run((rows,))
    wanted = plain_softmax(rows.astype(np.float64))
    np.testing.assert_allclose(output, wanted, rtol=3e-5, atol=1e-37)


def test_log_softmax_of_large_rows() -> None:
    rows = (np.random.default_rng(3).integers(-6, 7, (9, 300)) + 2.0**20).astype(np.float32)
    for verdict in row_law("log_softmax").verdicts((rows,)):
        assert verdict.ok, verdict
