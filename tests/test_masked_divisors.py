"""A sum under a condition divides what is summed: it moves past the sum, where nothing tells an empty row but its being
zero, only if it sums a factor of what it divides. Else something that is not zero would be divided by zero, and the row
be zero where the plain form is infinite."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation

import treadle
from roads import array
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.passes.expressions.scalars import Expression, Node, is_same, number

ROWS, R, V, OUT = (
    array("f32", **axes) for axes in ({"q": None, "x": None}, {"q": None}, {"x": None, "d": 16}, {"q": None, "d": 16})
)

BODIES = {
    "other elements": ("math.exp %s : f32", "x <= q - 3", "%E"),
    "another factor": ("arith.maximumf %s, %none : f32", "x <= q", "%S"),
    "the same": ("math.exp %s : f32", "x <= q", "%E"),
}
"""What is summed, which elements of it, and what the sum divides."""


def program(case: str) -> str:
    weight, counted, divided = BODIES[case]
    same = counted == "x <= q" and divided == "%E"
    return f"""
func.func @f(%S: {ROWS}, %V: {V}) -> {OUT} {{
  %E = diagram.map (%s = %S : {ROWS}) -> {ROWS} {{
    %none = arith.constant 0.0 : f32
    %e = {weight}
    diagram.yield %e : f32
  }}
  %in = diagram.where {divided} if "x <= q" : {ROWS}
  %counted = diagram.where %E if "{counted}" : {ROWS}
  %l = diagram.reduce add {"%in" if same else "%counted"} over [x] : {ROWS} -> {R}
  %P = diagram.map (%e = %in : {ROWS}, %n = %l : {R}) -> {ROWS} {{
    %p = arith.divf %e, %n : f32
    diagram.yield %p : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {ROWS}, {V} -> {OUT}
  func.return %O : {OUT}
}}
"""


def plain(case: str, s: np.ndarray, v: np.ndarray) -> np.ndarray:
    _, counted, divided = BODIES[case]
    s, v = s.astype(np.float64), v.astype(np.float64)
    q, x = np.indices(s.shape)
    weight = np.maximum(s, 0) if case == "another factor" else np.exp(s)
    sums = np.where(x <= (q - 3 if counted == "x <= q - 3" else q), weight, 0).sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (weight if divided == "%E" else s) / sums
        return np.array([shares[i, : i + 1] @ v[: i + 1] for i in range(len(s))])


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("case", BODIES)
def test_rows_whose_divisor_is_zero(case: str, machine: str) -> None:
    dice = np.random.default_rng(0)
    s = -np.abs(dice.standard_normal((9, 9)).astype(np.float32)) - 0.5
    s[5:, 4] = 1.0  # of earlier rows nothing is above zero
    v = np.abs(dice.standard_normal((9, 16)).astype(np.float32))
    found = np.asarray(treadle.compile(program(case), machine=machine).run(s, v))
    expected = plain(case, s, v)
    assert np.isinf(expected).any() == (case != "the same")
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("case", BODIES)
def test_only_a_sum_of_what_it_divides_moves(case: str) -> None:
    module = parse_module(program(case))
    passes = list(pipeline(Options(machine="a100")))
    last = [spec.name for spec in passes].index("diagram-hoist-factors")
    run_passes(module, passes[: last + 1])
    assert ("%l past the sum %O" in str(module)) == (case == "the same")


def squares(depth: int) -> Expression:
    """x squared, and that again: as a tree it would have 2^depth leaves."""
    expression: Expression = number(3.0, f32)
    for _ in range(depth):
        expression = Node(arith.MulfOp, (expression, expression), f32)
    return expression


def with_kind(expression: Expression, kind: type[Operation]) -> Expression:
    assert isinstance(expression, Node)
    return Node(kind, expression.operands, expression.type)


def test_expressions_that_share_their_parts_are_compared_part_by_part() -> None:
    assert is_same(squares(100), squares(100))
    assert is_same(squares(5000), squares(5000))
    assert not is_same(squares(100), squares(101))
    assert not is_same(squares(100), with_kind(squares(100), arith.AddfOp))
