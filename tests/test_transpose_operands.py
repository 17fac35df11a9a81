"""`diagram-transpose-operands`: 8-bit operands across the sum are multiplied as they are, come out right at any sizes
and strides, and are transposed only where the model finds that faster."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, matmul
from treadle.compiler.cost.kernel.operands import written
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, through
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._functions import functions
from treadle.passes.products.transposed_operands import is_made_so, transposed_operands

PASS = "diagram-transpose-operands"
ROOT = Path(__file__).parents[1]
AS_ROWS = "!V = tensor<?x?x64x?xf8E4M3FN, #diagram.array<[b, h, e, x]>>"
AS_COLUMNS = "!V = tensor<?x?x?x64xf8E4M3FN, #diagram.array<[b, h, x, e]>>"
ATTENTION = (ROOT / "examples/attention_f8.mlir").read_text().replace(AS_ROWS, AS_COLUMNS)
ACROSS = (ROOT / "tests/programs/across_the_sum.mlir").read_text()


def transposed(text: str, machine: str, *operands: str) -> Road:
    """Compiled with these operands transposed, whatever that costs."""
    algorithm = parse_module(text)
    module = algorithm.clone()
    asked = ArgSpec(PASS, {"operands": operands})
    run_passes(module, [asked if each.name == PASS else each for each in pipeline(Options(machine))])
    return Road(algorithm, module, print_cuda(module))


def multiplied(road: Road) -> set[str]:
    """The formats of operands that products have."""
    products = (cuda.ProductOp, cuda.ProductOfWarpgroupsOp, cuda.PromotedProductOp)
    return {str(format_of(op.rhs.type)) for op in road.module.walk() if isinstance(op, products)}


def decided(text: str, machine: str, last: str = PASS) -> FuncOp:
    module = parse_module(text)
    run_passes(module, through(Options(machine), last))
    (function,) = functions(module)
    return function


def machine_around(function: FuncOp) -> Machine:
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    return machine_of(module)


def stated(text: str, **sizes: int) -> str:
    """The same program, made for these sizes."""
    said = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    return text.replace(" {\n", f" attributes {{sizes = #diagram.sizes<{said}>}} {{\n", 1)


def product(lhs: str, rhs: str, format: str) -> str:
    text = matmul(lhs, rhs, format)
    return text.replace("accumulate f32", "accumulate i32").replace("xf32", "xi32") if "i8" in format else text


def steps(function: FuncOp) -> list[tuple[str, str]]:
    found = [(step.rewrite.data, step.subject.data) for step in derivation_of(function.attributes)]
    return [step for step in found if PASS in step[0]]


@pytest.mark.parametrize(
    ("machine", "format", "lhs", "rhs", "names"),
    [
        ("l40s", "f8E4M3FN", "mk", "kn", ("B",)),
        ("l40s", "f8E5M2", "km", "kn", ("A", "B")),
        ("h100", "f8E4M3FN", "km", "nk", ("A",)),
        ("h100", "f8E5M2", "km", "kn", ("A", "B")),
        ("h100", "i8", "mk", "kn", ("B",)),
        ("a100", "ui8", "km", "kn", ("A", "B")),
    ],
)
def test_products_are_right_at_any_sizes(machine: str, format: str, lhs: str, rhs: str, names: tuple[str, ...]) -> None:
    road = transposed(product(lhs, rhs, format), machine, *names)
    assert multiplied(road) == {format}
    for sizes in ({"m": 70, "n": 48, "k": 96}, {"m": 33, "n": 65, "k": 47}, {"m": 1, "n": 3, "k": 5}):
        road.check(sizes)


@pytest.mark.parametrize("machine", ["l40s", "h100"])
def test_a_copy_of_its_own_feeds_warpgroups(machine: str) -> None:
    """Of large products on an H100 one kernel copies, and warpgroups multiply; on an L40S lanes turn words on the way
    to the tile."""
    road = transposed(stated(matmul("mk", "kn", "f8E4M3FN"), m=4096, n=4096, k=4096), machine, "B")
    names = [kernel.sym_name.data.removesuffix("_kernel") for kernel in road.kernels]
    assert len(set(names)) > 1 if machine == "h100" else len(set(names)) == 1
    assert multiplied(road) == {"f8E4M3FN"}
    assert ("wgmma_m64n" in road.text) == (machine == "h100")
    for sizes in ({"m": 150, "n": 144, "k": 272}, {"m": 33, "n": 65, "k": 47}):
        road.check(sizes)


def test_the_model_counts_a_store_for_each_byte_that_is_turned() -> None:
    """Lanes have neighbours along n, and the tile along k; what is only widened goes there in words."""
    text = matmul("mk", "kn", "f8E4M3FN")
    module = parse_module(text)
    asked = ArgSpec(PASS, {"operands": ("B",)})
    specs = through(Options("l40s"), "fusion")
    run_passes(module, [asked if each.name == PASS else each for each in specs])
    (moved,) = (op.result for op in module.walk() if isinstance(op, MapOp))
    assert written(moved).factor == 1
    wide = parse_module(text)
    run_passes(wide, [each for each in specs if each.name != PASS])
    casts = [op.result for op in wide.walk() if isinstance(op, CastOp)]
    assert {written(cast).factor for cast in casts} == {1 / 2}


def test_any_strides() -> None:
    road = transposed(matmul("mk", "kn", "f8E4M3FN"), "l40s", "B")
    dice = np.random.default_rng(0)
    a = dice.standard_normal((37, 2 * 51)).astype(ml_dtypes.float8_e4m3fn)[:, ::2]
    b = dice.standard_normal((43, 51)).astype(ml_dtypes.float8_e4m3fn).T
    for given in ([a, b], [a[::-1], b[:, ::-1]], [a, b[:, 3:40:4]]):
        assert all(verdict.ok for verdict in road.verdicts(given))


@pytest.mark.parametrize(
    ("machine", "size", "pays"), [("h100", 4096, True), ("l40s", 4096, True), ("h100", 64, False), ("l40s", 64, False)]
)
def test_the_model_decides(machine: str, size: int, pays: bool) -> None:
    function = decided(stated(matmul("mk", "kn", "f8E4M3FN"), m=size, n=size, k=size), machine)
    assert steps(function) == [(PASS, "%B as [n, k]") if pays else (f"decline {PASS}", "%B")]
    assert any(isinstance(op, MapOp) for op in function.body.block.ops) == pays


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_integers_are_no_longer_multiplied_without_tensor_cores(machine: str) -> None:
    function = decided(stated(product("km", "kn", "i8"), m=1024, n=1024, k=1024), machine, "diagram-widen-operands")
    assert [subject for _, subject in steps(function)] == ["%A as [m, k]", "%B as [n, k]"]
    assert not any(isinstance(op, CastOp) for op in function.body.block.ops)


def test_what_tensor_cores_never_take_stays() -> None:
    function = decided(stated(matmul("mk", "kn", "f8E4M3FN"), m=4096, n=4096, k=4096), "a100")
    assert not steps(function)


def test_what_products_need_together_is_decided_together() -> None:
    """An operand that one product needs is in vain without the other one; another product has nothing to do with it."""
    a, b, c, d = (array("f8E4M3FN", **dict.fromkeys(axes)) for axes in ("km", "kn", "kl", "jl"))
    first, second, third = (array("f32", **dict.fromkeys(axes)) for axes in ("mn", "ml", "kj"))
    function = decided(
        f"""
func.func @f(%A: {a}, %B: {b}, %C: {c}, %D: {d}) -> ({first}, {second}, {third}) {{
  %X = diagram.contract %A, %B over [k] accumulate f32 : {a}, {b} -> {first}
  %Y = diagram.contract %A, %C over [k] accumulate f32 : {a}, {c} -> {second}
  %Z = diagram.contract %C, %D over [l] accumulate f32 : {c}, {d} -> {third}
  func.return %X, %Y, %Z : {first}, {second}, {third}
}}
""",
        "h100",
        "set-machine",
    )
    (found,) = transposed_operands(function.body.block, machine_around(function))
    needed = [(each.value.name_hint, each.axes) for each in found]
    assert needed == [("A", ("m", "k")), ("B", ("n", "k")), ("C", ("l", "k"))]
    assert not any(is_made_so(each) for each in found)
    alone = decided(ACROSS, "h100", "set-machine")
    groups = transposed_operands(alone.body.block, machine_around(alone))
    assert [[each.value.name_hint for each in group] for group in groups] == [["B"], ["F8"]]
    assert [is_made_so(each) for group in groups for each in group] == [False, False]


@pytest.mark.parametrize("machine", ["l40s", "h100"])
def test_attention_whose_values_lie_in_rows(machine: str) -> None:
    """Each row of V is a key's: the second product sums over the keys."""
    road = transposed(ATTENTION, machine, "V")
    assert multiplied(road) == {"f8E4M3FN"}
    road.check({"b": 1, "h": 2, "q": 33, "x": 100})


def test_attention_for_long_sequences() -> None:
    road = transposed(ATTENTION.replace("q = 120, x = 144", "q = 4096, x = 4096"), "h100", "V")
    assert {kernel.sym_name.data.split("_kernel")[0] for kernel in road.kernels} == {"attention_f8_1", "attention_f8_2"}
    assert "wgmma_m64n" in road.text
    road.check({"b": 1, "h": 2, "q": 130, "x": 272})


def made(result: str) -> str:
    x, w, u = array("f16", t=None, c=None), array("f16", i=None, c=None), array("f8E4M3FN", o=None, t=None)
    y, y8, z = array("f32", t=None, i=None), array("f8E4M3FN", t=None, i=None), array("f32", o=None, i=None)
    types = {"%Z": z, "%Z, %Y8": f"{z}, {y8}"}[result]
    return f"""
func.func @f(%X: {x}, %W: {w}, %U: {u}) -> ({types})
    attributes {{sizes = #diagram.sizes<t = 4096, c = 4096, i = 4096, o = 4096>}} {{
  %Y = diagram.contract %X, %W over [c] accumulate f32 : {x}, {w} -> {y}
  %Y8 = diagram.cast %Y : {y} -> {y8}
  %Z = diagram.contract %U, %Y8 over [t] accumulate f32 : {u}, {y8} -> {z}
  func.return {result} : {types}
}}
"""


@pytest.mark.parametrize("machine", ["l40s", "h100"])
def test_what_the_program_makes_is_made_so(machine: str) -> None:
    function = decided(made("%Z"), machine)
    (cast,) = (op for op in function.body.block.ops if isinstance(op, CastOp))
    assert axes_of(cast.result.type) == ("i", "t")
    assert not any(isinstance(op, MapOp) for op in function.body.block.ops)
    road = transposed(made("%Z"), machine, "Y8")
    assert len({kernel.sym_name.data.split("_kernel")[0] for kernel in road.kernels}) == 2
    road.check({"t": 70, "c": 40, "i": 33, "o": 50})


@pytest.mark.parametrize("machine", ["l40s", "h100"])
def test_what_the_caller_wants_as_it_is_is_moved(machine: str) -> None:
    road = transposed(made("%Z, %Y8"), machine, "Y8")
    assert multiplied(road) == {"f16", "f8E4M3FN"}
    road.check({"t": 70, "c": 40, "i": 33, "o": 50})


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_conditions_and_arrays_that_are_summed_along_both_axes(machine: str) -> None:
    road = transposed(ACROSS, machine, "B", "F8")
    assert multiplied(road) == {"i8"}
    for sizes in ({"m": 20, "k": 40, "n": 36, "j": 24}, {"m": 3, "k": 17, "n": 33, "j": 5}):
        inputs = road.inputs(sizes)
        assert all(verdict.ok for verdict in road.verdicts((*inputs[:-1], sizes["k"] - 4), sizes))


@pytest.mark.parametrize("machine", ["l40s", "h100"])
@pytest.mark.parametrize("axes", ["d, a", "a, d"])
def test_an_operand_without_the_depth_has_no_order_for_it(axes: str, machine: str) -> None:
    """Of a sum over an axis that one operand alone has."""
    left, right, result = (
        array("f8E5M2", d=None, a=64),
        array("f8E5M2", d=None, b=8),
        array("f32", b=8),
    )
    text = f"""
    func.func @f(%A: {left}, %B: {right}) -> {result} {{
      %C = diagram.contract %A, %B over [{axes}] accumulate f32 : {left}, {right} -> {result}
      func.return %C : {result}
    }}
    """
    function = decided(text, machine)
    assert not [op for op in function.walk() if isinstance(op, MapOp)]
