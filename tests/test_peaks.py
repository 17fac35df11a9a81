"""Powers that are told from their peak: relative to a maximum that has other numbers in it, or raised by a constant.
One stream makes their sums, of which no row overflows that does not in the plain form, and rare values give what the
formula gives at every level."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from test_safe_rows import expanded, streams_of
from test_torch_operations import report_of
from test_undefined_rows import CONDITIONS, NEUTRAL, check_levels, inputs

import treadle
import treadle.language as tl
from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, pipeline, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp
from treadle.estimated import estimate
from treadle.passes.expressions.distances import peak_of
from treadle.passes.expressions.infinities import may_be_infinite
from treadle.passes.expressions.scalars import Leaf

EXAMPLE = (Path(__file__).parents[1] / "examples" / "attention_sink.mlir").read_text(encoding="utf-8")
L, K = array("i32", b=None), array("f32", b=None)
R, WIDE = array("f32", b=None, q=None), array("f32", b=None, q=None, e=16)
SINKS = ([0.5, -np.inf, np.inf], [100, -100, np.nan], [-np.inf, -np.inf, -np.inf])


def program(kind: str, form: str, condition: str = "", power: str = "exp") -> str:
    """The sum of powers relative to an extremum of a row and of a number `k`, and values weighted by shares; of `sink`
    `k` has a share, too, and of `twice` the extremum holds a constant as well."""
    way = "%a, %b" if kind == "max" else "%b, %a"
    sink_way = "%k, %b" if kind == "max" else "%b, %k"
    given = f" with (len = %L : {L})" if "len" in condition else ""
    row, values = array("f32", b=None, q=None, x=None), array("f32", b=None, x=None, e=16)
    of, op = "%W" if condition else "%X", "maximumf" if kind == "max" else "minimumf"
    return f"""
func.func @f(%X: {row}, %V: {values}, %L: {L}, %K: {K}) -> ({R}, {WIDE}) {{
  {f'%W = diagram.where %X if "{condition}"{given} : {row}' if condition else ""}
  %m = diagram.reduce {kind} {of} over [x] : {row} -> {R}
  %M = diagram.map (%a = %m : {R}, %k = %K : {K}) -> {R} {{
    %c = arith.constant 0.25 : f32
    %w = arith.{op} %a, %k : f32
    %z = arith.{op} %c, %w : f32
    diagram.yield {"%z" if form == "twice" else "%w"} : f32
  }}
  %e = diagram.map (%a = {of} : {row}, %b = %M : {R}) -> {row} {{
    %d = arith.subf {way} : f32
    %y = math.{power} %d : f32
    diagram.yield %y : f32
  }}
  %l = diagram.reduce add %e over [x] : {row} -> {R}
  %D = diagram.map (%a = %l : {R}, %k = %K : {K}, %b = %M : {R}) -> {R} {{
    %d = arith.subf {sink_way} : f32
    %y = math.{power} %d : f32
    %s = arith.addf %a, %y : f32
    diagram.yield {"%a" if form == "bare" else "%s"} : f32
  }}
  %P = diagram.map (%a = %e : {row}, %b = %D : {R}) -> {row} {{
    %y = arith.divf %a, %b : f32
    diagram.yield %y : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {row}, {values} -> {WIDE}
  func.return %l, %O : {R}, {WIDE}
}}
"""


FORMS = ("sink", "bare", "twice")


def given_to(kind: str, length: int, seed: int) -> tuple[np.ndarray, ...]:
    """Rows of nothing but the neutral element are among them, sinks of all kinds, values that are no numbers."""
    rows, values, lengths = inputs(kind, length)
    values[0, 0, 3], values[1, -1, 5] = np.inf, np.nan
    return rows, values, lengths, np.array(SINKS[seed], np.float32)


@pytest.mark.sample(6)
@pytest.mark.parametrize("length", [4, 300])
@pytest.mark.parametrize("power", ["exp", "exp2"])
@pytest.mark.parametrize("condition", [*CONDITIONS, "2 * x <= q"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_an_extremum_with_other_numbers_at_every_level(
    kind: str, form: str, condition: str, power: str, length: int
) -> None:
    text = program(kind, form, condition, power)
    road = compiled(text)
    for seed in range(len(SINKS)):
        given = given_to(kind, length, seed)
        check_levels(parse_module(text), pipeline(Options()), given)
        for verdict in road.verdicts(given):
            assert not verdict.wrong, verdict


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_one_stream_makes_them(kind: str, form: str, machine: str) -> None:
    assert streams_of(expanded(program(kind, form), machine)) == 1
    assert streams_of(expanded(program(kind, form, "x <= q"), machine)) == 1


def test_rows_that_no_formula_tells_take_a_stream_more() -> None:
    """Of a row without elements a peak may be no number, where the sum is 0."""
    assert streams_of(expanded(program("max", "sink", "2 * x <= q"), "a100")) > 1


# -- attention with a sink, as people write it ---------------------------------------------------------


@treadle.kernel("b h q d, b h x d, b h x e, h -> b h q e", static="d e")
def in_python(Q: tl.Array, K: tl.Array, V: tl.Array, sink: tl.Array) -> tl.Array:
    S = tl.contract(Q, K, over="d") * 0.125
    m = tl.maximum(tl.max(S, over="x"), sink)
    E = tl.exp(S - m)
    return tl.contract(E / (tl.sum(E, over="x") + tl.exp(sink - m)), V, over="x")


def in_torch(way: str) -> Callable[..., torch.Tensor]:
    """With the sink behind the scores, or in the maximum, or in the sum alone."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-1, -2)).float() * 0.125
        sink = sinks[None, :, None, None]
        if way == "concatenated":
            more = sink.expand(*scores.shape[:-1], 1)
            return torch.softmax(torch.cat([scores, more], -1), -1)[..., :-1].to(v.dtype) @ v
        largest = scores.amax(-1, keepdim=True)
        if way == "in the maximum":
            largest = torch.maximum(largest, sink)
        powers = torch.exp(scores - largest)
        shares = powers / (powers.sum(-1, keepdim=True) + torch.exp(sink - largest))
        return shares.to(v.dtype) @ v

    return attend


WAYS = ("concatenated", "in the maximum", "in the sum")


@cache
def time_with_a_sink(way: str, machine: str) -> float:
    torch.manual_seed(0)
    torch._dynamo.reset()
    q, k, v = (torch.randn(2, 4, 200, 64, dtype=torch.float16) for _ in range(3))
    report = report_of(in_torch(way), q, k, v, torch.randn(4), machine=machine, backend="interpreter")
    (taken,) = report.taken
    laws = [step.law for step in taken.kernel.derivation if step.rewrite == "streaming"]
    assert laws == ["associativity of max", "cascade", "cascade"], way
    assert taken.kernel.estimate.kernels == 1
    return taken.kernel.estimate.time_us or np.inf


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("ways", combinations(WAYS, 2), ids=" and ".join)
def test_a_sink_costs_the_same_however_it_is_written(ways: tuple[str, str], machine: str) -> None:
    times = [time_with_a_sink(way, machine) for way in ways]
    assert max(times) <= 1.05 * min(times)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_long_row_costs_the_same_with_a_sink_in_its_maximum(machine: str) -> None:
    sizes = {"b": 2, "h": 16, "q": 4096, "x": 4096}
    text = re.sub(r"sizes<[^>]*>", f"sizes<{', '.join(f'{a} = {n}' for a, n in sizes.items())}>", EXAMPLE)
    program = in_python.trace(["f16", "f16", "f16", "f32"], {**sizes, "d": 64, "e": 64}, in_python.static)
    plain, sink = (estimate(module, machine=machine) for module in (parse_module(text), program))
    assert sink.kernels == plain.kernels == 1
    assert sink.time_us is not None
    assert plain.time_us is not None
    assert sink.time_us <= 1.03 * plain.time_us


# -- raised by a constant ------------------------------------------------------------------------------


def raised(by: float, kind: str) -> str:
    """The sum of powers that are raised by a constant, of values with them, and of values with their shares."""
    text = program(kind, "bare")
    way = "%a, %b" if kind == "max" else "%b, %a"
    old, new = (
        f"%d = arith.subf {way} : f32\n    %y = math.exp %d",
        (
            f"%c = arith.constant {by} : f32\n    %u = arith.subf {way} : f32\n"
            "    %d = arith.addf %u, %c : f32\n    %y = math.exp %d"
        ),
    )
    text = text.replace("%b = %M", "%b = %m").replace(old, new, 1)
    row, values = array("f32", b=None, q=None, x=None), array("f32", b=None, x=None, e=16)
    last = f"%S = diagram.contract %e, %V over [x] accumulate f32 : {row}, {values} -> {WIDE}\n  func.return %l, %O, %S"
    return (
        text.replace("func.return %l, %O", last)
        .replace(f"({R}, {WIDE}) {{", f"({R}, {WIDE}, {WIDE}) {{")
        .replace(f"%O, %S : {R}, {WIDE}", f"%O, %S : {R}, {WIDE}, {WIDE}")
    )


@cache
def raised_road(by: float, kind: str) -> Road:
    return compiled(raised(by, kind))


@pytest.mark.parametrize("kind", NEUTRAL)
@pytest.mark.parametrize("by", [5.0, 80.0, 85.0, 1000.0, -80.0])
def test_no_share_overflows_that_is_one(by: float, kind: str) -> None:
    """Of shares the constant is none. A sum is what the constant makes of it, infinite if that is: no accumulator that
    is infinite is repaired."""
    dice, way = np.random.default_rng(0), 1 if kind == "max" else -1
    rows = dice.standard_normal((1, 6, 300)).astype(np.float32)
    rows[0, 1, 200:] += way * 300
    rows[0, 2] *= 100
    rows[0, 3], rows[0, 3, 0], rows[0, 3, -1] = -way * 10000, 0, way * 3000
    values = np.abs(dice.standard_normal((1, 300, 16))).astype(np.float32) * 10
    sums, means, weighted = raised_road(by, kind).run((rows, values, np.zeros(1, np.int32), np.zeros(1, np.float32)))
    with np.errstate(over="ignore", invalid="ignore"):
        distances = way * rows.astype(np.float64)
        powers = np.exp(distances - distances.max(-1, keepdims=True))
        height = np.exp(np.float64(by))
        np.testing.assert_allclose(sums, (height * powers.sum(-1)).astype(np.float32), rtol=1e-5)
        np.testing.assert_allclose(weighted, (height * (powers @ values)).astype(np.float32), rtol=1e-5)
        shares = (powers / powers.sum(-1, keepdims=True)) @ values
        # Of powers that f32 has no number for the plain form has no shares either.
        np.testing.assert_allclose(means, np.full_like(shares, np.nan) if by > 88 else shares, rtol=1e-5)


def test_a_constant_of_both_is_folded_away() -> None:
    module = parse_module(raised(80.0, "max"))
    run_pipeline(module, Options(), last="diagram-hoist-factors")
    divided = [op for op in module.walk() if isinstance(op, MapOp) and op.result.name_hint == "O"]
    (last,) = divided
    assert {value.name_hint for value in last.inputs} == {"O_sum", "l_sum", "extent_x"}


# -- what is proved ------------------------------------------------------------------------------------


def test_bounds_of_peaks() -> None:
    body = f"""
func.func @f(%m: {R}, %k: {K}, %j: {K}) {{
  %M = diagram.map (%a = %m : {R}, %b = %k : {K}, %c = %j : {K}) -> {R} {{
    %n = arith.maximumf %a, %b : f32
    %y = arith.maximumf %c, %n : f32
    diagram.yield %y : f32
  }}
  %below = diagram.map (%a = %m : {R}, %b = %M : {R}) -> {R} {{
    %c = arith.constant 2.0 : f32
    %d = arith.subf %a, %b : f32
    %u = arith.addf %d, %c : f32
    %y = math.exp2 %u : f32
    diagram.yield %y : f32
  }}
  %above = diagram.map (%a = %m : {R}, %b = %M : {R}) -> {R} {{
    %d = arith.subf %b, %a : f32
    %y = math.exp2 %d : f32
    diagram.yield %y : f32
  }}
  func.return
}}
"""
    known = {r.name_hint: Leaf(r) for op in parse_module(body).walk() for r in op.results if r.name_hint}
    assert peak_of(known["below"]) == 4
    assert not may_be_infinite(known["below"])
    assert peak_of(known["above"]) is None
    assert may_be_infinite(known["above"])
