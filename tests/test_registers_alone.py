"""Registers of kernels without products: what a lane holds at once, as the lowering spreads it and as ptxas counts."""

from __future__ import annotations

import shutil
from functools import cache
from math import prod
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import Plan, footprint, plan_of
from treadle.compiler.cost.kernel.lanes import Lanes
from treadle.compiler.cost.reading.moments import moments_of
from treadle.compiler.lowering.layouts import Layouts
from treadle.compiler.lowering.plan import plan_kernel
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.hierarchy import KernelOp, LoadOp
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass
from treadle.runtime.nvcc import compile_cubin

ROOT = Path(__file__).parents[1]
FREE = 32
"""Registers that cost nothing: an SM is full of warps that have no more."""

GATED_NORM = """
!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!g = tensor<?xf32, #diagram.array<[i]>>
!W = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
func.func @gated_norm(%X: !X, %G: !X, %gamma: !g) -> !X attributes {sizes = #diagram.sizes<t = 50, i = 1024>} {
  %wide = diagram.cast %X : !X -> !W
  %gate = diagram.cast %G : !X -> !W
  %power = diagram.apply @mean_square(%wide) over [i] : (!W) -> !r
  %Y = diagram.map (%x = %wide : !W, %p = %power : !r, %g = %gamma : !g, %h = %gate : !W) -> !W {
    %one = arith.constant 1.0 : f32
    %scale = math.rsqrt %p : f32
    %normal = arith.mulf %x, %scale : f32
    %y = arith.mulf %normal, %g : f32
    %n = arith.negf %h : f32
    %e = math.exp %n : f32
    %o = arith.addf %e, %one : f32
    %q = arith.divf %h, %o : f32
    %z = arith.mulf %y, %q : f32
    diagram.yield %z : f32
  }
  %Y16 = diagram.cast %Y : !W -> !X
  func.return %Y16 : !X
}
"""


def added(arrays: str, result: str, format: str) -> str:
    """The sum of arrays whose axes are letters, element by element: `ijk kji` of two in different orders."""
    types = [f"!R = {_type(result, format)}", f"!RW = {_type(result, 'f32')}"]
    casts: list[str] = []
    for i, axes in enumerate(arrays.split()):
        types += [f"!T{i} = {_type(axes, format)}", f"!W{i} = {_type(axes, 'f32')}"]
        casts.append(f"%w{i} = diagram.cast %a{i} : !T{i} -> !W{i}")
    count = len(casts)
    sums = [f"%s{i} = arith.addf %s{i - 1}, %e{i} : f32" for i in range(1, count)]
    inputs = ", ".join(f"%{'s' if i == 0 else 'e'}{i} = %w{i} : !W{i}" for i in range(count))
    arguments = ", ".join(f"%a{i}: !T{i}" for i in range(count))
    body = "\n".join([*sums, f"diagram.yield %s{count - 1} : f32"])
    return "\n".join(
        [
            *types,
            f"func.func @added({arguments}) -> !R attributes {{sizes = #diagram.sizes<i = 100, j = 99, k = 128>}} {{",
            *casts,
            f"%y = diagram.map ({inputs}) -> !RW {{\n{body}\n}}",
            "%z = diagram.cast %y : !RW -> !R",
            "func.return %z : !R\n}",
        ]
    )


def _type(axes: str, format: str) -> str:
    return f"tensor<{'?x' * len(axes)}{format}, #diagram.array<[{', '.join(axes)}]>>"


PROGRAMS = {
    "gated_norm": GATED_NORM,
    "alike": added("ijk ijk", "ijk", "f16"),
    "orders": added("ijk jik kji", "ijk", "f16"),
    "five orders": added("ijk jik kji kij ikj", "ijk", "f16"),
    "five orders of f32": added("ijk jik kji kij ikj", "ijk", "f32"),
    "turned": added("ijk", "kji", "f16"),
    "turned f32": added("ijk", "kji", "f32"),
    "fewer axes": added("ij jk ki", "ijk", "f16"),
} | {
    name: (ROOT / "examples" / f"{name}.mlir").read_text()
    for name in ("softmax", "log_softmax", "log_sum_exp", "variance", "rms_norm", "layer_norm", "cross_entropy")
}

CASES = [
    ("alike", "i=1,j=8,k=128", "", {"a100": 24, "h100": 24}),
    ("orders", "i=1,j=8,k=128", "", {"a100": 36, "h100": 40}),
    ("five orders", "i=1,j=8,k=128", "", {"a100": 72, "h100": 71}),
    ("five orders of f32", "i=1,j=4,k=128", "", {"a100": 48, "h100": 48}),
    ("turned", "k=128,j=4,i=1", "", {"a100": 48, "h100": 46}),
    ("turned f32", "k=128,j=4,i=1", "", {"a100": 48, "h100": 48}),
    ("fewer axes", "i=1,j=8,k=128", "", {"a100": 39, "h100": 36}),
    ("log_softmax", "row=4", "x=1024", {"a100": 64, "h100": 63}),
    ("log_sum_exp", "row=4", "x=1024", {"a100": 52, "h100": 53}),
    ("variance", "row=4", "x=1024", {"a100": 74, "h100": 79}),
    ("rms_norm", "t=4", "i=1024", {"a100": 79, "h100": 79}),
    ("layer_norm", "t=4", "i=1024", {"a100": 116, "h100": 127}),
    ("cross_entropy", "t=4", "c=1024", {"a100": 121, "h100": 124}),
]
"""What ptxas 13.0 takes of each for the blocks that the model counts on, with nothing spilled."""


@cache
def lowered(name: str, machine: str, group: str = "", stream: str = "") -> tuple[Plan, Plan, ModuleOp, ModuleOp]:
    """The plans of the decorated and of the explicit kernel, the explicit module, and that with all passes run."""
    module = parse_module(PROGRAMS[name])
    passes = list(pipeline(Options(machine=machine)))
    names = [spec.name for spec in passes]
    choosing, explicit = names.index(CHOOSING_PASS), names.index(LAST_HIERARCHY_PASS) + 1
    run_passes(module, passes[:choosing])
    with pytest.MonkeyPatch.context() as patch:
        if stream:  # what was measured of these has a warp for each row
            patch.setattr("treadle.compiler.cost.choice.candidates.ROW_WARPS", (1,))
        HierarchyChooseSizesPass(group=group or None, stream=stream or None).apply(Context(), module)
    decorated = plan_in(module)
    run_passes(module, passes[choosing:explicit])
    before = module.clone()
    plan = plan_in(module)
    run_passes(module, passes[explicit:])
    return decorated, plan, before, module


def kernel_in(module: ModuleOp) -> KernelOp:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return kernel


def plan_in(module: ModuleOp) -> Plan:
    return plan_of(kernel_in(module))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_lane_holds_what_the_lowering_gives_it(name: str):
    decorated, plan, explicit, _ = lowered(name, "a100")
    assert decorated.held == plan.held
    kernel = kernel_in(explicit)
    moments, layouts = moments_of(kernel), Layouts(plan_kernel(kernel))
    loads = [op.result for op in kernel.walk() if isinstance(op, LoadOp)]
    sizes = {axis: size for each in loads for axis, size in sizes_of(each.type).items()}
    lanes = Lanes(moments.axes, moments.buffers, moments.vector, moments.singly, sizes, plan.warps)
    for each in loads:
        assert lanes.elements(axes_of(each.type)) == prod(mode.size for mode in layouts.of(each).register)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("name", "group", "stream", "taken"), CASES)
def test_registers_are_within_a_sixth_of_what_ptxas_takes(
    name: str, group: str, stream: str, taken: dict[str, int], machine: str
):
    decorated, plan, _, _ = lowered(name, machine, group, stream)
    predicted = footprint(plan, load_machine(machine)).registers_per_thread
    assert footprint(decorated, load_machine(machine)).registers_per_thread == predicted
    assert max(predicted, FREE) == pytest.approx(max(taken[machine], FREE), rel=0.16)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["five orders", "turned", "gated_norm", "variance", "softmax"])
def test_nothing_is_spilled_for_the_blocks_that_are_stated(name: str, machine: str):
    _, plan, _, module = lowered(name, machine)
    blocks = int(footprint(plan, load_machine(machine)).blocks_on(load_machine(machine)))
    (kernel,) = (op for op in module.walk() if isinstance(op, cuda.KernelOp))
    assert kernel.resident is not None
    assert kernel.resident.data == blocks
    for each in compile_cubin(print_cuda(module), load_machine(machine).arch).resources:
        assert each.spilled_bytes == 0, each


def test_numbers_of_16_bits_that_are_no_neighbours_take_a_register_each():
    tiles = {"i": 8, "k": 128}
    buffers = ((("i", "k"), False), (("k", "i"), False), (("i", "k"), True))
    lanes = Lanes(("i", "k"), buffers, 8, frozenset(), tiles, {"i": 4})
    assert lanes.elements(("i", "k")) == lanes.elements(("k", "i")) == 8
    assert lanes.are_neighbours(("i", "k"))
    assert not lanes.are_neighbours(("k", "i"))
