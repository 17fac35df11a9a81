"""A product of a warpgroup takes its accumulators from the registers that a thread starts with: with three warpgroups
that compute there are 128, and ptxas makes no code for more than 196 columns."""

from __future__ import annotations

import pytest

from benchmarking import benchmark
from treadle.compiler.cost import are_of_warpgroups
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import print_cuda
from treadle.dialects import cuda
from treadle.passes.warps.laws import AT_LAUNCH, REGISTERS
from treadle.runtime.nvcc import compile_cubin, find_nvcc

model = benchmark("model")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")

CASES = {
    "product": lambda columns: model.Case("matmul", "h100", 4096, {"m": 192, "n": columns, "k": 64}, {"m": 12}),
    "scores": lambda columns: model.Case("attention", "h100", 64, {"q": 192, "x": columns}, {"q": 12}),
}


@pytest.mark.parametrize(("columns", "roles"), [(192, True), (208, False), (256, False)])
@pytest.mark.parametrize("name", CASES)
def test_the_model_and_the_pass_agree_on_columns(name: str, columns: int, roles: bool):
    module, plan = model.lowered(CASES[name](columns))
    assert bool(are_of_warpgroups(plan, load_machine("h100"))) == roles
    kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    assert any(cuda.roles_of(kernel) is not None for kernel in kernels) == roles
    if not roles:
        assert f"{columns} columns; 3 warpgroups that compute have at most 196 each" in str(module)


def test_registers_at_the_start_are_the_share_of_a_thread():
    limits = load_machine("h100").limits
    for groups, found in AT_LAUNCH.items():
        share = limits.registers_per_sm // (128 * (groups + 1)) // 8 * 8
        assert found == (share if groups > 1 else limits.registers_per_thread)
        producer, consumer = REGISTERS[groups]
        assert producer + groups * consumer <= limits.registers_per_sm // 128


@needs_nvcc
def test_the_widest_product_of_three_warpgroups_compiles():
    module, _ = model.lowered(CASES["product"](192))
    cubin = compile_cubin(print_cuda(module), "sm_90a")
    assert [each.spilled_bytes for each in cubin.resources if each.kernel.endswith("_specialised")] == [0]


@pytest.mark.full
@needs_nvcc
def test_a_large_product_compiles():
    """With the sizes that the model chose before it knew, ptxas had no registers for an instruction."""
    module, _ = model.lowered(model.Case("matmul", "h100", 8192))
    assert compile_cubin(print_cuda(module), "sm_90a").resources
