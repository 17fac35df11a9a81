"""The static check of barriers: nothing in the kernels that treadle makes, and each mistake in their IR."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from benchmarking import benchmark
from treadle.compiler.execution import Execution, Numbers
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.rings import cases, ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda

programs = benchmark("programs")


@cache
def attention() -> cuda.KernelOp:
    return made(programs.attention(64))


def made(text: str) -> cuda.KernelOp:
    module = parse_module(text)
    run_pipeline(module, Options(arch="sm_90a"), last="warp-specialization")
    return next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op))


@pytest.mark.parametrize("name", ["attention", "matmul", "matmul_tt", "attention_gqa", "matmul_gelu"])
def test_kernels_with_roles_have_no_problem(name: str) -> None:
    assert ring_problems(made((programs.EXAMPLES / f"{name}.mlir").read_text())) == []


def test_what_is_looked_at_is_what_is_executed_of_it() -> None:
    kernel, awaited = attention(), list[Operation]()
    for _, known in cases(kernel):
        every = executed(Execution(), kernel, dict(known))
        awaited = executed(Execution(lambda op: isinstance(op, cuda.AwaitOp)), kernel, dict(known))
        assert awaited == [op for op in every if isinstance(op, cuda.AwaitOp)]
    assert awaited


def executed(execution: Execution, kernel: cuda.KernelOp, known: Numbers) -> list[Operation]:
    """By the consumers."""
    roles = cuda.roles_of(kernel)
    assert roles is not None
    return [op for block in (kernel.body.block, roles.consumers.block) for op in execution.of(block, known)]


def erase(op: Operation) -> None:
    Rewriter.erase_op(op)


def repeat(op: Operation) -> None:
    Rewriter.insert_op(op.clone(), InsertPoint.after(op))


def expect_more(op: Operation) -> None:
    assert isinstance(op, cuda.ExpectOp)
    op.bytes = IntAttr(op.bytes.data + 16)


def other_turn(op: Operation) -> None:
    """Turn 0 always."""
    kernel = op.parent_op()
    while not isinstance(kernel, cuda.KernelOp):
        assert kernel is not None
        kernel = kernel.parent_op()
    zero = next(inner for inner in kernel.body.block.ops if inner.name == "arith.constant")
    op.operands[1 if not isinstance(op, cuda.TensorLoadOp) else 3] = zero.results[0]


FAULTS: list[tuple[type[Operation], Callable[[Operation], None]]] = [
    *((kind, erase) for kind in (cuda.AcquireOp, cuda.AwaitOp, cuda.ExpectOp, cuda.TensorLoadOp, cuda.ReleaseOp)),
    *((kind, repeat) for kind in (cuda.ExpectOp, cuda.TensorLoadOp, cuda.ReleaseOp)),
    *((kind, other_turn) for kind in (cuda.AcquireOp, cuda.AwaitOp, cuda.ExpectOp, cuda.TensorLoadOp, cuda.ReleaseOp)),
    (cuda.ExpectOp, expect_more),
]


@pytest.mark.parametrize(("kind", "change"), FAULTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("tile", ["K", "V"])
def test_every_fault_is_found(kind: type[Operation], change: Callable[[Operation], None], tile: str) -> None:
    kernel = attention().clone()
    op = next(
        op
        for op in kernel.walk()
        if isinstance(op, kind) and any(operand.name_hint == f"{tile}_ring" for operand in op.operands)
    )
    change(op)
    assert ring_problems(kernel)


@cache
def columns() -> cuda.KernelOp:
    """The gradients of keys and values, whose steps read three numbers for each column."""
    module = parse_module((programs.EXAMPLES / "attention_backward.mlir").read_text())
    run_pipeline(module, Options(arch="sm_90a"), last="warp-specialization")
    return next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op))


BY_LANES: list[tuple[type[Operation], Callable[[Operation], None]]] = [
    *((kind, erase) for kind in (cuda.AcquireOp, cuda.AwaitOp, cuda.ArriveOp, cuda.ReleaseOp)),
    *((kind, repeat) for kind in (cuda.ArriveOp, cuda.ReleaseOp)),
    *((kind, other_turn) for kind in (cuda.AcquireOp, cuda.AwaitOp, cuda.ArriveOp, cuda.ReleaseOp)),
]


@pytest.mark.parametrize(("kind", "change"), BY_LANES, ids=lambda each: each.__name__)
def test_every_fault_of_a_ring_that_lanes_fill_is_found(
    kind: type[Operation], change: Callable[[Operation], None]
) -> None:
    assert ring_problems(columns()) == []
    kernel = columns().clone()
    rings = {op.result for op in kernel.walk() if isinstance(op, cuda.RingOp) and op.by_lanes is not None}
    change(next(op for op in kernel.walk() if isinstance(op, kind) and rings.intersection(op.operands)))
    assert ring_problems(kernel)


@cache
def long() -> cuda.KernelOp:
    """Whose loop has more turns than are looked at."""
    return made(programs.matmul({"m": 4096, "n": 4096, "k": 2**30}))


def test_a_loop_of_any_length_is_looked_at_for_some_turns() -> None:
    assert ring_problems(long()) == []


@pytest.mark.parametrize("kind", [cuda.AwaitOp, cuda.AcquireOp, cuda.ReleaseOp, cuda.TensorLoadOp])
def test_faults_of_a_long_loop_are_found(kind: type[Operation]) -> None:
    kernel = long().clone()
    erase(next(op for op in kernel.walk() if isinstance(op, kind)))
    assert ring_problems(kernel)
