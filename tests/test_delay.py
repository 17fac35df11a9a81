"""Products delayed by a turn, and such as run on into the next: which, where they stand, and that barriers hold."""

from __future__ import annotations

import re
from functools import cache

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, Region
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

programs = benchmark("programs")
PRODUCT, WAIT, RELEASE = "cuda.warpgroup_product", "cuda.warpgroup_wait", "cuda.release"
DRAIN = "cuda.warpgroup_drain"
DEEP = re.compile(r"#diagram\.sizes<[^>]*>")
H100 = pipeline(Options(arch="sm_90a"))
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


@cache
def kernel(name: str) -> cuda.KernelOp:
    """The kernel with roles of an example, after all passes."""
    text = (programs.EXAMPLES / f"{name}.mlir").read_text()
    if name == "matmul_int8":  # whose own size single warps multiply as fast, by the model
        text = DEEP.sub("#diagram.sizes<t = 1024, i = 1024, o = 1024>", text)
    module = parse_module(text)
    run_pipeline(module, Options(arch="sm_90a"))
    return next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op))


def main_loop(of: cuda.KernelOp) -> scf.ForOp:
    roles = cuda.roles_of(of)
    assert roles is not None
    return next(op for op in roles.consumers.walk() if isinstance(op, scf.ForOp))


def found(ops: list[Operation], *names: str) -> list[str]:
    return [op.name for op in ops if op.name in names]


@pytest.mark.parametrize("name", ["attention", "attention_bf16", "attention_gqa", "attention_sigmoid"])
def test_a_turn_starts_both_products_before_its_first_wait(name: str) -> None:
    loop = main_loop(kernel(name))
    ops = list(loop.body.block.ops)
    assert found(ops, PRODUCT, WAIT) == [PRODUCT, PRODUCT, WAIT, WAIT]
    assert [op.pending.data for op in ops if isinstance(op, cuda.WarpgroupWaitOp)] == [1, 0]
    first, delayed = (op for op in ops if isinstance(op, cuda.WarpgroupProductOp))
    assert first.accumulator is None
    assert delayed.accumulator in loop.body.block.args
    assert delayed.lhs in loop.body.block.args
    assert ring_problems(kernel(name)) == []


def test_the_first_turn_and_the_last_product_stand_around_the_loop() -> None:
    branch = main_loop(kernel("attention")).parent_op()
    assert isinstance(branch, scf.IfOp)
    ops = list(branch.true_region.block.ops)
    assert found(ops, PRODUCT, WAIT, RELEASE, "scf.for") == [PRODUCT, WAIT, RELEASE, "scf.for", PRODUCT, WAIT, RELEASE]
    assert found(list(branch.false_region.block.ops), "scf.yield") == ["scf.yield"]


@pytest.mark.parametrize("name", ["attention", "attention_f8"])
def test_what_a_turn_computes_with_is_awaited_in_it(name: str) -> None:
    for loop in [op for op in consumers(kernel(name)).walk() if isinstance(op, scf.ForOp)]:
        assert found(list(loop.body.block.ops), DRAIN) == []


# -- products that run on ----------------------------------------------------------------------------


def consumers(of: cuda.KernelOp) -> Region:
    roles = cuda.roles_of(of)
    assert roles is not None
    return roles.consumers


@pytest.mark.parametrize(("name", "count"), [("matmul", 1), ("matmul_gelu", 1), ("matmul_int8", 1), ("swiglu", 2)])
def test_products_of_a_turn_run_on_into_the_next(name: str, count: int) -> None:
    loop = main_loop(kernel(name))
    ops = list(loop.body.block.ops)
    assert found(ops, PRODUCT, WAIT, DRAIN) == [PRODUCT] * count + [DRAIN]
    (drain,) = (op for op in ops if isinstance(op, cuda.WarpgroupDrainOp))
    assert drain.pending.data == count
    assert all(drain.is_before_in_block(op) for op in ops if isinstance(op, cuda.ReleaseOp))
    branch = loop.parent_op()
    assert isinstance(branch, scf.IfOp)
    around = found(list(branch.true_region.block.ops), PRODUCT, WAIT, "scf.for")
    assert around == [PRODUCT] * count + ["scf.for"] + [WAIT] * count
    assert ring_problems(kernel(name)) == []


@cache
def deep() -> tuple[ModuleOp, ModuleOp, str]:
    """A product of two rows of pieces, in steps of 64: it, its module and its file."""
    module = parse_module(
        DEEP.sub("#diagram.sizes<m = 256, n = 64, k = 512>", (programs.EXAMPLES / "matmul.mlir").read_text())
    )
    algorithm = module.clone()
    given = {"group": ("m=128,n=64",), "stream": ("k=64",)}
    specs = [ArgSpec(CHOOSING_PASS, {**given}) if s.name == CHOOSING_PASS else s for s in H100]
    run_passes(module, specs)
    return algorithm, module, print_cuda(module)


def execute(depth: int, seed: int = 0, printed: str | None = None) -> bool:
    """Whether a product of that depth is right (EmulationError)."""
    algorithm, module, own = deep()
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, {"m": 130, "n": 72, "k": depth}), seed)
    execution = HostExecution(module, EmulatorBackend(printed or own, kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    (launch,) = execution.launches
    assert "_specialised" in launch.kernel
    return all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


@needs_compiler
@pytest.mark.parametrize("depth", [8, 64, 72, 128, 648])
def test_products_that_run_on_are_right_at_any_number_of_turns(depth: int) -> None:
    assert execute(depth)


@needs_compiler
def test_products_that_run_on_are_right_in_any_order_of_completion() -> None:
    for seed in range(1, 6):
        assert execute(648, seed)


FAULTS = {
    "two turns run on": (r"wgmma_wait<1>", "wgmma_wait<2>"),
    "nobody waits in the loop": (r"wgmma_wait<1>\(\);", ""),
    "nobody waits after it": (r"wgmma_wait<0>\(\);", ""),
    "its own stage is given back": (r"turn_before = turn - 1\b", "turn_before = turn"),
}


@needs_compiler
@pytest.mark.parametrize("what", FAULTS)
def test_a_mistake_in_products_that_run_on_is_noticed(what: str) -> None:
    begin, kernel, rest = deep()[2].partition("matmul_kernel_specialised_body")
    printed, count = re.subn(*FAULTS[what], rest)
    assert count
    whole = begin + kernel + printed
    with pytest.raises(EmulationError):
        assert all(execute(648, seed, whole) for seed in range(6)), "no report"
