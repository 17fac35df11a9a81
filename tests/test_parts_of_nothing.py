"""Parts of a row that are merged, one of which is nothing but the neutral element of its extremum: it adds what its
elements do in the plain form, which is zero of a number and no number of NaN or an infinity, and the row as a whole
has a number or none as in the formula."""

from __future__ import annotations

import numpy as np
import pytest
from test_undefined_rows import CONDITIONS, NEUTRAL, check_levels, inputs, program
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp, StreamOp

LENGTH = 100
CUTS = {"counted": {"parts": (3,)}, "of a length": {"length": (32,)}}


def passes(cut: dict[str, tuple[int]], machine: str) -> list[ArgSpec]:
    """A pipeline that cuts into parts."""
    return [
        ArgSpec(spec.name, {**cut}) if spec.name == "hierarchy-split-streams" else spec
        for spec in pipeline(Options(machine=machine))
    ]


def cut_road(text: str, cut: dict[str, tuple[int]], machine: str) -> Road:
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_passes(module, passes(cut, machine))
    return Road(algorithm, module, print_cuda(module))


def given_to(kind: str) -> tuple[np.ndarray, ...]:
    """Rows of which the first part, or the last, or all, is nothing; there and elsewhere values are no numbers."""
    rows, values, lengths = inputs(kind, LENGTH)
    rows[:, 7, :40] = rows[:, 6, -40:] = NEUTRAL[kind]
    values[0, 3, 2], values[1, 0, 1], values[0, -2, 4], values[2, 1, 5] = np.nan, np.inf, -np.inf, np.nan
    return rows, values, lengths


@pytest.mark.sample(5)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", NEUTRAL)
def test_a_part_of_nothing_at_every_level(kind: str, condition: str, cut: str, machine: str) -> None:
    text, given = program(kind, condition, LENGTH if cut == "counted" else None), given_to(kind)
    check_levels(parse_module(text), passes(CUTS[cut], machine), given)
    road = cut_road(text, CUTS[cut], machine)
    for verdict in road.verdicts(given):
        assert not verdict.wrong, verdict
    if not condition:
        sums, weighted, _ = road.run(given)
        assert np.isnan(weighted[0, 7, 2])
        assert np.isfinite(weighted[0, 7, 3])
        assert np.isfinite(sums[0, 7])


def distances(kind: str) -> str:
    """The sum of how far elements are from their extremum, weighted by other numbers."""
    row, out = array("f32", b=None, q=None, x=LENGTH), array("f32", b=None, q=None)
    return f"""
func.func @f(%X: {row}, %Y: {row}) -> {out} {{
  %m = diagram.reduce {kind} %X over [x] : {row} -> {out}
  %d = diagram.map (%a = %X : {row}, %y = %Y : {row}, %m_ = %m : {out}) -> {row} {{
    %d_ = arith.subf %a, %m_ : f32
    %p = arith.mulf %y, %d_ : f32
    diagram.yield %p : f32
  }}
  %s = diagram.reduce add %d over [x] : {row} -> {out}
  func.return %s : {out}
}}
"""


@pytest.mark.parametrize("kind", NEUTRAL)
def test_distances_from_an_extremum_that_a_part_lacks(kind: str) -> None:
    """They are infinite there, or no number where the weight is zero."""
    rows, *_ = given_to(kind)
    weights = np.abs(np.random.default_rng(1).standard_normal(rows.shape)).astype(np.float32) + np.float32(0.1)
    weights[0, 7, 3] = 0
    module = parse_module(distances(kind))
    check_levels(module, passes(CUTS["counted"], "a100"), (rows, weights))
    assert "x_part" in str(module)
    road = cut_road(distances(kind), CUTS["counted"], "a100")
    for verdict in road.verdicts((rows, weights)):
        assert not verdict.wrong, verdict
    (sums,) = road.run((rows, weights))
    assert np.isnan(sums[0, 7])
    assert sums[1, 7] == NEUTRAL[kind]


@pytest.mark.parametrize("kind", NEUTRAL)
def test_the_parts_are_made_in_one_stream(kind: str) -> None:
    """And with the operations of the whole: what stands for an extremum is what the step has anyway."""
    whole, parts = (expanded(program(kind, "", 4096), cut) for cut in ({}, {"parts": (2,)}))
    assert len(whole) == 1
    assert len(parts) == 1
    assert [op.name for op in parts[0].step.walk()] == [op.name for op in whole[0].step.walk()]


def expanded(text: str, cut: dict[str, tuple[int]]) -> list[StreamOp]:
    """The streams of the first kernel."""
    module: ModuleOp = parse_module(text)
    for spec in passes(cut, "a100"):
        if cut or spec.name != "hierarchy-split-streams":
            run_passes(module, [spec])
        if spec.name == "hierarchy-expand-streams":
            break
    kernel = next(op for op in module.walk() if isinstance(op, KernelOp))
    return [op for op in kernel.walk() if isinstance(op, StreamOp)]
