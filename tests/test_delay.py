"""Products delayed by a turn: which, where they stand, and that barriers still hold."""

from __future__ import annotations

from functools import cache

import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from benchmarking import benchmark
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda

programs = benchmark("programs")
PRODUCT, WAIT, RELEASE = "cuda.warpgroup_product", "cuda.warpgroup_wait", "cuda.release"


@cache
def kernel(name: str) -> cuda.KernelOp:
    """The kernel with roles of an example, after all passes."""
    module = parse_module((programs.EXAMPLES / f"{name}.mlir").read_text())
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


@pytest.mark.parametrize("name", ["matmul", "matmul_gelu"])
def test_a_turn_of_one_product_has_nothing_to_run_beside(name: str) -> None:
    ops = list(main_loop(kernel(name)).body.block.ops)
    assert found(ops, PRODUCT, WAIT) == [PRODUCT, WAIT]
    assert [op.pending.data for op in ops if isinstance(op, cuda.WarpgroupWaitOp)] == [0]
