"""Axes that are known to have no elements: every axis of every example, compiled for that size and run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import load_module, make_context, parse_module
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.diagram_compose_maps import DiagramComposeMapsPass
from treadle.runtime.interpreter import entry_function, run_function

FOLDER = Path(__file__).parents[1] / "examples"
SIZE = 3
"""Of the other axes."""
ARRAY = re.compile(r"(tensor<)([?\dx]+)(x\w+, #diagram\.array<\[)([\w, ]+)(\]>>)")


def axes(path: Path) -> list[str]:
    """By the text: each process of the tests asks for those of all examples."""
    return sorted({axis for found in ARRAY.finditer(path.read_text(encoding="utf-8")) for axis in found[4].split(", ")})


def without_elements(text: str, empty: str) -> str:
    """The program with a static size of 0 for one axis."""

    def written(found: re.Match[str]) -> str:
        names = found[4].split(", ")
        sizes = ["0" if name == empty else size for name, size in zip(names, found[2].split("x"), strict=True)]
        return found[1] + "x".join(sizes) + found[3] + found[4] + found[5]

    def defaults(found: re.Match[str]) -> str:
        return found[1] + ", ".join(each for each in found[2].split(", ") if not each.startswith(f"{empty} =")) + ">"

    return re.sub(r"(#diagram\.sizes<)([^>]*)>", defaults, ARRAY.sub(written, text))


UNDEFINED = {("attention_spherical", "d"), ("linear_attention", "x"), ("variance", "x")}
"""They divide nothing by nothing: NaN is right, and no verdict vouches for that."""

CASES = [(path.stem, axis) for path in sorted(FOLDER.glob("*.mlir")) for axis in axes(path)]


@pytest.mark.sample(12, each=False)
@pytest.mark.parametrize(("name", "axis"), CASES)
def test_examples(name: str, axis: str) -> None:
    text = without_elements(str(load_module(FOLDER / f"{name}.mlir")), axis)
    road = compiled(text)
    sizes = dict.fromkeys(road.symbolic, SIZE)
    if (name, axis) not in UNDEFINED:
        road.check(sizes)
        return
    inputs = road.inputs(sizes)
    for result, wanted in zip(road.run(inputs), run_function(road.algorithm, inputs).results, strict=True):
        np.testing.assert_array_equal(result, wanted)


PROGRAM = """!X = tensor<?x0xf32, #diagram.array<[m, n]>>
!Z = tensor<0x?xf32, #diagram.array<[n, p]>>
!m = tensor<?xf32, #diagram.array<[m]>>
!Y = tensor<?x?xf32, #diagram.array<[m, p]>>
func.func @f(%X: !X, %Z: !Z, %start: !m, %Y: !Y) -> (!m, !m, !m, !m, !m, !Y, !Y, !X) {
  %sum = diagram.reduce add %X over [n] : !X -> !m
  %product = diagram.reduce mul %X over [n] : !X -> !m
  %largest = diagram.reduce max %X over [n] : !X -> !m
  %least = diagram.reduce min %X over [n] : !X -> !m
  %more = diagram.reduce add %X over [n] into %start : !X -> !m
  %XZ = diagram.contract %X, %Z over [n] accumulate f32 : !X, !Z -> !Y
  %into = diagram.contract %X, %Z over [n] accumulate f32 into %Y : !X, !Z -> !Y
  %negated = diagram.map (%x = %X : !X) -> !X {
    %y = arith.negf %x : f32
    diagram.yield %y : f32
  }
  func.return %sum, %product, %largest, %least, %more, %XZ, %into, %negated : !m, !m, !m, !m, !m, !Y, !Y, !X
}"""


def test_combinations_of_nothing() -> None:
    module = parse_module(PROGRAM)
    DiagramComposeMapsPass().apply(make_context(), module)
    module.verify()
    left = {op.name for op in module.walk() if op.name.startswith("diagram.")}
    assert left == {"diagram.fill", "diagram.cast"}
    compiled(PROGRAM).check({"m": 5, "p": 3})


def test_a_read_that_says_how_long_an_axis_is_stays() -> None:
    """Nothing is computed of the windows, but there are as many results as windows."""
    text = """!X = tensor<?xf32, #diagram.array<[x]>>
!W = tensor<?x3xf32, #diagram.array<[t, r]>>
!at = tensor<?xi32, #diagram.array<[t]>>
func.func @f(%X: !X) -> !at {
  %W = diagram.read %X at "t + r" : !X -> !W
  %at = diagram.index -> !at
  func.return %at : !at
}"""
    road = compiled(text)
    for size in (0, 2, 3, 40):
        road.check({"x": size})
        (result,) = road.run(road.inputs({"x": size}))
        np.testing.assert_array_equal(result, np.arange(max(size - 2, 0)))


def test_what_is_held_whole_without_the_pass_is_refused() -> None:
    module = parse_module(without_elements((FOLDER / "attention.mlir").read_text(), "d"))
    with pytest.raises(TreadleError, match="axis 'd' has no elements, and every group holds it whole"):
        run_passes(module, without_composing())


def test_what_would_be_held_whole_without_the_pass_is_kept_apart() -> None:
    """In a kernel of its own its groups are cut along the axis: there are none."""
    module = parse_module(without_elements((FOLDER / "attention.mlir").read_text(), "e"))
    algorithm = module.clone()
    run_passes(module, without_composing())
    road = Road(algorithm, module, print_cuda(module))
    (result,) = road.run(road.inputs(dict.fromkeys("bhqx", SIZE)))
    assert result.size == 0
    reasons = [step.reason.data for step in derivation_of(entry_function(module).attributes)]
    assert any(reason.startswith("axis 'e' has no elements, and every group holds it whole") for reason in reasons)


def without_composing() -> list[ArgSpec]:
    return [spec for spec in pipeline(Options()) if spec.name != DiagramComposeMapsPass.name]
