"""Maxima that include other numbers, and lag behind all the same: what may be told from them, and what is computed
beside the formula in float64, whatever the numbers are and wherever scores climb past them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_lagging import found
from test_undefined_rows import check_levels
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.source import parse_module
from treadle.passes.streams.lagging import GROWTH, Lagging, Moved
from treadle.passes.streams.ways import LAG, Move, Moves, Way
from treadle.runtime.backend import has_host_compiler

Array = NDArray[Any]

K, L = array("f32", q=None), array("i32", q=None)
R, ROWS = array("f32", q=None), array("f32", q=None, x=None)
V, WIDE = array("f32", x=None, e=32), array("f32", q=None, e=32)

LARGEST = {
    "in the sum": "%w = arith.maximumf %a, %k : f32",
    "one": "%w = arith.maximumf %a, %k : f32",
    "nested": "%n = arith.maximumf %k, %half : f32\n    %w = arith.maximumf %n, %a : f32",
    "by hand": "%w = arith.maximumf %a, %k : f32",
}
"""What powers are told from, of the maximum of a row and another number of it. By hand, they are told from the maximum
of the row, and what they add up to is brought to the other; in the sum, all is told from that of the row."""


def of_rows(name: str, body: str) -> str:
    """A number of each row, told from its maxima `%a` and `%b`, its sum `%l` and the other number `%k`."""
    return f"""
  %{name} = diagram.map (%a = %m : {R}, %b = %M : {R}, %l = %sum : {R}, %k = %K : {K}) -> {R} {{
    {body}
    diagram.yield %y : f32
  }}"""


def program(largest: str = "one", more: str = "", results: str = "%O", types: str = WIDE, condition: str = "") -> str:
    """A softmax with a share for another number, relative to a maximum that may include it."""
    given = f" with (len = %L : {L})" if "len" in condition else ""
    scores, most = ("%W" if condition else "%X"), ("%m" if largest == "in the sum" else "%M")
    peak, bring, part = ("%m", BROUGHT, "%g") if largest == "by hand" else (most, "", "%l")
    return f"""
func.func @f(%X: {ROWS}, %V: {V}, %K: {K}, %L: {L}) -> ({types}) attributes {{sizes = #diagram.sizes<q = 9, x = 96>}} {{
  {f'%W = diagram.where %X if "{condition}"{given} : {ROWS}' if condition else ""}
  %m = diagram.reduce max {scores} over [x] : {ROWS} -> {R}
  %M = diagram.map (%a = %m : {R}, %k = %K : {K}) -> {R} {{
    %half = arith.constant 0.5 : f32
    {LARGEST[largest]}
    diagram.yield %w : f32
  }}
  %E = diagram.map (%s = {scores} : {ROWS}, %b = {peak} : {R}) -> {ROWS} {{
    %d = arith.subf %s, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }}
  %sum = diagram.reduce add %E over [x] : {ROWS} -> {R}
  %whole = diagram.map (%l = %sum : {R}, %k = %K : {K}, %b = {most} : {R}, %a = %m : {R}) -> {R} {{
    %d = arith.subf %k, %b : f32
    %p = math.exp %d : f32
    {bring}
    %s = arith.addf {part}, %p : f32
    diagram.yield %s : f32
  }}
  %P = diagram.map (%l = %E : {ROWS}, %w = %whole : {R}, %b = %M : {R}, %a = %m : {R}) -> {ROWS} {{
    {bring}
    %s = arith.divf {part}, %w : f32
    diagram.yield %s : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {ROWS}, {V} -> {WIDE}{more}
  func.return {results} : {types}
}}
"""


BROUGHT = "%c = arith.subf %a, %b : f32\n    %f = math.exp %c : f32\n    %g = arith.mulf %l, %f : f32"


def logarithm(*largest: str) -> str:
    """Of the whole sum, told from a maximum `%u` of its own."""
    whole = [
        "%c = arith.subf %b, %u : f32",
        "%f = math.exp %c : f32",
        "%g = arith.mulf %l, %f : f32",
        "%d = arith.subf %k, %u : f32",
        "%p = math.exp %d : f32",
        "%s = arith.addf %g, %p : f32",
        "%o = math.log %s : f32",
        "%y = arith.addf %o, %u : f32",
    ]
    return of_rows("n", "\n    ".join((*largest, *whole)))


LOGARITHMS = {
    "that of the powers": logarithm("%zero = arith.constant 0.0 : f32", "%u = arith.addf %b, %zero : f32"),
    "written again": logarithm("%u = arith.maximumf %k, %a : f32"),
    "of the row": logarithm("%zero = arith.constant 0.0 : f32", "%u = arith.addf %a, %zero : f32"),
    "or no number": logarithm("%u = arith.maxnumf %a, %k : f32"),
    "bounded": logarithm(
        "%many = arith.constant 10000.0 : f32",
        "%n = arith.minimumf %many, %a : f32",
        "%u = arith.maximumf %n, %k : f32",
    ),
    "a minimum": logarithm(
        "%few = arith.constant -40.0 : f32", "%n = arith.minimumf %k, %a : f32", "%u = arith.maximumf %n, %few : f32"
    ),
}
OTHER = of_rows(  # of another maximum with another number
    "n",
    "%c = arith.constant 0.25 : f32\n    %u = arith.maximumf %a, %c : f32\n    %d = arith.subf %b, %u : f32\n"
    "    %y = math.exp %d : f32",
)
ROUNDED = of_rows(  # where the other number is rounded
    "n",
    "%h = arith.truncf %k : f32 to f16\n    %w = arith.extf %h : f16 to f32\n    %u = arith.maximumf %w, %a : f32\n"
    "    %y = arith.subf %b, %u : f32",
)
CHOSEN = of_rows(  # where another number is infinite
    "n",
    "%none = arith.constant 0xFF800000 : f32\n    %t = arith.cmpf oeq, %k, %none : f32\n"
    "    %y = arith.select %t, %b, %none : f32",
)
OF_DATA = f"""
  %n = diagram.map (%a = %m : {R}, %l = %L : {L}) -> {R} {{
    %some = arith.constant 0 : i32
    %t = arith.cmpi sgt, %l, %some : i32
    %c = arith.constant 0.25 : f32
    %y = arith.select %t, %c, %a : f32
    diagram.yield %y : f32
  }}"""
SMALL = f"""{of_rows("f", "%d = arith.subf %a, %b : f32 %y = math.exp %d : f32")}
  %h = diagram.cast %f : {R} -> {array("f16", q=None)}
  %g = diagram.cast %h : {array("f16", q=None)} -> {R}
  %n = diagram.map (%u = %f : {R}, %v = %g : {R}) -> {R} {{
    %y = arith.divf %v, %u : f32
    diagram.yield %y : f32
  }}"""
BOTH = ("%O, %n", f"{WIDE}, {R}")


CONDITIONS = ("", "x < len[q]", "x <= q")
CASES = [("in the sum", ""), *((largest, each) for largest in ("one", "nested", "by hand") for each in CONDITIONS)]


# -- the law ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("largest", "condition"), CASES)
def test_maxima_with_other_numbers_lag(largest: str, condition: str) -> None:
    (each,) = found(program(largest, condition=condition))
    assert isinstance(each, Lagging), str(each)
    assert each.slack == pytest.approx(GROWTH * np.log(2))


@pytest.mark.parametrize("way", LOGARITHMS)
def test_what_stays(way: str) -> None:
    (each,) = found(program("one", LOGARITHMS[way], *BOTH))
    assert isinstance(each, Lagging), str(each)


def test_extrema_of_extrema_are_the_same_in_any_order() -> None:
    again = (
        "%h = arith.constant 0.5 : f32\n    %g = arith.maximumf %a, %h : f32\n    %u = arith.maximumf %g, %k : f32\n"
    )
    (each,) = found(program("nested", of_rows("n", f"{again}    %y = arith.subf %b, %u : f32"), *BOTH))
    assert isinstance(each, Lagging), str(each)


@pytest.mark.parametrize(
    ("more", "results", "types", "reason"),
    [
        ("", "%O, %M", f"{WIDE}, {R}", "%M is told from it"),
        ("", "%O, %sum", f"{WIDE}, {R}", "%sum is told from it"),
        ("", "%O, %whole", f"{WIDE}, {R}", "%whole is told from it"),
        (OTHER, *BOTH, "%n is told from it"),
        (ROUNDED, *BOTH, "%n is told from it"),
        (CHOSEN, *BOTH, "a choice is between"),
        (OF_DATA, *BOTH, "a choice is between"),
        (SMALL, *BOTH, "%h has no room for what is smaller"),
        (of_rows("n", "%y = arith.maximumf %l, %b : f32"), *BOTH, "'arith.maximumf' is taken of"),
        (of_rows("n", "%y = arith.maximumf %l, %k : f32"), *BOTH, "'arith.maximumf' is taken of"),
    ],
)
def test_what_does_not(more: str, results: str, types: str, reason: str) -> None:
    (each,) = found(program("one", more, results, types))
    assert isinstance(each, Moved)
    assert reason in str(each)


def test_moves_add_up() -> None:
    other = Move("other", -1.0, 0.0)
    both = Moves({LAG: 2.0, other: 3.0})
    assert (both.least, both.most) == (-1.0, 2.0)
    assert (both * -2.0).most == 2.0
    assert both - Moves({other: 3.0}) == Moves({LAG: 2.0})
    assert not both - both
    assert Way(both) != Way(shifted=both)


# -- every level ----------------------------------------------------------------------------------------

KEYS, PIECE = 96, 16
SLACK = GROWTH * np.log(2)
STEPS = (0.0, SLACK / 3, 0.99 * SLACK, 1.01 * SLACK, 3 * SLACK, -SLACK / 3, -3 * SLACK, 400.0)
SINKS = (0.0, SLACK / 2, 2 * SLACK, 4 * SLACK, 1000.0, -1000.0, np.inf, -np.inf, np.nan)
"""Of the rows of a program, one each: among the scores, far above and below, and what is no number."""


def climbing(step: float) -> tuple[Array, ...]:
    """Scores that climb by so much from piece to piece, values, other numbers, and how many scores of a row count."""
    dice = np.random.default_rng(3)
    rows = dice.standard_normal((len(SINKS), KEYS)) + np.arange(KEYS) // PIECE * step
    lengths = np.array([KEYS, 0, 1, PIECE, PIECE + 1, 50, 0, 0, KEYS], np.int32)
    values = dice.standard_normal((KEYS, 32))
    return rows.astype(np.float32), values.astype(np.float32), np.array(SINKS, np.float32), lengths


def rare(kind: int) -> tuple[Array, ...]:
    """Scores that climb past their numbers, and some that are none, or all of a row."""
    rows, values, sinks, lengths = climbing(SLACK / 2)
    number = (np.inf, -np.inf, np.nan)[kind % 3]
    if kind < 3:
        rows[:, 40] = number
    elif kind < 6:
        rows[:, : 2 * PIECE + 1] = number
    else:
        rows[:] = number
    return rows, values, sinks, lengths


GIVEN = {**{f"steps of {step:.4g}": climbing(step) for step in STEPS}, **{f"rare {n}": rare(n) for n in range(9)}}


def formula(
    largest: str, condition: str, rows: Array, values: Array, sinks: Array, lengths: Array
) -> tuple[Array, Array]:
    """In float64: the shares' sums, and the size of what they add up."""
    outputs, sizes = np.zeros((len(rows), 32)), np.zeros((len(rows), 32))
    for q, k in enumerate(sinks.astype(np.float64)):
        count = {"": KEYS, "x < len[q]": int(lengths[q]), "x <= q": q + 1}[condition]
        scores, kept = rows[q, :count].astype(np.float64), values[:count].astype(np.float64)
        if not count:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            top = own = scores.max()
            if largest != "in the sum":
                top = np.maximum(top, np.maximum(k, 0.5) if largest == "nested" else k)
            powers = np.exp(scores - own) * np.exp(own - top) if largest == "by hand" else np.exp(scores - top)
            shares = powers / (powers.sum() + np.exp(k - top))
            outputs[q], sizes[q] = shares @ kept, shares @ np.abs(kept)
    return outputs, sizes


def check(output: Array, largest: str, condition: str, given: tuple[Array, ...], unit: float = 2.0**-20) -> None:
    expected, size = formula(largest, condition, *given)
    assert (np.isnan(output) == np.isnan(expected)).all()
    there = ~np.isnan(expected)
    # Exponents that are large are rounded, as in the formula: to a part of their own size.
    exponents = np.nanmax(np.abs(np.where(np.isfinite(given[0]), given[0], 0.0)), initial=1.0)
    bound = unit * (1 + exponents) * size + 2.0**-100
    assert (np.abs(output.astype(np.float64) - expected)[there] <= bound[there]).all()


@cache
def road(largest: str, condition: str, machine: str) -> Road:
    made = compiled(program(largest, condition=condition), machine=machine, passes=in_pieces(machine))
    assert "when %m has moved by more than 5.545" in str(made.module)
    return made


def in_pieces(machine: str) -> tuple[ArgSpec, ...]:
    sizes: dict[str, tuple[str | int | bool | float, ...]] = {"group": ("q=16",), "stream": (f"x={PIECE}",)}
    return tuple(
        ArgSpec(spec.name, {"hierarchy-choose-sizes": sizes}.get(spec.name, spec.parameters))
        for spec in pipeline(Options(machine=machine))
    )


@pytest.mark.sample(12)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize(("largest", "condition"), CASES)
def test_every_level(largest: str, condition: str, given: str) -> None:
    check_levels(parse_module(program(largest, condition=condition)), in_pieces("a100"), GIVEN[given])


@pytest.mark.sample(8)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("way", LOGARITHMS)
def test_logarithms_at_every_level(way: str, given: str) -> None:
    check_levels(parse_module(program("one", LOGARITHMS[way], *BOTH)), in_pieces("a100"), GIVEN[given])


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("largest", "condition"), CASES)
def test_kernels_beside_the_formula(largest: str, condition: str, machine: str) -> None:
    for given in GIVEN.values():
        (output,) = road(largest, condition, machine).run(given)
        check(output, largest, condition, given)
