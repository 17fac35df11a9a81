"""Maxima that lag behind in a stream: what they are told from, what is kept, and results beside the plain formula."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roads import Road, attention, compiled
from treadle.compiler.pipeline import Options, pipeline, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp, ReduceOp
from treadle.dialects.diagram.lagging import skips_ones, slack_of
from treadle.passes._functions import functions, kernels
from treadle.passes._parts import part_of_kernel
from treadle.passes.streams.lagging import GROWTH, Lagging, Moved, candidates
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.ways import Way, lag

KEYS, PIECE = 640, 64
SLACK = GROWTH * np.log(2) / 0.125

LSE = """
  %m = diagram.reduce max %T over [x] : !S -> !m
  %p = diagram.map (%t = %T : !S, %r = %m : !m) -> !S {
    %distance = arith.subf %t, %r : f32
    %power = math.exp %distance : f32
    diagram.yield %power : f32
  }
  %l = diagram.reduce add %p over [x] : !S -> !m
  %P16 = diagram.cast %p : !S -> !P
  %sum = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
"""
HEAD = """
!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!V = tensor<?x64xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!A = tensor<?x64xf32, #diagram.array<[q, e]>>
"""


def program(end: str, results: str, types: str) -> str:
    """Powers of scores and their sums, and what is made of them."""
    return f"""{HEAD}
func.func @f(%Q: !Q, %K: !K, %V: !V) -> ({types}) attributes {{sizes = #diagram.sizes<q = 16384, x = 4096>}} {{
  %T = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
{LSE}{end}
  func.return {results} : {types}
}}
"""


SHARE = """
  %o = diagram.map (%a = %sum : !A, %whole = %l : !m) -> !A {
    %share = arith.divf %a, %whole : f32
    diagram.yield %share : f32
  }"""


def safe_share(factor: float) -> str:
    """One divides where a multiple of the maximum is -inf."""
    return f"""
  %o = diagram.map (%a = %sum : !A, %whole = %l : !m, %r = %m : !m) -> !A {{
    %factor = arith.constant {factor} : f32
    %one = arith.constant 1.0 : f32
    %bottom = arith.constant 0xFF800000 : f32
    %multiple = arith.mulf %r, %factor : f32
    %none = arith.cmpf oeq, %multiple, %bottom : f32
    %divisor = arith.select %none, %one, %whole : f32
    %share = arith.divf %a, %divisor : f32
    diagram.yield %share : f32
  }}"""


def of_rows(name: str, body: str) -> str:
    """A number of each row."""
    return f"""
  %{name} = diagram.map (%r = %m : !m, %whole = %l : !m) -> !m {{
{body}
    diagram.yield %y : f32
  }}"""


LOGARITHM = of_rows("n", "%log = math.log %whole : f32\n    %y = arith.addf %r, %log : f32")


def found(text: str) -> list[Lagging | Moved]:
    """What may lag in the kernels of a program, and why it may not."""
    module = parse_module(text)
    passes = pipeline(Options(machine="h100"))
    run_passes(module, passes[: [each.name for each in passes].index("hierarchy-rescale-lazily")])
    seen: list[Lagging | Moved] = []
    for kernel in (kernel for function in functions(module) for kernel in kernels(function)):
        assert kernel.schedule is not None
        for axis in kernel.schedule.stream.as_dict():
            seen += candidates(StreamPlan(part_of_kernel(kernel), axis))
    return seen


@pytest.mark.parametrize(
    ("end", "results", "types"),
    [
        (SHARE, "%o", "!A"),
        (safe_share(0.125), "%o", "!A"),
        (SHARE + LOGARITHM, "%o, %n", "!A, !m"),
        (
            SHARE + of_rows("n", "%root = math.sqrt %whole : f32\n    %y = arith.divf %root, %root : f32"),
            "%o, %n",
            "!A, !m",
        ),
    ],
)
def test_what_stays_wherever_powers_are_told_from(end: str, results: str, types: str) -> None:
    (each,) = found(program(end, results, types))
    assert isinstance(each, Lagging)
    assert each.slack == pytest.approx(GROWTH * np.log(2))


@pytest.mark.parametrize(
    ("end", "results", "types", "reason"),
    [
        ("", "%sum", "!A", "%sum is told from it"),
        (safe_share(2.0), "%o", "!A", "a choice is between what goes with it in different ways"),
        (SHARE, "%o, %l", "!A, !m", "%l is told from it"),
        (SHARE, "%o, %m", "!A, !m", "%m is told from it"),
        (SHARE + of_rows("n", "%y = math.log %whole : f32"), "%o, %n", "!A, !m", "%n is told from it"),
        (SHARE + of_rows("n", "%y = math.sin %whole : f32"), "%o, %n", "!A, !m", "'math.sin' is taken of"),
        (SHARE + of_rows("n", "%y = arith.addf %r, %whole : f32"), "%o, %n", "!A, !m", "'arith.addf' is taken of"),
    ],
)
def test_what_does_not(end: str, results: str, types: str, reason: str) -> None:
    (each,) = found(program(end, results, types))
    assert isinstance(each, Moved)
    assert reason in str(each)


def test_few_columns_are_not_worth_it() -> None:
    text = program(SHARE, "%o", "!A").replace("?x64xf16, #diagram.array<[x, e]>", "?x16xf16, #diagram.array<[x, e]>")
    assert found(text.replace("?x64xf32, #diagram.array<[q, e]>", "?x16xf32, #diagram.array<[q, e]>")) == []


def test_ways_are_equal_but_for_roundings() -> None:
    assert Way(scaled=lag(0.1 + 0.2)) == Way(scaled=lag(0.3))
    assert Way(shifted=lag(-0.0)) == Way()


# -- what is computed ---------------------------------------------------------------------------------


@cache
def road(machine: str) -> Road:
    return compiled(attention(64, 64, "f16"), machine=machine)


def climbing(step: float) -> tuple[NDArray[Any], ...]:
    """Scores of every row that climb by so much from piece to piece of 64 keys, and random values."""
    dice = np.random.default_rng(1)
    q, k = np.zeros((130, 64), np.float16), np.zeros((KEYS, 64), np.float16)
    q[:, 0] = 1
    k[:, 0] = np.arange(KEYS) // PIECE * step
    q[:, 1:], k[:, 1:] = (dice.standard_normal((len(each), 63)) / 4 for each in (q, k))
    return q, k, dice.standard_normal((KEYS, 64)).astype(np.float16)


def plain(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The formula, and the size of what it adds up."""
    scores = 0.125 * q.astype(np.float64) @ k.astype(np.float64).T
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return weights @ v.astype(np.float64), weights @ np.abs(v.astype(np.float64))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("step", [0.0, SLACK / 3, 0.99 * SLACK, 1.01 * SLACK, 3 * SLACK, -SLACK / 3, -3 * SLACK])
def test_scores_that_climb_and_fall(machine: str, step: float) -> None:
    inputs = climbing(step)
    expected, size = plain(*inputs)
    (output,) = road(machine).run(inputs)
    assert (np.abs(output.astype(np.float64) - expected) <= 4 * 2.0**-11 * size + 2.0**-11).all()


@pytest.mark.parametrize("size", [2.0**k for k in (4, 8, 12, 14)])
def test_scores_of_any_size(size: float) -> None:
    """Beyond 2^20 slacks a maximum does not lag, for the slope of its powers is another one there."""
    dice = np.random.default_rng(2)
    q, k = ((dice.integers(-2, 3, (rows, 64)) * size).astype(np.float16) for rows in (130, KEYS))
    v = dice.standard_normal((KEYS, 64)).astype(np.float16)
    expected, of = plain(q, k, v)
    (output,) = road("h100").run((q, k, v))
    assert (np.abs(output.astype(np.float64) - expected) <= 4 * 2.0**-11 * of + 2.0**-11).all()


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [3, KEYS - 3])
def test_what_is_no_number_is_told_as_in_the_formula(number: float, place: int) -> None:
    q, k, v = climbing(SLACK / 3)
    k[place, 0] = number
    with np.errstate(invalid="ignore"):
        expected, _ = plain(q, k, v)
    (output,) = road("h100").run((q, k, v))
    assert (np.isnan(output) == np.isnan(expected)).all()
    there = ~np.isnan(expected)
    assert np.allclose(output[there], expected[there], atol=0.01)


def test_what_is_printed_multiplies_seldom() -> None:
    """The accumulators, of 64 columns, in all loops; the sum of a row goes on with each of its terms."""
    made = road("h100")
    maps = [op for kernel in made.kernels for op in kernel.walk() if isinstance(op, MapOp) and skips_ones(op)]
    assert maps
    assert all(op.result.name_hint and op.result.name_hint.startswith("A_sum") for op in maps)
    assert made.text.count("!= 1.0f) {") >= len(maps)


def test_without_the_pass_maxima_follow_at_once() -> None:
    passes = tuple(each for each in pipeline(Options(machine="h100")) if each.name != "hierarchy-rescale-lazily")
    module = parse_module(attention(64, 64, "f16"))
    run_pipeline(module, Options(machine="h100", passes=passes))
    assert not any(isinstance(op, MapOp) and skips_ones(op) for op in module.walk())


# -- the attributes -----------------------------------------------------------------------------------

ATTRIBUTES = """
!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!m = tensor<4xf32, #diagram.array<[q]>>
func.func @f(%S: !S) -> (!m, !S) {
  %m = diagram.reduce max %S over [x] {diagram.slack = 2.0 : f32} : !S -> !m
  %y = diagram.map (%s = %S : !S, %f = %m : !m) -> !S attributes {diagram.skips_ones} {
    %p = arith.mulf %s, %f : f32
    diagram.yield %p : f32
  }
  func.return %m, %y : !m, !S
}
"""


def test_attributes_come_back() -> None:
    once = parse_module(ATTRIBUTES)
    again = parse_module(str(once))
    assert once.is_structurally_equivalent(again)
    (reduce,) = [op for op in again.walk() if isinstance(op, ReduceOp)]
    (map,) = [op for op in again.walk() if isinstance(op, MapOp)]
    assert slack_of(reduce) == 2.0
    assert skips_ones(map)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reduce max", "reduce add", "a max or a min in f32 may lag"),
        ("2.0 : f32", "0.0 : f32", "is a finite number above zero"),
        ("2.0 : f32", "0x7F800000 : f32", "is a finite number above zero"),
        ("2.0 : f32", "2 : i32", "is a finite number above zero"),
        (
            "arith.mulf %s, %f",
            "arith.addf %s, %f",
            "only a product of an element of the result's type and a factor may",
        ),
        (
            "arith.mulf %s, %f",
            "arith.mulf %f, %s",
            "only a product of an element of the result's type and a factor may",
        ),
    ],
)
def test_attributes_that_say_nothing_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        parse_module(ATTRIBUTES.replace(old, new)).verify()
