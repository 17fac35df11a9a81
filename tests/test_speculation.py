"""Turns that take their powers from the maximum so far (`cuda-speculate`): results beside the plain formula and beside
those without the pass, whatever scores do from turn to turn, and how often a turn is made anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects import arith, scf
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, attention, compiled
from treadle.compiler.pipeline import Options, pipeline
from treadle.dialects import cuda
from treadle.dialects.diagram import MapOp
from treadle.passes.streams.lagging import GROWTH
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.host import HostExecution
from treadle.runtime.interpreter import entry_function

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

EXAMPLES = Path(__file__).parents[1] / "examples"
ROWS, KEYS, PIECE, WARP = 130, 640, 96, 16
SLACK = GROWTH * np.log(2) / 0.125
TURNS = KEYS // PIECE - 1
"""That may be made anew: the first of each loop, and the rest behind it, stand by themselves."""

Array = NDArray[Any]
Inputs = tuple[Array, Array, Array]


def sized(text: str, piece: int, warpgroups: int, passes: Sequence[str] = ()) -> Road:
    """A program for such tiles, without some passes."""
    axes = "b=1,h=1," if "[b, h, q, d]" in text else ""
    sizes = {"group": (f"{axes}q={64 * warpgroups}",), "stream": (f"x={piece}",)}
    specs = [
        ArgSpec(spec.name, {"hierarchy-choose-sizes": sizes}.get(spec.name, spec.parameters))
        for spec in pipeline(Options(machine="h100"))
        if spec.name not in passes
    ]
    return compiled(text, machine="h100", passes=tuple(specs))


MIXED = (EXAMPLES / "attention_mixed.mlir").read_text(encoding="utf-8")
KINDS: dict[str, tuple[str, int, int, type, type]] = {
    "heads of 64": (attention(64, 64, "f16"), PIECE, 1, np.float16, np.float16),
    "heads of 128": (attention(128, 128, "f16"), 64, 2, np.float16, np.float16),
    "bf16": (attention(64, 64, "bf16"), PIECE, 2, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "two formats": (MIXED, PIECE, 2, ml_dtypes.float8_e4m3fn, np.float16),
}
"""The program, a turn's keys, warpgroups, and the formats of scores' operands and of values."""
UNITS = {np.float16: 2.0**-11, ml_dtypes.bfloat16: 2.0**-8}


@cache
def road(kind: str = "heads of 64", without: bool = False) -> Road:
    text, piece, warpgroups, _, _ = KINDS[kind]
    made = sized(text, piece, warpgroups, ("cuda-speculate",) if without else ())
    assert any(isinstance(op, cuda.ExceedsOp) for each in made.kernels for op in each.walk()) is not without
    return made


def computed(inputs: Inputs, kind: str = "heads of 64", without: bool = False) -> Array:
    of = road(kind, without)
    shape = (1, 1) if kind == "two formats" else ()
    (output,) = of.run([each.reshape(*shape, *each.shape) for each in inputs])
    assert any("specialised" in variant for variant in of.backend().variants)
    return output.reshape(output.shape[-2:]).astype(np.float64)


def plain(q: Array, k: Array, v: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The formula, and the size of what it adds up."""
    with np.errstate(invalid="ignore"):
        scores = 0.125 * q.astype(np.float64) @ k.astype(np.float64).T
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return weights @ v.astype(np.float64), weights @ np.abs(v.astype(np.float64))


def check(inputs: Inputs, kind: str = "heads of 64") -> None:
    """Beside the formula, NaN where that has NaN; and beside what is computed without the pass, as near."""
    output, unit = computed(inputs, kind), UNITS[KINDS[kind][4]]
    expected, size = plain(*inputs)
    assert (np.isnan(output) == np.isnan(expected)).all()
    there = ~np.isnan(expected)
    if kind == "two formats":  # of whose sums few digits are kept (`runtime/coarse.py`)
        unit += 0.125 * float(np.abs(inputs[1].astype(np.float64)).max()) * 2.0**-12
    bound = (4 * unit * size + unit)[there]
    assert (np.abs(output - expected)[there] <= bound).all()
    usual = computed(inputs, kind, without=True)
    assert (np.abs(output - usual)[there] <= bound).all()


def stepping(levels: Sequence[float], piece: int = PIECE, kind: str = "heads of 64", grows: Any = 1.0) -> Inputs:
    """Scores of every row that go from level to level, a turn each, and random values; by how much rows do so,
    `grows` says. (Levels are products of q and k, before the scale.)"""
    width = 128 if kind == "heads of 128" else 64
    near, far = KINDS[kind][3:]
    dice = np.random.default_rng(1)
    q: Array = np.zeros((ROWS, width), np.float32)
    k: Array = np.zeros((KEYS, width), np.float32)
    q[:, 1:], k[:, 1:] = (dice.standard_normal((len(each), width - 1)) / 4 for each in (q, k))
    q[:, 0] = grows
    k[:, 0] = np.resize(np.asarray(levels, np.float32), -(-KEYS // piece)).repeat(piece)[:KEYS]
    v: Array = dice.standard_normal((KEYS, width))
    return q.astype(near), k.astype(near), v.astype(far)


def steps(step: float, turns: int = 7) -> list[float]:
    return [step * turn for turn in range(turns)]


# -- how often ----------------------------------------------------------------------------------------


def anew(inputs: Inputs) -> tuple[int, int]:
    """Turns of warps that were made anew, by the shuffles of their maxima, and turns of warps that asked."""
    of = road()
    execution = HostExecution(of.module, of.backend())
    execution.run(entry_function(of.module), inputs)
    lines = of.text.splitlines()
    begins = [number for number, line in enumerate(lines, 1) if re.match(r" *if \(grown\w*\) \{", line)]
    again, asked = 0, 0
    for row in execution.launches[-1].report.operations:
        asked += row.requests if row.kind == "any_lane" else 0
        inside = any(begin < row.line < _end(lines, begin) for begin in begins)
        again += row.requests if row.kind == "shuffle_xor" and inside else 0
    assert again % 4 == 0  # two rows of a lane, two rounds
    return again // 4, asked


def _end(lines: Sequence[str], begin: int) -> int:
    """The line of the brace that ends what begins in a line."""
    indent = len(lines[begin - 1]) - len(lines[begin - 1].lstrip())
    return next(n for n in range(begin + 1, len(lines) + 1) if lines[n - 1] == " " * indent + "}")


WARPS = 12
"""Of the three blocks: in the last one three have no row, whose scores are all zero."""
GROWING = 9


@pytest.mark.parametrize(
    ("step", "times"),
    [
        (0.0, 0),
        (-SLACK / 3, 0),
        (-3 * SLACK, 0),
        (SLACK / 64, 0),
        (1.2 * SLACK, TURNS * GROWING),
        (3 * SLACK, TURNS * GROWING),
        (1000.0, TURNS * GROWING),
    ],
)
def test_turns_are_made_anew_where_scores_grow(step: float, times: int) -> None:
    assert anew(stepping(steps(step))) == (times, TURNS * WARPS)


def test_one_jump_is_one_turn() -> None:
    """And what follows goes on from the new maximum."""
    for turn in range(1, TURNS + 1):
        levels = [0.0] * turn + [2 * SLACK] * (7 - turn)
        assert anew(stepping(levels))[0] == GROWING


@pytest.mark.parametrize("warp", range(8))
def test_only_a_warp_that_has_to(warp: int) -> None:
    grows = np.zeros(ROWS, np.float32)
    grows[WARP * warp + warp] = 1  # one row of it
    inputs = stepping(steps(2 * SLACK), grows=grows)
    assert anew(inputs)[0] == TURNS
    check(inputs)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 60000.0])
def test_a_maximum_that_may_not_lag_is_looked_at_in_every_turn(number: float) -> None:
    """Of a warp one of whose rows has nothing but scores of minus infinity, no numbers, or beyond 2^20 slacks."""
    q, k, v = stepping([1.0], grows=0.0)
    k[:, 1] = 1024
    q[:, 1], q[5] = 0, 0
    q[5, 1] = number
    assert anew((q, k, v))[0] == TURNS
    check((q, k, v))


# -- what is computed ---------------------------------------------------------------------------------

STEPS = [0.0, *(sign * factor * SLACK for factor in (1 / 3, 0.6, 0.99, 1.01, 3.0) for sign in (1, -1)), 1000.0, -1000.0]


@pytest.mark.parametrize("step", STEPS)
def test_scores_that_climb_and_fall(step: float) -> None:
    check(stepping(steps(step)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "heads of 64"])
@pytest.mark.parametrize("step", [0.0, SLACK / 3, 1.01 * SLACK, 1000.0, -1.01 * SLACK])
def test_heads_and_formats(kind: str, step: float) -> None:
    piece = KINDS[kind][1]
    if kind == "two formats":  # of few digits and no more than 448
        step = float(np.clip(step, -60, 60))
    check(stepping(steps(step, -(-KEYS // piece)), piece, kind), kind)


LEVELS = st.lists(
    st.sampled_from([0.0, 10.0, SLACK - 2, SLACK, SLACK + 2, 2 * SLACK, -SLACK, 1500.0, -1500.0, 30000.0, -np.inf]),
    min_size=7,
    max_size=7,
)


@settings(max_examples=12, deadline=None)
@given(LEVELS, st.integers(0, 3))
def test_any_levels(levels: list[float], kind_of_rows: int) -> None:
    """Rows that all go along, the other way, by different amounts, or only some of them."""
    spread = (np.ones(ROWS), -np.ones(ROWS), np.linspace(0.25, 1, ROWS), (np.arange(ROWS) % 5 == 0) + 0.0)
    inputs = stepping(levels, grows=spread[kind_of_rows])
    check(inputs)


@pytest.mark.parametrize("keys", [1, PIECE, PIECE + 1, 300, KEYS - 1, KEYS])
def test_rows_of_minus_infinity_at_first(keys: int) -> None:
    """And of nothing else, which are no numbers."""
    q, k, v = stepping(steps(SLACK / 3))
    k[:keys, 0] = -np.inf
    check((q, k, v))


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [3, PIECE + 3, KEYS - 3])
def test_what_is_no_number_in_a_key(number: float, place: int) -> None:
    """Rows of a negative product with infinity leave the key out."""
    q, k, v = stepping(steps(SLACK / 3), grows=np.where(np.arange(ROWS) % 3, 1.0, -1.0))
    k[place, 0] = number
    check((q, k, v))


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_in_a_query(number: float) -> None:
    """Its row alone is none."""
    q, k, v = stepping(steps(SLACK / 3))
    q[37, 0] = number
    expected, _ = plain(q, k, v)
    assert np.isnan(expected).any(-1).tolist() == [row == 37 for row in range(ROWS)]
    check((q, k, v))


@pytest.mark.parametrize("size", [2.0**k for k in (4, 8, 12, 13, 14)])
def test_scores_of_any_size(size: float) -> None:
    """Beyond 2^20 slacks a maximum does not lag, for the slope of its powers is another one there."""
    dice = np.random.default_rng(2)
    q, k = ((dice.integers(-2, 3, (rows, 64)) * size).astype(np.float16) for rows in (ROWS, KEYS))
    v = dice.standard_normal((KEYS, 64)).astype(np.float16)
    check((q, k, v))


def test_more_keys_at_the_edge_than_a_sum_may_have() -> None:
    """Powers of which none is large, but their sum: the turn is made anew, and the maximum stays."""
    level = SLACK * 6.5 / GROWTH
    inputs = stepping([0.0, *[level] * 6])
    assert anew(inputs)[0] == TURNS * GROWING
    check(inputs)


@pytest.mark.parametrize("keys", [*range(PIECE, KEYS, PIECE), 2 * PIECE + 1, 3 * PIECE + 50, 7, KEYS])
def test_any_number_of_turns(keys: int) -> None:
    """They come in pairs: of an odd number, one is left over."""
    q, k, v = stepping(steps(1.01 * SLACK))
    check((q, k[:keys].copy(), v[:keys].copy()))


def test_turns_are_printed_in_pairs() -> None:
    """Powers in f16 lie in two arrays, which turns take in turn: nothing of them is moved but behind an odd number."""
    text = road().text
    assert (
        len(re.findall(r"const auto step\w* = \[&\]\(const int64_t turn\w*, auto& P16\w*, auto& P16\w*_made\)", text))
        == 2
    )
    assert (
        len(re.findall(r"step\w*\(turn\w*, (P16\w*), (P16\w*_other)\);\n *step\w*\(turn\w* \+ 1, \2, \1\);", text)) == 2
    )
    assert len(re.findall(r" copy_apart\((P16\w*), (P16\w*_other), kept\(uint32_t\(turn\w*\)\) >> 31\);", text)) == 2


# -- conditions ---------------------------------------------------------------------------------------

MASKS = {
    "attention_causal": {"b": 1, "h": 1, "q": 300, "x": 300},
    "attention_window": {"b": 1, "h": 1, "q": 400, "x": 400},
    "attention_segments": {"b": 1, "h": 1, "q": 300, "x": 300},
    "attention_lengths": {"b": 2, "h": 1, "q": 100, "x": 400},
}


@cache
def masked(name: str) -> Road:
    made = sized((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"), 64, 2)
    assert any(isinstance(op, cuda.ExceedsOp) for each in made.kernels for op in each.walk())
    return made


def count_tests(loop: scf.ForOp) -> int:
    """Bounds of masks and comparisons of integers, element by element, in a turn."""
    ops = list(loop.walk())
    compared = [op for op in ops if isinstance(op, arith.CmpiOp) and isinstance(op.parent_op(), MapOp)]
    return len(compared) + sum(len(op.bounds) for op in ops if isinstance(op, cuda.MaskOp))


@pytest.mark.parametrize("name", ["attention_causal", "attention_lengths", "attention_prefix", "attention_segments"])
def test_turns_with_more_tests_than_others_keep_their_order(name: str) -> None:
    """Those that a condition cuts are few. The condition of the prefix leaves no interval: its positions are compared
    element by element."""
    consumers = [roles.consumers for each in masked(name).kernels if (roles := cuda.roles_of(each)) is not None]
    loops = [op for each in consumers for op in each.walk() if isinstance(op, scf.ForOp)]
    loops = [loop for loop in loops if any(isinstance(op, cuda.WarpgroupProductOp) for op in loop.walk())]
    first = [loop for loop in loops if any(isinstance(op, cuda.ExceedsOp) for op in loop.walk())]
    assert len({count_tests(loop) for loop in loops}) > 1
    assert {count_tests(loop) for loop in first} == {min(count_tests(loop) for loop in loops)}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("step", [0.0, SLACK / 3, 1.01 * SLACK, -SLACK, 1000.0])
def test_conditions(name: str, step: float) -> None:
    """Turns of which some rows have no score yet, and some have: verified as any program is."""
    of, sizes = masked(name), MASKS[name]
    inputs = of.inputs(sizes)
    q, k = (np.asarray(each) for each in inputs[:2])
    q[..., 0] = 1
    k[..., 0] = np.arange(k.shape[-2]) // 64 * step
    for verdict in of.verdicts(inputs, sizes):
        assert verdict.ok, str(verdict)
