"""`hierarchy-subloop`: what a group holds of a summed axis is walked in pieces, at every level, and registers fall."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, attention, matmul
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.levels.memory import footprint
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.derivation.replay import read_derivation
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import (
    LAST_DECORATING_PASS,
    LAST_HIERARCHY_PASS,
    Options,
    pipeline,
    print_cuda,
    run_passes,
)
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._functions import functions
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import run_function, subloops
from treadle.runtime.nvcc import compile_cubin

ROOT = Path(__file__).parents[1]
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

Asked = dict[str, tuple[str | int, ...]]

PRODUCTS = {
    "f16": (matmul("mk", "kn", "f16"), {"k": 32}, "m16n8k16"),
    "bf16 transposed": (matmul("km", "nk", "bf16"), {"k": 16}, "m16n8k16"),
    "f8": (matmul("mk", "nk", "f8E4M3FN"), {"k": 32}, "m16n8k32"),
    "tf32": (matmul("mk", "kn", "f32", tf32=True), {"k": 8}, "m16n8k8_tf32"),
    "f32": (matmul("mk", "kn", "f32"), {"k": 4}, "fma"),
    "attention": (attention(64, 64, "f16"), {"d": 16}, "m16n8k16"),
    "wide attention": (attention(128, 64, "bf16", batch=("b", "h")), {"d": 64}, "m16n8k16"),
}
SIZES = {"m": 37, "n": 50, "k": 141, "q": 19, "x": 75, "b": 1, "h": 2}


def asking(subloop: Asked, machine: str = "h100", **choice: str) -> list[ArgSpec]:
    """The passes, of which `hierarchy-subloop` and the choice of sizes are asked for something."""
    asked = {"hierarchy-choose-sizes": {k: (v,) for k, v in choice.items()}, "hierarchy-subloop": subloop}
    return [ArgSpec(each.name, asked.get(each.name, each.parameters)) for each in pipeline(Options(machine=machine))]


def through(module: ModuleOp, road: list[ArgSpec], last: str) -> KernelOp:
    run_passes(module, road[: [each.name for each in road].index(last) + 1])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return kernel


def subloop_of(pieces: dict[str, int]) -> Asked:
    ((axis, size),) = pieces.items()
    return {"axis": (axis,), "size": (size,)}


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_pieces_add_up_in_kernels(name: str, machine: str) -> None:
    text, pieces, instruction = PRODUCTS[name]
    if name == "f8" and machine == "a100":
        pieces, instruction = {"k": 16}, "m16n8k16"  # widened to f16
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_passes(module, asking(subloop_of(pieces), machine, stream="k=64" if "k" in pieces else "x=32"))
    walked = [op for op in module.walk() if isinstance(op, cuda.ProductOp) and op.subloop is not None]
    assert {(op.axis, op.subloop.data, op.instruction.data) for op in walked if op.subloop is not None} == {
        (*next(iter(pieces.items())), instruction)
    }
    printed = print_cuda(module)
    assert re.search(r"UNROLL_1 for \(int \w_first = 0", printed)
    road = Road(algorithm, module, printed)
    road.check({axis: SIZES[axis] for axis in road.symbolic})


@pytest.mark.parametrize("name", ["f16", "attention"])
def test_the_interpreter_walks_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an explicit kernel as many as there are, and of the diagram before it one."""
    text, pieces, _ = PRODUCTS[name]
    ((axis, size),) = pieces.items()
    found: list[int] = []
    contract = subloops.contract

    def watched(left, right, over, axes):  # pyright: ignore
        found.extend([left.sizes[axis]] if axis in over else [])
        return contract(left, right, over, axes)

    monkeypatch.setattr(subloops, "contract", watched)
    algorithm = parse_module(text)
    road = Road(algorithm, algorithm, "")
    inputs = road.inputs({axis: SIZES[axis] for axis in road.symbolic})
    (wanted,) = run_function(algorithm, inputs).results
    assert max(found) > size
    found.clear()
    lowered = algorithm.clone()
    through(lowered, asking(subloop_of(pieces), stream="k=64" if axis == "k" else "x=32"), LAST_HIERARCHY_PASS)
    (got,) = run_function(lowered, inputs).results
    assert found
    assert max(found) == size
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_registers_hold_one_piece() -> None:
    """The model says so, the same before and after streams are explicit, and less for smaller pieces."""
    machine = load_machine("a100")
    needed: list[int] = []
    for size in (None, 64, 32, 16):
        module = parse_module(attention(128, 128, "f16", batch=("b", "h")))
        road = asking({} if size is None else subloop_of({"d": size}), "a100", group="q=64", stream="x=64")
        explicit = plan_of(through(module.clone(), road, LAST_HIERARCHY_PASS))
        plan = plan_of(through(module, road, LAST_DECORATING_PASS))
        assert plan.spared_registers == explicit.spared_registers
        assert plan.kept_registers == explicit.kept_registers
        assert footprint(plan, machine).registers_per_thread == footprint(explicit, machine).registers_per_thread
        needed.append(int(footprint(plan, machine).registers_per_thread))
    assert needed[0] > needed[1] > needed[2] > needed[3]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_ptxas_needs_fewer_registers() -> None:
    """32 are Q's of d = 128; what the loop does not load ahead comes on top."""
    needed: list[int] = []
    for subloop in ({}, subloop_of({"d": 16})):
        module = parse_module(attention(128, 128, "f16", batch=("b", "h")))
        run_passes(module, asking(subloop, "a100", group="q=64", stream="x=64"))
        needed.append(max(each.registers for each in compile_cubin(print_cuda(module), "sm_80").resources))
    assert needed[0] - needed[1] >= 24


def test_roles_decline_what_warps_load_themselves() -> None:
    module = parse_module(attention(64, 64, "f16"))
    run_passes(module, asking(subloop_of({"d": 16}), "h100", group="q=64", stream="x=64"))
    steps = [step.texts() for function in functions(module) for step in derivation_of(function.attributes)]
    (declined,) = (step for step in steps if step[0] == "decline warp-specialization")
    assert "the product over 'd' is walked by a subloop, whose pieces warps load to registers" in declined[3]


def code(module: ModuleOp) -> list[str]:
    """What is printed, without comments: they tell how sizes were chosen."""
    return [line for line in print_cuda(module).splitlines() if not line.lstrip().startswith("//")]


def test_a_derivation_says_it_and_replays(tmp_path: Path) -> None:
    path = ROOT / "examples" / "attention.mlir"
    recorder = Recorder({})
    module = load_module(path)
    run_passes(module, asking(subloop_of({"d": 32})), recorder)
    text = recorder.text("attention")
    assert "\nhierarchy-subloop{axis=d size=32}\n#   %S of @attention along d: linearity of the contraction" in text
    file = tmp_path / "attention.derivation"
    file.write_text(text)
    again = load_module(path)
    run_passes(again, list(read_derivation(str(file))))
    assert code(again) == code(module)
    other = load_module(ROOT / "examples" / "attention_causal.mlir")
    run_passes(other, list(read_derivation(str(file))))
    assert "d_first" in print_cuda(other)


def test_unasked_nothing_changes() -> None:
    plain, module = (parse_module(PRODUCTS["f16"][0]) for _ in range(2))
    run_passes(plain, [each for each in asking({}) if each.name != "hierarchy-subloop"])
    run_passes(module, asking({}))
    assert str(plain) == str(module)


REFUSED = {
    "softmax": ("x", "only %m, %l is reduced over it, of elements that are in registers already"),
    "conv1d": ("r", "a step holds one position of it"),
    "matmul": ("m", "no contraction of @matmul sums over it"),
    "attention": ("x", "is made in registers, at which no loop can point"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name: str) -> None:
    axis, reason = REFUSED[name]
    with pytest.raises(TreadleError) as refused:
        run_passes(load_module(ROOT / "examples" / f"{name}.mlir"), asking({"axis": (axis,)}))
    assert f"axis '{axis}'" in refused.value.message
    assert reason in refused.value.message
    assert refused.value.location is not None


def test_sizes_are_chosen_before() -> None:
    road = [each for each in asking({"axis": ("k",)}) if each.name != "hierarchy-choose-sizes"]
    with pytest.raises(
        TreadleError, match="the sizes of @product are not chosen yet: run hierarchy-choose-sizes first"
    ):
        run_passes(parse_module(PRODUCTS["f16"][0]), road)
