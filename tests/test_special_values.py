"""Infinities, NaN, zeros of both signs and subnormals go through reductions and laws as they do in the formula, in
short rows and in streams of several pieces."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from roads import Road, array, compiled

WIDE, NARROW = array("f32", i=None, x=None), array("f32", i=None)
PLAIN_SUM = f"""
  %m = diagram.reduce max %X over [x] : {WIDE} -> {NARROW}
  %e = diagram.map (%a = %X : {WIDE}, %b = %m : {NARROW}) -> {WIDE} {{
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }}
  %y = diagram.reduce add %e over [x] : {WIDE} -> {NARROW}
"""
LAWS = ("softmax", "log_softmax", "log_sum_exp", "mean", "mean_square", "variance")
KINDS = ("max", "min", "add", "mul")


@cache
def road_of(what: str) -> Road:
    wide = what in ("softmax", "log_softmax")
    result = WIDE if wide else NARROW
    if what in KINDS:
        body = f"%y = diagram.reduce {what} %X over [x] : {WIDE} -> {NARROW}"
    elif what == "sum of powers":
        body = PLAIN_SUM
    else:
        body = f"%y = diagram.apply @{what}(%X) over [x] : ({WIDE}) -> {result}"
    return compiled(f"func.func @rows(%X: {WIDE}) -> {result} {{\n{body}\nfunc.return %y : {result}\n}}")


def rows(length: int) -> np.ndarray:
    """Each row has something special."""
    data = np.random.default_rng(length).standard_normal((14, length)).astype(np.float32)
    data[0, :-1] = -np.inf
    data[1, length // 2] = np.inf
    data[2, length // 3] = np.nan
    data[3, length // 2 :] = np.nan
    data[4] = np.inf
    data[5, : length // 2] = -np.inf
    data[6], data[7] = 0.0, -0.0
    data[8] *= np.float32(1e-40)
    data[9] *= np.float32(1e15)
    data[10, ::2] = -np.inf
    data[11, 0], data[11, -1] = np.inf, -np.inf
    data[12, 0], data[12, -1] = np.nan, -np.inf
    data[13, -1] = -np.inf
    return data


@pytest.mark.parametrize("length", [3, 300, 3000])
@pytest.mark.parametrize("what", [*LAWS, *KINDS, "sum of powers"])
def test_special_values(what: str, length: int) -> None:
    """Each row is compared, a NaN with a NaN, and few elements are left open; only long products leave the range."""
    road, data = road_of(what), rows(length)
    for verdict in road.verdicts((data,)):
        assert not verdict.wrong, verdict
        assert what == "mul" or verdict.unchecked <= 0.3 * verdict.elements, verdict


@pytest.mark.parametrize("length", [3, 300, 3000])
def test_rows_of_minus_infinity_have_no_number(length: int) -> None:
    """As in the formula, but for a log-sum-exp, whose law says what it is."""
    data = np.full((2, length), -np.inf, np.float32)
    data[1] = 1.0
    (sums,), (logarithms,) = road_of("sum of powers").run((data,)), road_of("log_sum_exp").run((data,))
    assert np.isnan(sums[0])
    assert logarithms[0] == -np.inf
    assert not np.isnan(logarithms[1])
    for what in ("sum of powers", "log_sum_exp", "softmax"):
        for verdict in road_of(what).verdicts((data,)):
            assert not verdict.wrong, verdict
            assert verdict.unchecked == 0, verdict


@pytest.mark.parametrize("kind", ["max", "min"])
def test_an_extremum_with_nan_is_nan_wherever_it_stands(kind: str) -> None:
    data = np.zeros((300, 300), np.float32)
    np.fill_diagonal(data, np.nan)
    (found,) = road_of(kind).run((data,))
    assert np.isnan(found).all()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_filled_zero_keeps_its_sign(zero: float) -> None:
    road = compiled(f"""func.func @f(%X: {NARROW}) -> {NARROW} {{
  %z = diagram.fill {zero} : f32 -> {NARROW}
  %y = diagram.map (%a = %X : {NARROW}, %b = %z : {NARROW}) -> {NARROW} {{
    %d = arith.divf %a, %b : f32
    diagram.yield %d : f32
  }}
  func.return %y : {NARROW}
}}""")
    (found,) = road.run((np.ones(40, np.float32),))
    assert (found == np.copysign(np.inf, zero)).all()


OF_C = {"0.5": [np.inf, np.inf, 0, 0, 2], "-0.5": [0, 0, np.inf, np.inf, 0.5], "1.5": [np.inf, np.inf, 0, 0, 8]}


@pytest.mark.parametrize("exponent", OF_C)
def test_powers_of_infinities_and_zeros(exponent: str) -> None:
    """Of one exponent of 0.5 for all elements numpy takes the root, which is NaN of -inf."""
    road = compiled(f"""
func.func @power(%X: {NARROW}) -> {NARROW} {{
  %Y = diagram.map (%x = %X : {NARROW}) -> {NARROW} {{
    %c = arith.constant {exponent} : f32
    %y = math.powf %x, %c : f32
    diagram.yield %y : f32
  }}
  func.return %Y : {NARROW}
}}
""")
    data = np.array([-np.inf, np.inf, -0.0, 0.0, 4.0], np.float32)
    (verdict,) = road.verdicts((data,), {"i": len(data)})
    assert not verdict.wrong, verdict
    (computed,) = road.run((data,))
    np.testing.assert_array_equal(computed, OF_C[exponent])
    assert not np.signbit(computed).any()
