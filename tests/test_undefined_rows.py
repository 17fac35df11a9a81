"""Rows that have no number in the formula, because all their elements are the neutral element of their extremum: -inf
under a maximum, +inf under a minimum. At every level they are NaN, as in the formula, and rows without an element are
what a sum of nothing is, whether a condition leaves none or an axis has none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.condition import read_condition
from treadle.dialects.diagram.presence import stretches
from treadle.runtime.interpreter import entry_function, run_function, run_with_bounds
from treadle.runtime.verify import compare

NEUTRAL = {"max": -np.inf, "min": np.inf}
CONDITIONS = ("", "x <= q", "x < len[b]", "q < len[b]", "x <= q and q < x + 3", "x < len[b] or q <= x")
R, WIDE, L = array("f32", b=None, q=None), array("f32", b=None, q=None, e=16), array("i32", b=None)


def program(kind: str, condition: str = "", x: int | None = None) -> str:
    """The sum of the powers of how far the elements of a row are from its extremum, the sum of values weighted so, and
    their mean."""
    way = "%a, %b" if kind == "max" else "%b, %a"
    given = f" with (len = %L : {L})" if "len" in condition else ""
    row = array("f32", b=None, q=None, x=x)
    rows = f'%W = diagram.where %X if "{condition}"{given} : {row}' if condition else ""
    of = "%W" if condition else "%X"
    values = array("f32", b=None, x=x, e=16)
    return f"""
func.func @f(%X: {row}, %V: {values}, %L: {L}) -> ({R}, {WIDE}, {WIDE}) {{
  {rows}
  %m = diagram.reduce {kind} {of} over [x] : {row} -> {R}
  %e = diagram.map (%a = {of} : {row}, %b = %m : {R}) -> {row} {{
    %d = arith.subf {way} : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }}
  %l = diagram.reduce add %e over [x] : {row} -> {R}
  %S = diagram.contract %e, %V over [x] accumulate f32 : {row}, {values} -> {WIDE}
  %P = diagram.map (%a = %e : {row}, %b = %l : {R}) -> {row} {{
    %y = arith.divf %a, %b : f32
    diagram.yield %y : f32
  }}
  %M = diagram.contract %P, %V over [x] accumulate f32 : {row}, {values} -> {WIDE}
  func.return %l, %S, %M : {R}, {WIDE}, {WIDE}
}}
"""


def inputs(kind: str, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of nothing but the neutral element, of nothing else at their begin or end, or with NaN; the second and third
    sequence have fewer elements, or none."""
    dice, neutral = np.random.default_rng(length), np.float32(NEUTRAL[kind])
    rows = dice.standard_normal((3, 9, length)).astype(np.float32)
    rows[:, 0] = rows[:, 1, :-1] = rows[:, 2, 1:] = rows[:, 3, : length // 2 + 1] = rows[:, 8, :2] = neutral
    rows[:, 4], rows[:, 4, length // 2] = neutral, np.nan
    rows[:, 5], rows[:, 6, 0] = neutral, -neutral
    values = dice.standard_normal((3, length, 16)).astype(np.float32)
    return rows, values, np.array([length, 2, 0], np.int32)


def check_emulated(road: Road, given: tuple[Any, ...]) -> None:
    for verdict in road.verdicts(given):
        assert not verdict.wrong, verdict
        assert verdict.unchecked == 0, verdict


def check_levels(module: ModuleOp, passes: Iterable[ArgSpec], given: tuple[Any, ...]) -> None:
    """The interpreter says the same after each pass."""
    types = entry_function(module).function_type.outputs
    wanted = run_with_bounds(module, given)
    for spec in passes:
        run_passes(module, [spec])
        if spec.name == "convert-hierarchy-to-cuda":
            return
        for type, got, reference in zip(types, run_function(module, given).results, wanted, strict=True):
            verdict = compare(spec.name, type, np.asarray(got), reference, "interpreter")
            assert not verdict.wrong, verdict


@pytest.mark.sample(6)
@pytest.mark.parametrize("length", [4, 300])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_a_row_without_a_number_at_every_level(kind: str, condition: str, length: int) -> None:
    text, given = program(kind, condition), inputs(kind, length)
    check_levels(parse_module(text), pipeline(Options()), given)
    road = compiled(text)
    check_emulated(road, given)
    sums, weighted, means = road.run(given)
    if not condition:
        assert np.isnan(sums[:, [0, 5]]).all()
        assert np.isnan(weighted[:, [0, 5]]).all()
        assert np.isnan(means[:, [0, 5]]).all()
    if condition in ("x < len[b]", "q < len[b]"):
        assert (sums[2] == 0).all()
        assert (weighted[2] == 0).all()
        assert (means[2] == 0).all()


@pytest.mark.sample(4)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_a_mean_alone(kind: str, condition: str) -> None:
    """A quotient of two sums is 0/0 by itself, unless it is guarded for rows that a condition leaves empty."""
    text, given = program(kind, condition), inputs(kind, 4)
    text = text.replace(f"-> ({R}, {WIDE}, {WIDE})", f"-> {WIDE}")
    text = text.replace(f"return %l, %S, %M : {R}, {WIDE}, {WIDE}", f"return %M : {WIDE}")
    road = compiled(text)
    check_emulated(road, given)
    (means,) = road.run(given)
    assert np.isnan(means[0, 0]).all()
    assert np.isnan(means[0, 5]).all() or condition == "q < len[b]"
    if condition in ("x < len[b]", "q < len[b]"):
        assert (means[2] == 0).all()


@pytest.mark.parametrize("kind", NEUTRAL)
def test_an_axis_without_an_element(kind: str) -> None:
    rows, values, lengths = inputs(kind, 4)
    for result in compiled(program(kind)).run((rows[:, :, :0].copy(), values[:, :0].copy(), lengths)):
        assert (result == 0).all()


@pytest.mark.parametrize("condition", ["", "x < len[b]"])
@pytest.mark.parametrize("kind", NEUTRAL)
def test_parts_of_a_row_are_merged_to_no_number(kind: str, condition: str) -> None:
    """Where all parts are neutral; a part that is beside others adds nothing."""
    module = parse_module(program(kind, condition, 100))
    passes = [
        ArgSpec(spec.name, {"parts": (3,)}) if spec.name == "hierarchy-split-streams" else spec
        for spec in pipeline(Options())
    ]
    check_levels(module, passes, inputs(kind, 100))
    assert "x_part" in str(module)


def test_a_condition_on_data_along_the_axis_has_no_stretches() -> None:
    assert stretches([read_condition("x <= q")], "x") is not None
    assert stretches([read_condition("2 * x <= q")], "x") is None
    assert stretches([read_condition("x <= q")], "x", ("x", "q")) is None


BEYOND = [
    ("x < w", {"w": -(2**31)}),
    ("x <= q + w", {"w": -(2**31)}),
    ("x <= q + w", {"w": 2**31 - 1}),
    ("x >= q - w", {"w": -(2**31)}),
    ("x >= v and x <= w", {"v": 2**31 - 1, "w": -(2**31)}),
    ("3 * v + w <= 5", {"v": 2**30, "w": 7}),
]


@pytest.mark.parametrize(("condition", "data"), BEYOND)
def test_rows_that_data_beyond_32_bits_leave_empty_or_full(condition: str, data: dict[str, int]) -> None:
    """Whether a row has an element is known of any numbers that a condition adds up."""
    rows, values, _ = inputs("max", 4)
    given = (rows, values, *(np.int32(each) for each in data.values()))
    check_levels(parse_module(with_data(condition, data)), pipeline(Options()), given)


def test_rows_that_data_beyond_32_bits_leave_empty_in_a_kernel() -> None:
    rows, values, _ = inputs("max", 4)
    check_emulated(compiled(with_data("x < w", {"w": 0})), (rows, values, np.int32(-(2**31))))


def with_data(condition: str, data: Iterable[str]) -> str:
    """The program with a condition on scalars of these names."""
    named = ", ".join(f"{name} = %{name} : i32" for name in data)
    text = program("max", "x <= q").replace('"x <= q"', f'"{condition}" with ({named})')
    return text.replace(f"%L: {L})", f"{', '.join(f'%{name}: i32' for name in data)})")


def test_what_a_law_makes_of_rows_that_nobody_tells() -> None:
    """Of a row of -inf, of which a condition on data leaves some, nothing is said; a NaN of its own makes every element
    NaN. A law's were said to be NaN either way, and a kernel's zeros were called wrong."""
    X, S = array("f32", q=None, x=None), array("i32", x=None)
    module = parse_module(f"""
func.func @f(%X: {X}, %s: {S}) -> {X} {{
  %W = diagram.where %X if "s[x] == 0" with (s = %s : {S}) : {X}
  %P = diagram.apply @softmax(%W) over [x] : ({X}) -> {X}
  func.return %P : {X}
}}
""")
    rows = np.zeros((3, 5), np.float32)
    rows[0], rows[1, 2] = -np.inf, np.nan
    (shares,) = run_with_bounds(module, [rows, np.array([0, 0, 0, 1, 1], np.int32)])
    assert np.isinf(shares.error[0, :3]).all()
    assert np.isnan(shares.value[1, :3]).all()
    assert not shares.error[1, :3].any()
    assert np.isfinite(shares.error[2]).all()
