"""`hierarchy-transpose-arrays`: what is transposed moves by whole lines and comes out right at any sizes, and the model
decides for it where every element would be a sector otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_coalescing import check
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from roads import Road, array, compiled
from treadle.compiler.explain.costs import time_and_memory
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import Options, run_passes, through
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.array import axes_of
from treadle.passes._functions import functions, kernels
from treadle.passes.kernels.transposed import is_copy
from treadle.runtime.interpreter import run_function

EXAMPLE = (Path(__file__).parents[1] / "examples" / "triangle_multiplication.mlir").read_text()


def channels_last(c: int | None = None, size: int = 512) -> str:
    """A product for each channel, which lie last; made for large sizes, at which that counts."""
    left, right = (array("f16", **{axis: None, "k": None, "c": c}) for axis in "ij")
    sums, result = (array(each, i=None, j=None, c=c) for each in ("f32", "f16"))
    stated = f"i = {size}, j = {size}, k = {size}" + (", c = 128" if c is None else "")
    return f"""
func.func @f(%A: {left}, %B: {right}) -> {result} attributes {{sizes = #diagram.sizes<{stated}>}} {{
  %S = diagram.contract %A, %B over [k] accumulate f32 : {left}, {right} -> {sums}
  %C = diagram.cast %S : {sums} -> {result}
  func.return %C : {result}
}}
"""


def decorated(text: str, machine: str, last: str = "hierarchy-expand-streams", transposed: bool = True) -> FuncOp:
    module = parse_module(text)
    specs = through(Options(machine=machine), last)
    run_passes(module, [each for each in specs if transposed or each.name != "hierarchy-transpose-arrays"])
    (function,) = functions(module)
    return function


def time_of(text: str, machine: str, transposed: bool = True) -> float:
    """In microseconds, without launches."""
    function = decorated(text, machine, transposed=transposed)
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    times = [time_and_memory(kernel, function, machine_of(module))[0] for kernel in kernels(function)]
    return sum(time for time in times if time is not None)


def names_of(road: Road) -> list[str]:
    return [kernel.sym_name.data for kernel in road.kernels]


@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("c", [7, 66, 128, None])
def test_results_are_right_at_any_sizes(c: int | None, machine: str) -> None:
    road = compiled(channels_last(c), machine=machine)
    assert {"f_A", "f_C"} <= {name.removesuffix("_kernel") for name in names_of(road)}
    for i, j, k in ((131, 33, 70), (40, 70, 33), (1, 2, 1)):
        road.check({"i": i, "j": j, "k": k} | ({"c": 66} if c is None else {}))


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_kernels_alone_have_is_not_copied(machine: str) -> None:
    text = EXAMPLE.replace("i = 24, k = 40, j = 24", "i = 512, k = 512, j = 512")
    found = kernels(decorated(text, machine, last="hierarchy-transpose-arrays"))
    assert [is_copy(kernel) for kernel in found] == [False, False, False, True]
    first, second, product, _ = found
    assert axes_of(first.outputs[0].type) == ("c", "i", "k")
    assert [axes_of(value.type) for value in product.inputs] == [("c", "i", "k"), ("c", "j", "k")]
    assert second.outputs[0] is product.inputs[1]
    compiled(text, machine=machine).check({"i": 19, "k": 33, "j": 21})


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("size", [512, 1024])
@pytest.mark.parametrize("c", [64, 128])
def test_the_model_finds_it_faster(c: int, size: int, machine: str) -> None:
    """Nearly three times at least: as it is, L2 gives 16 times what is asked for, and a part of that where reads that
    blocks make alike are coalesced."""
    text = channels_last(c, size)
    assert time_of(text, machine) < time_of(text, machine, transposed=False) / 2.8


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("c", [64, 66, 7])
def test_copies_move_the_fewest_sectors(c: int, arch: str) -> None:
    dice = np.random.default_rng(0)
    given = [dice.standard_normal((rows, 70, c)).astype(np.float16) for rows in (5, 3)]
    moved = check(channels_last(c), given, arch=arch)
    copies = [moved[0], moved[1], moved[-1]] if len(moved) == 4 else [moved[0]]
    assert all(loaded.is_fewest and stored.is_fewest for loaded, stored in copies)


def test_heads_that_lie_last() -> None:
    """Attention with heads last: all three arrays and the result."""
    q, k, v = (array("f16", **{row: None, d: 64, "h": 16}) for row, d in (("q", "d"), ("x", "d"), ("x", "e")))
    s, p, o = array("f32", h=16, q=None, x=None), array("f16", h=16, q=None, x=None), array("f32", q=None, e=64, h=16)
    text = f"""
func.func @f(%Q: {q}, %K: {k}, %V: {v}) -> {o} attributes {{sizes = #diagram.sizes<q = 2048, x = 2048>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : {q}, {k} -> {s}
  %P = diagram.apply @softmax(%S) over [x] : ({s}) -> {s}
  %P16 = diagram.cast %P : {s} -> {p}
  %O = diagram.contract %P16, %V over [x] accumulate f32 : {p}, {v} -> {o}
  func.return %O : {o}
}}
"""
    road = compiled(text, machine="h100")
    assert len(road.kernels) > 1
    road.check({"q": 37, "x": 41})


KEPT_TOO = """
!X = tensor<?x?x?xf16, #diagram.array<[d, b, c]>>
!Y = tensor<?x?x?xf32, #diagram.array<[d, b, c]>>
!W = tensor<?x?x?xf32, #diagram.array<[c, d, b]>>
!C = tensor<?x?xf32, #diagram.array<[c, b]>>
!D = tensor<?x?xf32, #diagram.array<[d, b]>>
func.func @f(%X: !X, %n: i32 {diagram.up_to = "c"}, %Y: !Y) -> (!C, !D, !W) {
  %V = diagram.map (%x = %X : !X) -> !W {
    %w = arith.extf %x : f16 to f32
    diagram.yield %w : f32
  }
  %K = diagram.where %V if "c >= n2" with (n2 = %n : i32) : !W
  %D = diagram.contract %V, %Y over [c] accumulate f32 as tf32 : !W, !Y -> !D
  %C = diagram.contract %V, %V over [d] accumulate f32 as tf32 : !W, !W -> !C
  func.return %C, %D, %K : !C, !D, !W
}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_conditions_leave_of_an_array_keeps_its_order(machine: str) -> None:
    """Where that is a result, too (random program 40099)."""
    random = np.random.default_rng(0)
    X, Y = (random.standard_normal((2, 5, 3)).astype(dtype) for dtype in (np.float16, np.float32))
    module = parse_module(KEPT_TOO)
    before = run_function(module, [X, 1, Y]).results
    run_passes(module, through(Options(machine=machine), "hierarchy-transpose-arrays"))
    for own, other in zip(run_function(module, [X, 1, Y]).results, before, strict=True):
        np.testing.assert_allclose(own[1:], other[1:], rtol=1e-4)
        assert own.shape == other.shape
