"""A sum of powers and more (the share of a sink) that divides what is summed, of which a condition may leave nothing:
rows without an element are 0 at every level, whatever the sink is, and the others what the plain form says."""

from __future__ import annotations

import numpy as np
import pytest
from test_undefined_rows import check_emulated, check_levels

from roads import array, compiled
from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.source import parse_module

L, K = array("i32", b=None), array("f32", b=None)
ROWS, R, V = array("f32", b=None, q=None, x=None), array("f32", b=None, q=None), array("f32", b=None, x=None, e=16)
OUT = array("f32", b=None, q=None, e=16)
SINKS = np.array([0.5, -np.inf, np.inf, np.nan], np.float32)


def program(condition: str, of_sum: str | None = None) -> str:
    """Values weighted by powers, which are divided by their sum and the power of a sink; `of_sum` is another condition
    for what is summed."""
    given = f" with (len = %L : {L})"
    summed = "" if of_sum is None else f'%d = diagram.where %e if "{of_sum}"{given if "len" in of_sum else ""} : {ROWS}'
    return f"""
func.func @f(%X: {ROWS}, %V: {V}, %L: {L}, %K: {K}) -> {OUT} {{
  %W = diagram.where %X if "{condition}"{given if "len" in condition else ""} : {ROWS}
  %m = diagram.reduce max %W over [x] : {ROWS} -> {R}
  %e = diagram.map (%a = %W : {ROWS}, %b = %m : {R}) -> {ROWS} {{
    %d = arith.subf %a, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }}
  {summed}
  %l = diagram.reduce add {"%e" if of_sum is None else "%d"} over [x] : {ROWS} -> {R}
  %P = diagram.map (%a = %e : {ROWS}, %b = %l : {R}, %c = %m : {R}, %k = %K : {K}) -> {ROWS} {{
    %s = arith.subf %k, %c : f32
    %y = math.exp %s : f32
    %n = arith.addf %b, %y : f32
    %p = arith.divf %a, %n : f32
    diagram.yield %p : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {ROWS}, {V} -> {OUT}
  func.return %O : {OUT}
}}
"""


def inputs(length: int, seed: int) -> tuple[np.ndarray, ...]:
    """Each sink beside a sequence without an element, a short one and a whole one."""
    dice = np.random.default_rng(seed)
    lengths = np.repeat(np.array([0, 2, length], np.int32), len(SINKS))
    rows = dice.standard_normal((len(lengths), 5, length)).astype(np.float32)
    values = dice.standard_normal((len(lengths), length, 16)).astype(np.float32)
    return rows, values, lengths, np.tile(SINKS, 3)


@pytest.mark.sample(3)
@pytest.mark.parametrize("length", [3, 200])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", ["x < len[b]", "x <= q - 2", "x < len[b] and x <= q"])
def test_a_sink_beside_what_a_condition_leaves(condition: str, machine: str, length: int) -> None:
    text, given = program(condition), inputs(length, length)
    check_levels(parse_module(text), pipeline(Options(machine)), given)
    road = compiled(text, machine=machine)
    assert "past the sum %O over [x]" in road.text
    assert "a further stream" not in road.text
    check_emulated(road, given)
    (result,) = road.run(given)
    if "len" in condition:
        assert (result[:4] == 0).all()
    else:
        assert (result[:, :2] == 0).all()
    assert np.isnan(result[-1, 3:]).all()


@pytest.mark.parametrize(("condition", "of_sum"), [("x <= q", "x <= q - 2"), ("x < len[b]", "x <= q")])
def test_a_sum_of_other_elements_tells_nothing(condition: str, of_sum: str) -> None:
    """It may be zero in a row that has elements, and above zero in one that has none. No accumulator follows what it
    divides either: with an infinite sink, the ratio of before and after is no number, and the plain form 0."""
    road, given = compiled(program(condition, of_sum)), inputs(5, 1)
    assert "stays in the sum %O" in road.text
    for verdict in road.verdicts(given):
        assert not verdict.wrong, verdict
    (result,) = road.run(given)
    assert (result[given[3] == np.inf] == 0).all()


def test_a_sum_that_may_be_zero_tells_nothing() -> None:
    """Of powers far below their peak."""
    far = "%far = arith.constant 200.0 : f32\n    %n = arith.subf %a, %far : f32\n    %d = arith.subf %n, %b"
    text = program("x < len[b]").replace("%d = arith.subf %a, %b", far)
    assert "stays in the sum %O" in compiled(text).text
