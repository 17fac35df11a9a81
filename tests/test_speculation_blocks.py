"""Turns that take their powers first (`cuda-speculate`) leave a multiprocessor as many blocks as it holds without."""

from __future__ import annotations

from functools import cache

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import attention
from treadle.compiler.cost import Plan, footprint, plan_of
from treadle.compiler.cost.kernel.warpgroups import takes_powers_first
from treadle.compiler.gates import KernelReport, report_kernels
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.nvcc import compile_cubin, find_nvcc

MACHINE = load_machine("h100")
CASES = [
    (32, 1, 32, True, 3),
    (32, 1, 64, True, 2),
    (32, 1, 96, False, None),
    (64, 1, 48, True, 2),
    (64, 1, 64, True, 2),
    (64, 1, 80, False, None),
    (64, 1, 96, True, None),
    (64, 1, 128, True, None),
    (128, 1, 64, True, None),
    (64, 2, 80, True, None),
    (64, 3, 96, True, None),
    (64, 3, 128, False, None),
]
"""Heads, warpgroups that compute, keys of a step; whether powers come first, and the blocks that the kernel states. Of
one warpgroup with 80 keys the powers would leave one block of two; with 96 one is all there is without. Several share
out all registers."""


@cache
def made(width: int, groups: int, keys: int, without: bool = False) -> tuple[Plan, ModuleOp]:
    """The plan of the kernel, and the module as it is printed."""
    module = parse_module(attention(width, width, "f16"))
    sizes: dict[str, tuple[str | int | bool | float, ...]] = {"group": (f"q={64 * groups}",), "stream": (f"x={keys}",)}
    specs = [
        ArgSpec(spec.name, {CHOOSING_PASS: sizes}.get(spec.name, spec.parameters))
        for spec in pipeline(Options(machine="h100"))
        if not (without and spec.name == "cuda-speculate")
    ]
    names = [spec.name for spec in specs]
    after = names.index(CHOOSING_PASS) + 1
    run_passes(module, specs[:after])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    plan = plan_of(kernel)
    run_passes(module, specs[after:])
    return plan, module


def of_roles(module: ModuleOp) -> cuda.KernelOp:
    return next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op) is not None)


@pytest.mark.parametrize(("width", "groups", "keys", "first", "blocks"), CASES)
def test_powers_come_first_where_no_block_is_lost(
    width: int, groups: int, keys: int, first: bool, blocks: int | None
) -> None:
    plan, module = made(width, groups, keys)
    kernel = of_roles(module)
    assert any(isinstance(op, cuda.ExceedsOp) for op in kernel.walk()) is first
    assert (None if kernel.resident is None else kernel.resident.data) == blocks
    assert bool(takes_powers_first(plan, MACHINE, footprint(plan, MACHINE).shared_bytes)) is first


def test_every_entry_but_that_of_any_strides_states_the_blocks() -> None:
    """Those of lanes that copy, too; any strides take more registers."""
    _, module = made(64, 1, 64)
    entries = print_cuda(module).split('extern "C" __global__ void ')[1:]
    bounds = {each.split("(")[1].split(")")[0]: "strided" in each.split("\n")[0] for each in entries}
    assert bounds == {"256, 2": False, "256": True}


@cache
def reports(width: int, keys: int, without: bool = False) -> list[KernelReport]:
    _, module = made(width, 1, keys, without)
    resources = compile_cubin(print_cuda(module), MACHINE.arch).resources
    assert not [each for each in resources if each.spilled_bytes]
    return report_kernels(module, resources)


@pytest.mark.full
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("width", "keys"), [(width, keys) for width, groups, keys, *_ in CASES if groups == 1])
def test_ptxas_holds_the_blocks_and_spills_nothing(width: int, keys: int) -> None:
    for report, usual in zip(reports(width, keys), reports(width, keys, without=True), strict=True):
        assert report.blocks_on_sm is not None
        assert usual.blocks_on_sm is not None
        assert report.blocks_on_sm >= usual.blocks_on_sm
