"""Laws of the real numbers that do not hold of infinities are not used where there may be some: at every level a row
with infinities gives what the formula gives."""

from __future__ import annotations

import numpy as np
import pytest

from roads import array, compiled
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import StreamOp
from treadle.passes.expressions.infinities import may_be_infinite, troubled_by
from treadle.passes.expressions.kinds import kinds_of
from treadle.passes.expressions.scalars import Leaf
from treadle.runtime.interpreter import entry_function, run_function, run_with_bounds
from treadle.runtime.verify import compare

A, R = array("f32", t=None, x=None), array("f32", t=None)


def two_sums(of_second: str) -> str:
    """A sum over x of what is made of an element `a` and of the sum `r` of another array."""
    return f"""
func.func @f(%A: {A}, %B: {A}) -> {R} {{
  %r = diagram.reduce add %B over [x] : {A} -> {R}
  %T = diagram.map (%a = %A : {A}, %b = %B : {A}, %r_1 = %r : {R}) -> {A} {{
    {of_second}
    diagram.yield %y : f32
  }}
  %s = diagram.reduce add %T over [x] : {A} -> {R}
  func.return %s : {R}
}}
"""


PROGRAMS = {
    "a factor": two_sums("%y = arith.mulf %a, %r_1 : f32"),
    "a divisor": two_sums("%y = arith.divf %a, %r_1 : f32"),
    "a summand": two_sums("%y = arith.addf %a, %r_1 : f32"),
    "a distance": two_sums("%y = arith.subf %b, %r_1 : f32"),
    "a square": two_sums("%d = arith.subf %a, %r_1 : f32\n    %y = arith.mulf %d, %d : f32"),
    "a power": two_sums("%d = arith.subf %a, %r_1 : f32\n    %y = math.exp %d : f32"),
}


def rows(length: int) -> tuple[np.ndarray, np.ndarray]:
    """The second array has an infinity early, late, or one of each sign; the first has zeros, one sign, or both."""
    dice = np.random.default_rng(length)
    first, second = dice.standard_normal((2, 12, length)).astype(np.float32)
    first[0:12:3] = np.abs(first[0:12:3]) + 1
    first[1:12:3, length // 2] = 0.0
    second[0:3, 0], second[3:6, -1] = np.inf, -np.inf
    second[6:9, 0], second[6:9, -1] = np.inf, -np.inf
    return first, second


@pytest.mark.parametrize("length", [3, 300])
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_row_with_infinities_at_every_level(what: str, length: int) -> None:
    inputs = rows(length)
    module = parse_module(PROGRAMS[what])
    (type,) = entry_function(module).function_type.outputs
    with np.errstate(all="ignore"):
        wanted = run_with_bounds(module, inputs)[0]
        for spec in pipeline(Options()):
            run_passes(module, [spec])
            if spec.name == "convert-hierarchy-to-cuda":
                break
            (got,) = run_function(module, inputs).results
            verdict = compare(spec.name, type, np.asarray(got), wanted, "interpreter")
            assert not verdict.wrong, verdict
    for verdict in compiled(PROGRAMS[what]).verdicts(inputs):
        assert not verdict.wrong, verdict
        assert verdict.unchecked <= (what == "a distance") * 3, verdict  # -inf less itself


def streams(what: str) -> int:
    module = parse_module(PROGRAMS[what])
    for spec in pipeline(Options()):
        run_passes(module, [spec])
        if spec.name == "hierarchy-expand-streams":
            break
    return sum(isinstance(op, StreamOp) for op in module.walk())


@pytest.mark.parametrize(
    ("what", "number"), [("a factor", 2), ("a divisor", 1), ("a summand", 2), ("a distance", 1), ("a power", 2)]
)
def test_a_second_stream_where_no_law_holds(what: str, number: int) -> None:
    """What is no number in the formula either needs none."""
    assert streams(what) == number


def parts(body: str) -> dict[str, Leaf]:
    module = parse_module(f"func.func @f(%A: {A}, %i: i32) -> () {{\n{body}\nfunc.return\n}}")
    return {r.name_hint: Leaf(r) for op in module.walk() for r in op.results if r.name_hint}


BOUNDED = f"""
  %m = diagram.reduce max %A over [x] : {A} -> {R}
  %e = diagram.map (%a = %A : {A}, %b = %m : {R}) -> {A} {{
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }}
  %l = diagram.reduce add %e over [x] : {A} -> {R}
  %q = diagram.map (%a = %l : {R}) -> {R} {{
    %p = math.log %a : f32
    diagram.yield %p : f32
  }}
  %h = diagram.map (%a = %A : {A}) -> {A} {{
    %p = math.tanh %a : f32
    diagram.yield %p : f32
  }}
  %s = diagram.reduce add %h over [x] : {A} -> {R}
"""


def test_kinds() -> None:
    known = parts(BOUNDED)
    assert may_be_infinite(known["m"])
    assert kinds_of(known["e"]) == {"0", "+", "nan"}
    assert kinds_of(known["l"]) == {"+", "nan"}
    assert not may_be_infinite(known["q"])
    assert kinds_of(known["s"]) == {"-", "0", "+", "nan"}
    assert troubled_by([known["e"].value], [known["m"].value]) is None
    assert troubled_by([known["h"].value], [known["m"].value]) is known["m"].value
