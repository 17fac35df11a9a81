"""Results that leave by tensor copies: right at all shapes and in every order of completion, and every mistake in what
orders the writes of the tile, its copy and its next use is noticed, in the IR and in the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from benchmarking import benchmark
from treadle.compiler.cost import are_of_warpgroups, plan_of
from treadle.compiler.cost.kernel.leaving import leaving_slots
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, print_cuda, run_pipeline
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")

LARGE = {"m": 2048, "n": 2048, "k": 512}
"""Sizes for which pieces are chosen: large ones."""

SMALL = {"m": 200, "n": 136, "k": 72}


def product(kind: str = "") -> str:
    text = (programs.EXAMPLES / f"matmul{kind}.mlir").read_text()
    return re.sub(r"#diagram\.sizes<[^>]*>", "#diagram.sizes<m = 2048, n = 2048, k = 512>", text)


@cache
def made(text: str) -> tuple[ModuleOp, ModuleOp, str]:
    """The algorithm, its module for sm_90a, and the printed file."""
    module = parse_module(text)
    algorithm = module.clone()
    run_pipeline(module, Options(arch="sm_90a"))
    return algorithm, module, print_cuda(module)


def execute(text: str, sizes: Mapping[str, int], seed: int = 0, printed: str = "") -> tuple[list[str], bool]:
    """The kernels that were launched, and whether all outputs are right (EmulationError)."""
    algorithm, module, own = made(text)
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed)
    execution = HostExecution(module, EmulatorBackend(printed or own, kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    verdicts = verify(algorithm, inputs, outputs, "emulator")
    return [launch.kernel for launch in execution.launches], all(verdict.ok for verdict in verdicts)


def stored(text: str) -> cuda.KernelOp:
    """The kernel with a tensor store."""
    return next(
        op
        for op in made(text)[1].body.block.ops
        if isinstance(op, cuda.KernelOp) and any(isinstance(each, cuda.TensorStoreOp) for each in op.walk())
    )


@needs_compiler
@pytest.mark.parametrize("kind", ["", "_nt", "_tn", "_tt"])
@pytest.mark.parametrize(("m", "n", "k"), [(200, 136, 72), (128, 256, 128), (8, 8, 8), (136, 520, 16)])
@pytest.mark.sample(6)
def test_products_leave_by_tensor_copies_at_any_size(kind: str, m: int, n: int, k: int) -> None:
    stored(product(kind))
    launched, right = execute(product(kind), {"m": m, "n": n, "k": k})
    assert right
    assert launched == [f"matmul{kind}_kernel_specialised"]


@needs_compiler
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("q", "x"), [(100, 70), (192, 128), (1, 1)])
def test_attention_leaves_by_tensor_copies(width: int, q: int, x: int) -> None:
    text = programs.attention(width, {"b": 4, "h": 16, "q": 2048, "x": 2048})  # of fewer heads keys would be split
    stored(text)
    assert execute(text, {"b": 1, "h": 2, "q": q, "x": x}) == (["attention_kernel_specialised"], True)


@needs_compiler
def test_a_transposed_result_is_turned_on_the_way() -> None:
    """Rows of the accumulator run along the rows of the boxes or across them: `stmatrix` turns 8 x 8 matrices."""
    text = (programs.EXAMPLES / "matmul_transposed.mlir").read_text()
    text = re.sub(r"#diagram\.sizes<[^>]*>", "#diagram.sizes<m = 2048, n = 2048, k = 512>", text)
    kernel = stored(text)
    assert ring_problems(kernel) == []
    assert execute(text, {"m": 200, "n": 136, "k": 72})[1]


@needs_compiler
@pytest.mark.parametrize("order", ["b, q, e, h", "e, q, b, h"])
def test_a_result_whose_rows_lie_along_heads_leaves_otherwise(order: str) -> None:
    """A box is as wide as a piece along the contiguous axis, of which a piece has one element: it was refused."""
    text = programs.attention(64, {"b": 4, "h": 16, "q": 2048, "x": 2048})
    shape = "x".join("64" if axis == "e" else "?" for axis in order.split(", "))
    turned = f"tensor<{shape}xf16, #diagram.array<[{order}]>>"
    text = text.replace("!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>", f"!O = {turned}")
    assert turned in text
    steps = (str(step) for step in derivation_of(entry_function(made(text)[1]).attributes))
    assert any("one element wide along 'h'" in step for step in steps)
    assert execute(text, {"b": 1, "h": 3, "q": 70, "x": 50}) == (["attention_kernel_specialised"], True)


@needs_compiler
def test_any_order_of_completion_gives_no_report() -> None:
    for seed in range(1, 9):
        assert execute(product(), SMALL, seed)[1]


@needs_compiler
def test_a_result_without_a_tensor_map_is_written_by_the_other_kernel() -> None:
    """Rows of 137 elements of 16 bits: no operand of the transposed product has them, the result has."""
    (kernel,), right = execute(product("_nt"), {"m": 40, "n": 137, "k": 64})
    assert right
    assert kernel.startswith("matmul_nt_kernel")
    assert "specialised" not in kernel


FAULTS = {
    "no fence": (r"fence_proxy_async\(\);", ""),
    "no barrier before the copy": (r"(fence_proxy_async\(\);)\s*barrier_named<1>\(\d+\);", r"\1"),
    "copied by one thread too many": (
        r"if \(thread == 0\) \{(\s*UNROLL[^;]*;[^;]*;[^;]*tensor_store\()",
        r"if (thread < 2) {\1",
    ),
    "the group stays open": (r"tensor_store_commit\(\);", ""),
    "no wait before the end": (r"if \(thread == 0\) tensor_store_wait<0>\(\);", ""),
    "too lax a wait": (r"tensor_store_wait<0>", "tensor_store_wait<1>"),
    "another thread waits": (r"if \(thread == 0\) tensor_store_wait", "if (thread == 1) tensor_store_wait"),
    "another swizzle": (r"in_boxes<64, (\d+), 2>\(warp", r"in_boxes<32, \1, 2>(warp"),
    "matrices turned": (r"lane % 16, (n8 \* 8) \+ lane / 16", r"lane % 16, \1 + lane / 8 % 2"),
    "the boxes in another order": (r"(tensor_store\(.*?\+ box \* \d+, \{int\(n0\) \+) box", r"\1 (3 - box)"),
    "the tile of another block": (r"(tensor_store\(.*)int\(m0\)", r"\1int(m0) + 8"),
    "the tile overwritten while it is read": (
        r"(tensor_store_commit\(\);\s*\})",
        r"\1 store_shared(vec<2>(&C16_shared_2[thread * 2]), pack<2>(&C16[0][0][0]));",
    ),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_caught(fault: str) -> None:
    pattern, replacement = FAULTS[fault]
    head, begin, body = made(product())[2].partition("template <int ALIGNED>")
    changed, count = re.subn(pattern, replacement, body)
    assert count, f"nothing in the kernel is like '{pattern}'"
    with suppress(EmulationError):
        assert not execute(product(), SMALL, 3, head + begin + changed)[1]


def erase(op: Operation) -> None:
    Rewriter.erase_op(op)


def swap(op: Operation) -> None:
    """Exchange with the next operation."""
    later = op.next_op
    assert later is not None
    op.detach()
    Rewriter.insert_op(op, InsertPoint.after(later))


def write_again(op: Operation) -> None:
    write = next(each for each in op.parent_block().ops if isinstance(each, cuda.WriteOp))  # type: ignore[union-attr]
    Rewriter.insert_op(write.clone(), InsertPoint.after(op))


def repeat_unfenced(op: Operation) -> None:
    """Once more after a wait, without a barrier between the wait and the write."""
    write = next(each for each in op.parent_block().ops if isinstance(each, cuda.WriteOp))  # type: ignore[union-attr]
    Rewriter.insert_op([write.clone(), cuda.TensorFenceOp(), cuda.BarrierOp()], InsertPoint.after(op))


MISTAKES: list[tuple[type[Operation], Callable[[Operation], None], str]] = [
    (cuda.TensorFenceOp, erase, "without 'cuda.tensor_fence' and a barrier"),
    (cuda.TensorFenceOp, swap, "without a barrier"),
    (cuda.WriteOp, erase, "which nobody has written"),
    (cuda.TensorWaitOp, erase, "no 'cuda.tensor_wait'"),
    (cuda.TensorStoreOp, write_again, "no 'cuda.tensor_wait' and a barrier"),
    (cuda.TensorWaitOp, repeat_unfenced, "no a barrier"),
]


@pytest.mark.parametrize(("kind", "change", "said"), MISTAKES)
def test_a_mistake_in_the_ir_is_found(kind: type[Operation], change: Callable[[Operation], None], said: str) -> None:
    kernel = stored(product()).clone()
    assert ring_problems(kernel) == []
    change(next(op for op in kernel.walk() if isinstance(op, kind)))
    (problem, *_) = ring_problems(kernel)
    assert said in problem


def test_the_model_keeps_small_tiles() -> None:
    """Of a tile of 2,048 bytes a thread copies one vector: a tensor copy would save nothing."""
    module = made((programs.EXAMPLES / "matmul.mlir").read_text())[1]
    assert not any(isinstance(op, cuda.TensorStoreOp) for op in module.walk())


@pytest.mark.parametrize("name", ["attention", "attention_bf16", "matmul_nt", "mlp"])
def test_the_time_counts_what_the_copy_saves(name: str) -> None:
    """The instructions of a thread for what leaves, fewer by what the derivation says of the kernel; of single warps,
    which copy by themselves, none are."""
    text = product("_nt") if name == "matmul_nt" else (programs.EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    module = parse_module(text)
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (plan,) = (plan_of(op) for op in module.walk() if isinstance(op, KernelOp))
    (leaving,) = (issue for issue in plan.issues if issue.kind == "leaving")
    assert are_of_warpgroups(plan, load_machine("h100"))
    saved = leaving_slots(leaving.count, False) - leaving_slots(leaving.count, True)
    steps = (str(step) for step in derivation_of(entry_function(made(text)[1]).attributes))
    (told,) = (step for step in steps if '"cuda-store-tensors"' in step)
    assert saved > 0
    assert f"; {saved:.0f} instructions a thread fewer" in told
