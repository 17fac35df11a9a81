"""Inputs that fit or say why not, and verdicts that neither miss a mistake nor invent one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import TreadleError
from treadle.compiler.source import load_module, parse_module
from treadle.runtime.inputs import axis_sizes, check_inputs, make_inputs, output_names
from treadle.runtime.interpreter import entry_function, run_function, run_with_bounds
from treadle.runtime.verify import verify

ATTENTION = load_module(Path(__file__).parents[1] / "examples" / "attention.mlir")

FORMATS = parse_module("""
!A = tensor<?x8xf16, #diagram.array<[a, b]>>
!B = tensor<?xbf16, #diagram.array<[a]>>
!C = tensor<?xf32, #diagram.array<[c]>>
!I = tensor<?xi32, #diagram.array<[a]>>
func.func @f(%A: !A, %B: !B, %C: !C, %I: !I, %k: f32) -> (!I, !A, !A)
    attributes {sizes = #diagram.sizes<a = 5>} {
  func.return %I, %A, %A : !I, !A, !A
}""")


def sizes(module, **given: int) -> dict[str, int]:
    return axis_sizes(entry_function(module), given)


# -- sizes -----------------------------------------------------------------------------------------


def test_sizes_are_static_given_or_default():
    assert sizes(FORMATS, c=3) == {"a": 5, "b": 8, "c": 3}
    assert sizes(FORMATS, c=0, a=1, b=8) == {"a": 1, "b": 8, "c": 0}
    assert sizes(ATTENTION, q=7) == {"b": 2, "h": 3, "q": 7, "d": 64, "x": 333, "e": 64}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": 1}, r"no axis 'z'.*axes: a, b, c"),
        ({"b": 9, "c": 1}, r"'b' has the static size 8: it cannot become 9"),
        ({}, r"axis 'c' has no size: give one \(--size c=N\)"),
        ({"c": -1}, r"'c' cannot have the negative size -1"),
    ],
)
def test_sizes_that_do_not_fit(given, message):
    with pytest.raises(TreadleError, match=message) as caught:
        sizes(FORMATS, **given)
    assert caught.value.location is not None


def test_all_axes_without_a_size_are_told_at_once():
    module = parse_module("""!A = tensor<?x?xf32, #diagram.array<[a, b]>>
func.func @f(%A: !A) -> !A {
  func.return %A : !A
}""")
    with pytest.raises(
        TreadleError, match=r"axes a, b have no sizes: give them \(--size a=N --size b=N\), or defaults"
    ):
        sizes(module)
    with pytest.raises(TreadleError, match=r"axis 'b' has no size"):
        sizes(module, a=1)


def test_an_axis_that_only_a_fill_has():
    module = parse_module("""!A = tensor<?xf32, #diagram.array<[a]>>
func.func @f() -> !A attributes {sizes = #diagram.sizes<a = 5>} {
  %a = diagram.fill 1.0 : f32 -> !A
  func.return %a : !A
}""")
    assert sizes(module) == {"a": 5}
    assert verify(module, (), [np.ones(5, np.float32)], "here")[0].ok
    assert verify(module, (), [np.ones(3, np.float32)], "here", sizes=sizes(module, a=3))[0].ok


# -- inputs ----------------------------------------------------------------------------------------


def test_inputs_have_the_formats_of_the_program():
    function = entry_function(FORMATS)
    a, b, c, i, k = made = make_inputs(function, sizes(FORMATS, c=1000), 3)
    assert [x.dtype for x in made] == [np.float16, ml_dtypes.bfloat16, np.float32, np.int32, np.float32]
    assert [x.shape for x in made] == [(5, 8), (5,), (1000,), (5,), ()]
    assert abs(c.mean()) < 0.2
    assert 0.8 < c.std() < 1.2
    assert np.abs(i).max() < 10
    again = make_inputs(function, sizes(FORMATS, c=1000), 3)
    assert all((x == y).all() for x, y in zip(made, again, strict=True))
    assert (make_inputs(function, sizes(FORMATS, c=1000), 4)[2] != c).any()
    assert check_inputs(function, made) == {"a": 5, "b": 8, "c": 1000}
    assert check_inputs(function, (a, b, c, i, 0.5)) == {"a": 5, "b": 8, "c": 1000}
    assert k.ndim == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[:4], r"takes 5 arguments \(%A, %B, %C, %I, %k\), 4 are given"),
        (lambda x: (x[0][0], *x[1:]), r"%A has 1 dimensions: expected 2, axes \[a, b\]"),
        (lambda x: (x[0][:, :7], *x[1:]), r"axis 'b' of argument %A has 7 elements: it is 8"),
        (lambda x: (x[0][:4], *x[1:]), r"axis 'a' has 4 elements in argument %A, but 5 in %B"),
        (lambda x: (x[0].astype(np.float32), *x[1:]), r"%A has elements of float32: the program says f16"),
        (lambda x: (*x[:4], np.float64(1)), None),
    ],
)
def test_inputs_that_do_not_fit(change, message):
    function = entry_function(FORMATS)
    given = change(make_inputs(function, sizes(FORMATS, c=3), 0))
    if message is None:
        assert check_inputs(function, given)["a"] == 5
        return
    with pytest.raises(TreadleError, match=message):
        check_inputs(function, given)


def test_outputs_are_called_what_the_program_calls_them():
    assert output_names(entry_function(ATTENTION)) == ("O",)
    assert output_names(entry_function(FORMATS)) == ("I", "A_1", "A_2")


# -- verdicts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attention() -> tuple[tuple, np.ndarray]:
    inputs = make_inputs(entry_function(ATTENTION), sizes(ATTENTION, q=50, x=70), 0)
    return inputs, run_function(ATTENTION, inputs).results[0].astype(np.float16)


def test_a_right_output_is_verified(attention):
    inputs, output = attention
    (verdict,) = verify(ATTENTION, inputs, [output], "emulator")
    assert verdict.ok
    assert verdict.name == "O"
    assert 0 < verdict.max_error <= verdict.tolerance < 5e-3
    text = str(verdict)
    assert text.startswith("verified (emulator): O max error ")
    assert f"(tolerance {verdict.tolerance:.1e}".replace("e-0", "e-") in text


@pytest.mark.parametrize("wrong", [0.01, np.nan, np.inf, -np.inf])
def test_one_wrong_element_is_found(attention, wrong):
    inputs, output = attention
    output = output.copy()
    output[1, 2, 30, 40] += wrong
    (verdict,) = verify(ATTENTION, inputs, [output], "emulator")
    assert not verdict.ok
    assert verdict.where == {"b": 1, "h": 2, "q": 30, "e": 40}
    assert verdict.wrong == 1
    assert str(verdict).startswith(f"WRONG (emulator): O[b=1, h=2, q=30, e=40] is {output[1, 2, 30, 40]:.6g}, expected")
    assert "max error" in str(verdict)


def test_a_wrong_scale_is_found(attention):
    inputs, _ = attention
    q, k, v = inputs
    wrong = run_function(ATTENTION, (q * np.float16(1.05), k, v)).results[0]
    assert not verify(ATTENTION, inputs, [wrong.astype(np.float16)], "emulator")[0].ok


def test_a_wrong_shape_is_wrong(attention):
    inputs, output = attention
    (verdict,) = verify(ATTENTION, inputs, [output[:1]], "emulator")
    assert not verdict.ok
    assert "WRONG (emulator): O has shape (1, 3, 50, 64), expected (2, 3, 50, 64)" in str(verdict)
    with pytest.raises(TreadleError, match="gives 1 results, 2 are compared"):
        verify(ATTENTION, inputs, [output, output], "emulator")


def test_an_empty_output_says_so():
    inputs = make_inputs(entry_function(ATTENTION), sizes(ATTENTION, q=0), 0)
    (verdict,) = verify(ATTENTION, inputs, [np.zeros((2, 3, 0, 64), np.float16)], "emulator")
    assert verdict.ok
    assert str(verdict) == "verified (emulator): O is empty, so there is nothing to compare"


def test_no_keys_give_zeros():
    inputs = make_inputs(entry_function(ATTENTION), sizes(ATTENTION, q=3, x=0), 0)
    (verdict,) = verify(ATTENTION, inputs, [np.zeros((2, 3, 3, 64), np.float16)], "emulator")
    assert verdict.ok
    assert verdict.max_error == 0
    (verdict,) = verify(ATTENTION, inputs, [np.full((2, 3, 3, 64), np.nan)], "emulator")
    assert not verdict.ok


LOG = parse_module("""!A = tensor<?xf32, #diagram.array<[a]>>
func.func @f(%a: !A) -> !A {
  %r = diagram.map (%x = %a : !A) -> !A {
    %y = math.log %x : f32
    diagram.yield %y : f32
  }
  func.return %r : !A
}""")


def test_infinities_and_nans_compare_by_kind():
    given = np.array([1.0, 0.0, -1.0], np.float32)
    right = np.array([0.0, -np.inf, np.nan], np.float32)
    assert verify(LOG, [given], [right], "here")[0].ok
    for wrong in ([0.0, np.inf, np.nan], [0.0, -np.inf, 0.0], [0.0, -1e30, np.nan], [0.0, np.nan, np.nan]):
        verdict = verify(LOG, [given], [np.array(wrong, np.float32)], "here")[0]
        assert not verdict.ok
        assert verdict.max_error == np.inf


def test_integers_are_exact():
    outputs = [
        x.copy() for x in run_function(FORMATS, make_inputs(entry_function(FORMATS), {"a": 5, "c": 1}, 0)).results
    ]
    inputs = make_inputs(entry_function(FORMATS), {"a": 5, "c": 1}, 0)
    assert all(verdict.ok for verdict in verify(FORMATS, inputs, outputs, "here"))
    outputs[0][3] += 1
    verdict, *others = verify(FORMATS, inputs, outputs, "here")
    assert not verdict.ok
    assert verdict.tolerance == 0
    assert verdict.where == {"a": 3}
    assert f"I[a=3] is {outputs[0][3]}, expected {outputs[0][3] - 1}" in str(verdict)
    assert all(other.ok for other in others)


OVERFLOW = parse_module("""!A = tensor<?xf32, #diagram.array<[a]>>
!H = tensor<?xf16, #diagram.array<[a]>>
func.func @f(%a: !A) -> !H {
  %h = diagram.cast %a : !A -> !H
  func.return %h : !H
}""")


def test_few_elements_without_a_bound_are_counted():
    given = np.full(200, 1.5, np.float32)
    given[7] = 1e6
    (verdict,) = verify(OVERFLOW, [given], [given.astype(np.float16)], "here")
    assert verdict.ok
    assert "1 of 200 elements without a bound" in str(verdict)


@pytest.mark.parametrize("unknown", [3, 200])
def test_many_elements_without_a_bound_are_no_verification(unknown):
    given = np.full(200, 1.5, np.float32)
    given[:unknown] = 1e6
    (verdict,) = verify(OVERFLOW, [given], [given.astype(np.float16)], "here")
    assert not verdict.ok
    assert verdict.unverifiable
    assert f"cannot be verified (here): h: {unknown} of 200 elements have no tolerance" in str(verdict)
    assert "WRONG" not in str(verdict)


def test_what_is_wrong_is_wrong_however_little_is_known():
    given = np.array([1e6, 1.5], np.float32)
    (verdict,) = verify(OVERFLOW, [given], [np.array([np.inf, 1], np.float16)], "here")
    assert not verdict.ok
    assert not verdict.unverifiable
    assert str(verdict).startswith("WRONG (here): h[a=1] is 1, expected 1.5")


CANCEL = parse_module("""!A = tensor<?xf32, #diagram.array<[a]>>
func.func @f(%a: !A, %b: !A) -> !A {
  %r = diagram.map (%x = %a : !A, %y = %b : !A) -> !A {
    %s = arith.addf %x, %y : f32
    %d = arith.subf %s, %x : f32
    diagram.yield %d : f32
  }
  func.return %r : !A
}""")


def test_a_tolerance_as_large_as_the_result_is_no_verification():
    """Zeros would pass as well."""
    large, small = np.full(100, 1e8, np.float32), np.full(100, 0.5, np.float32)
    for output in (small, np.zeros(100, np.float32)):
        (verdict,) = verify(CANCEL, [large, small], [output], "here")
        assert verdict.unverifiable
        assert "100 of 100 elements have no tolerance below their scale (5.0e-1 for the whole result)" in str(verdict)
    assert verify(CANCEL, [small, small], [small], "here")[0].ok


PRODUCT = parse_module("""!A = tensor<?x?xf16, #diagram.array<[m, k]>>
!B = tensor<?x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @f(%A: !A, %B: !B) -> !C {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}""")

SUMS = parse_module("""!A = tensor<?x?xf32, #diagram.array<[m, k]>>
!R = tensor<?xf32, #diagram.array<[m]>>
func.func @f(%A: !A) -> !R {
  %R = diagram.reduce add %A over [k] : !A -> !R
  func.return %R : !R
}""")


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("large", [1, 50])
def test_large_rows_do_not_hide_what_cancels_in_others(large: int, turned: bool):
    """The terms of most rows cancel to 500, with a tolerance of thousands; the large rows are a million times that."""
    left, right = np.full((100, 256), 1000, np.float16), np.full((256, 16), 1000, np.float16)
    left[large:, 1::2], right[0] = -1000, 1000.5
    inputs = (right.T.copy(), left.T.copy()) if turned else (left, right)
    output = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
    output[large:, ::2] = -7000
    (verdict,) = verify(PRODUCT, inputs, [output.T if turned else output], "here")
    assert verdict.unverifiable, verdict
    assert verdict.unchecked == 16 * (100 - large)


def test_a_large_sum_does_not_hide_what_cancels_in_others():
    given = np.full((100, 256), 1e6, np.float32)
    given[1:, 1::2] *= -1
    given[1:, 0] += 1
    output = given.astype(np.float64).sum(1).astype(np.float32)
    (verdict,) = verify(SUMS, [given], [output], "here")
    assert verdict.unverifiable, verdict
    assert verdict.unchecked == 99


def test_elements_of_any_size_that_do_not_cancel_are_verified():
    """Each is exact to its own size, however large the others are."""
    given = (10.0 ** np.linspace(-20, 20, 100))[:, None] * np.ones((100, 8))
    (verdict,) = verify(SUMS, [given.astype(np.float32)], [given.astype(np.float32).sum(1)], "here")
    assert verdict.ok, verdict
    assert verdict.unchecked == 0


def test_shares_that_vanish_in_their_format_are_verified():
    """Their tolerance is a step of the format: far above what they are, but nothing beside a share of 1."""
    scores = np.zeros((20, 100), np.float32)
    scores[:, 0] = 40
    module = parse_module("""!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
func.func @f(%S: !S) -> !P {
  %W = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P = diagram.cast %W : !S -> !P
  func.return %P : !P
}""")
    shares = np.where(scores > 0, 1.0, 0.0).astype(np.float16)
    (verdict,) = verify(module, [scores], [shares], "here")
    assert verdict.ok, verdict
    assert verdict.unchecked == 0


def test_a_reference_of_zeros_is_verified_to_rounding():
    zeros = np.zeros(100, np.float32)
    assert verify(CANCEL, [zeros, zeros], [zeros], "here")[0].ok
    assert verify(CANCEL, [zeros, zeros], [zeros + np.float32(1e-3)], "here")[0].wrong == 100


def test_a_scalar_result():
    module = parse_module("""!A = tensor<?xf32, #diagram.array<[a]>>
!s = tensor<f32, #diagram.array<[]>>
func.func @f(%a: !A) -> !s {
  %total = diagram.reduce add %a over [a] : !A -> !s
  func.return %total : !s
}""")
    given = np.arange(9, dtype=np.float32)
    assert verify(module, [given], [np.float32(36)], "here")[0].ok
    (verdict,) = verify(module, [given], [np.float32(35)], "here")
    assert str(verdict).startswith("WRONG (here): total is 35, expected 36; max error 1.0e0;")


# -- independent roundings ----------------------------------------------------------------------------

AVERAGE = parse_module("""!X = tensor<?x?xf32, #diagram.array<[m, k]>>
!P = tensor<?x?xf8E4M3FN, #diagram.array<[m, k]>>
!V = tensor<?x?xf8E4M3FN, #diagram.array<[k, n]>>
!O = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @f(%X: !X, %V: !V) -> !O {
  %e = diagram.apply @softmax(%X) over [k] : (!X) -> !X
  %large = diagram.map (%x = %e : !X) -> !X {
    %most = arith.constant 1024.0 : f32
    %y = arith.mulf %x, %most : f32
    diagram.yield %y : f32
  }
  %P = diagram.cast %large : !X -> !P
  %A = diagram.contract %P, %V over [k] accumulate f32 : !P, !V -> !O
  %O = diagram.map (%a = %A : !O) -> !O {
    %least = arith.constant 0.0009765625 : f32
    %y = arith.mulf %a, %least : f32
    diagram.yield %y : f32
  }
  func.return %O : !O
}""")
"""Averages of numbers in 8 bits, whose weights a kernel may round before it has divided them."""


def averages(rows: int, terms: int, seed: int) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
    """Inputs, and what a kernel computes of them that rounds its weights after it has scaled them."""
    random = np.random.default_rng(seed)
    given = random.standard_normal((rows, terms)).astype(np.float32)
    values = random.standard_normal((terms, 16)).astype(ml_dtypes.float8_e4m3fn)
    weights = np.exp(given.astype(np.float64))
    scale = np.exp(random.uniform(0, 1, (rows, 1)))
    rounded = (weights * scale).astype(values.dtype).astype(np.float64) / scale
    made = rounded @ values.astype(np.float64) / weights.sum(1, keepdims=True)
    return given, values, made.astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_averages_are_verified_if_roundings_are_independent(seed: int):
    given, values, made = averages(32, 2000, seed)
    (verdict,) = verify(AVERAGE, [given, values], [made], "here")
    assert verdict.ok
    assert verdict.is_likely
    assert "if roundings are independent" in str(verdict)


def test_what_is_beyond_likely_bounds_is_not_called_wrong_but_not_verified():
    given, values, made = averages(32, 2000, 0)
    made[3, 5] += 0.2 * np.abs(made).max()
    (verdict,) = verify(AVERAGE, [given, values], [made], "here")
    assert verdict.unverifiable
    assert not verdict.is_likely


def test_another_order_of_the_values_is_no_average_that_is_verified():
    given, values, made = averages(32, 2000, 0)
    (verdict,) = verify(AVERAGE, [given, values[::-1].copy()], [made], "here")
    assert not verdict.ok


def test_short_averages_need_no_likely_bounds():
    given, values, made = averages(32, 40, 0)
    (verdict,) = verify(AVERAGE, [given, values], [made], "here")
    assert verdict.ok
    assert not verdict.is_likely


@pytest.mark.parametrize("module", [SUMS, PRODUCT], ids=["sums", "product"])
def test_likely_bounds_of_rounded_sums_hold_and_are_below_the_worst_case(module: ModuleOp):
    """Sums in f32, from left to right: the root of the number of terms, and not the number, is what they need."""
    random = np.random.default_rng(1)
    left = random.standard_normal((64, 4096)).astype(np.float32)
    right = random.standard_normal((4096, 8))
    if module is SUMS:
        inputs, made = [left], np.add.accumulate(left, 1)[:, -1]
    else:
        halves = left.astype(np.float16), right.astype(np.float16)
        products = halves[0].astype(np.float32)[:, :, None] * halves[1].astype(np.float32)
        inputs, made = list(halves), np.add.accumulate(products, 1)[:, -1]
    (worst,) = run_with_bounds(module, inputs)
    (likely,) = run_with_bounds(module, inputs, likely=True)
    error = np.abs(made - worst.value)
    assert (error <= likely.error).all()
    assert (likely.error < worst.error / 8).all()


CENTRED = parse_module("""
!X = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
func.func @centred(%X: !X) -> !X {
  %m = diagram.apply @mean(%X) over [i] : (!X) -> !r
  %Y = diagram.map (%x = %X : !X, %a = %m : !r) -> !X {
    %y = arith.subf %x, %a : f32
    diagram.yield %y : f32
  }
  func.return %Y : !X
}
""")


@pytest.mark.parametrize(("offset", "is_loose"), [(0, False), (100, False), (30000, True)])
def test_a_bound_that_is_a_good_part_of_the_result_is_called_loose(offset, is_loose):
    """What is left of a row without its mean has the roundings of the whole row."""
    given = (np.random.default_rng(0).standard_normal((6, 64)) + offset).astype(np.float32)
    result = run_function(CENTRED, [given]).results[0]
    (verdict,) = verify(CENTRED, [given], [result.astype(np.float32)], "here")
    assert verdict.ok
    assert verdict.is_loose == is_loose
    assert ("loose: half of the tolerances are above" in str(verdict)) == is_loose
