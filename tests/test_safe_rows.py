"""Rows of nothing but the neutral element of their extremum, which a program makes zero by a choice: `softmax` where a
mask of -inf may leave nothing (PyTorch's `_safe_softmax`), and shares beside a sink. One stream makes them, and they
are what the formula says at every level."""

from __future__ import annotations

import numpy as np
import pytest
from test_undefined_rows import CONDITIONS, NEUTRAL, check_emulated, check_levels, inputs
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import array, compiled
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import StreamOp

L, K = array("i32", b=None), array("f32", b=None)
R, WIDE = array("f32", b=None, q=None), array("f32", b=None, q=None, e=16)

CHOICES = {
    "share": ("%none, %zero, %share", "%b"),
    "negated": ("%some, %share, %zero", "%b"),
    "power": ("%none, %zero, %a", "%c"),
    "sink": ("%none, %zero, %a", "%k"),
}
"""What is chosen, and what divides: the share itself is chosen, or the power and one in place of their sum."""


def program(kind: str, form: str, condition: str = "", x: int | None = None) -> str:
    """Values weighted by shares of a row, which are 0 where the row is nothing but the neutral element; of `sink`
    another number `k` has a share, too."""
    way, sink_way = ("%a, %m", "%k, %r") if kind == "max" else ("%m, %a", "%r, %k")
    bottom = "0xFF800000" if kind == "max" else "0x7F800000"
    given = f" with (len = %L : {L})" if "len" in condition else ""
    row, values = array("f32", b=None, q=None, x=x), array("f32", b=None, x=x, e=16)
    of = "%W" if condition else "%X"
    chosen, divisor = CHOICES[form]
    divided = divisor if form != "sink" else "%all"
    return f"""
func.func @f(%X: {row}, %V: {values}, %L: {L}, %K: {K}) -> {WIDE} {{
  {f'%W = diagram.where %X if "{condition}"{given} : {row}' if condition else ""}
  %m = diagram.reduce {kind} {of} over [x] : {row} -> {R}
  %e = diagram.map (%a = {of} : {row}, %m_ = %m : {R}) -> {row} {{
    %d = arith.subf {way.replace("%m", "%m_")} : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }}
  %l = diagram.reduce add %e over [x] : {row} -> {R}
  %P = diagram.map (%a = %e : {row}, %b = %l : {R}, %m_ = %m : {R}, %k_ = %K : {K}) -> {row} {{
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %bottom = arith.constant {bottom} : f32
    %none = arith.cmpf oeq, %m_, %bottom : f32
    %some = arith.cmpf une, %m_, %bottom : f32
    %c = arith.select %none, %one, %b : f32
    %r = arith.select %none, %k_, %m_ : f32
    %s = arith.subf {sink_way.replace("%k", "%k_")} : f32
    %extra = math.exp %s : f32
    %sum = arith.select %none, %zero, %b : f32
    %all = arith.addf %sum, %extra : f32
    {f"%share = arith.divf %a, {divided} : f32" if "%share" in chosen else ""}
    %p = arith.select {chosen} : f32
    {"" if "%share" in chosen else f"%q = arith.divf %p, {divided} : f32"}
    diagram.yield {"%p" if "%share" in chosen else "%q"} : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {row}, {values} -> {WIDE}
  func.return %O : {WIDE}
}}
"""


def given_to(kind: str, length: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Sinks are finite, or infinite either way; values have infinities, too, which zeros turn into no number."""
    rows, values, lengths = inputs(kind, length)
    values[0, 0, 3], values[1, -1, 5] = np.inf, np.nan
    sinks = np.array([0.5, -np.inf, np.inf], np.float32)
    return rows, values, lengths, np.roll(sinks, seed)


def streams_of(module: ModuleOp) -> int:
    return sum(isinstance(op, StreamOp) for op in module.walk())


@pytest.mark.sample(10)
@pytest.mark.parametrize("length", [4, 300])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("form", CHOICES)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_rows_of_nothing_at_every_level(kind: str, form: str, condition: str, length: int) -> None:
    text = program(kind, form, condition)
    road = compiled(text)
    for seed in range(3 if form == "sink" else 1):
        given = given_to(kind, length, seed)
        check_levels(parse_module(text), pipeline(Options()), given)
        assert not any(verdict.wrong for verdict in road.verdicts(given))
        if not condition:
            np.testing.assert_allclose(road.run(given)[0], formula(kind, form, *given), rtol=1e-5, atol=1e-5)


def formula(
    kind: str, form: str, rows: np.ndarray, values: np.ndarray, lengths: np.ndarray, sinks: np.ndarray
) -> np.ndarray:
    """What NumPy says."""
    way = 1 if kind == "max" else -1
    rows, sinks = way * rows.astype(np.float64), way * sinks.astype(np.float64)[:, None, None]
    with np.errstate(all="ignore"):
        most = rows.max(-1, keepdims=True)
        if form == "sink":
            power = np.where(most == -np.inf, 0, np.exp(rows - most))
            extra = np.exp(sinks - np.where(most == -np.inf, sinks, most))
            shares = power / (power.sum(-1, keepdims=True) + extra)
        else:
            power = np.exp(rows - most)
            shares = np.where(most == -np.inf, 0, power / power.sum(-1, keepdims=True))
        return np.einsum("bqx,bxe->bqe", shares, values.astype(np.float64))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("form", CHOICES)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_one_stream_makes_them(kind: str, form: str, machine: str) -> None:
    assert streams_of(expanded(program(kind, form), machine)) == 1


def expanded(text: str, machine: str) -> ModuleOp:
    module = parse_module(text)
    for spec in pipeline(Options(machine=machine)):
        run_passes(module, [spec])
        if spec.name == "hierarchy-expand-streams":
            break
    return module


@pytest.mark.parametrize("form", CHOICES)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_parts_of_such_rows_are_merged(kind: str, form: str) -> None:
    module = parse_module(program(kind, form, "", 100))
    passes = [
        ArgSpec(spec.name, {"parts": (3,)}) if spec.name == "hierarchy-split-streams" else spec
        for spec in pipeline(Options())
    ]
    check_levels(module, passes, given_to(kind, 100))


def test_another_choice_takes_a_stream_of_its_own() -> None:
    """What is chosen where the row is nothing is not zero: it counts, and no number stands for the maximum then."""
    text = program("max", "share").replace("%zero = arith.constant 0.0", "%zero = arith.constant 7.0")
    road = compiled(text)
    check_emulated(road, inputs("max", 300)[:2] + given_to("max", 300)[2:])
    assert streams_of(expanded(text, "a100")) == 2
