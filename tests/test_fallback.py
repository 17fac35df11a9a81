"""Kernels beside those with roles: what they do otherwise, as their pieces were chosen for the registers of roles."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from benchmarking import benchmark
from treadle.compiler.gates import step_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.tiles import is_shared
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

programs = benchmark("programs")


def lowered(name: str, width: int) -> tuple[ModuleOp, ModuleOp]:
    """An attention as it is written, and for an H100."""
    module = parse_module(programs.attention(width, {"b": 4, "h": 16, "q": 4096, "x": 4096}, example=name))
    algorithm = module.clone()
    run_pipeline(module, Options(arch="sm_90a"))
    return algorithm, module


def test_scores_are_walked_and_sums_are_not() -> None:
    """In 8 bits, whose columns of scores lie in an order of their own, which no lane copies."""
    _, module = lowered("attention_f8", 256)
    (kernel,) = (op for op in module.walk() if isinstance(op, cuda.KernelOp) and op.fallback is not None)
    products = [op for op in kernel.walk() if isinstance(op, cuda.ProductOp)]
    scores = [op for op in products if is_shared(op.lhs.type)]
    assert scores
    assert len(scores) < len(products)
    assert {op.subloop.data for op in scores if op.subloop is not None} == {128}
    assert all((op.subloop is None) != is_shared(op.lhs.type) for op in products)


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize(
    ("further", "entry"),
    [(0, "specialised"), (2, "by_lanes_aligned_4"), (4, "by_lanes_aligned_8"), (1, "by_lanes_strided")],
)
def test_walked_scores_are_right(further: int, entry: str) -> None:
    """Rows so many elements apart from each other, of which the launch takes the entry."""
    algorithm, module = lowered("attention_lengths", 256)
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, {"b": 1, "h": 1, "q": 33, "x": 171}), 0)
    given = [apart(each, further) if isinstance(each, np.ndarray) and each.ndim > 1 else each for each in inputs]
    execution = HostExecution(module, EmulatorBackend(print_cuda(module), kernel_names(module), seed=0))
    outputs = execution.run(entry_function(module), given)
    assert [each.kernel.rpartition("kernel_")[2] for each in execution.launches] == [entry]
    assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


def apart(array: np.ndarray, further: int) -> np.ndarray:
    """The same array, between whose rows there is more."""
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + further), array.dtype)
    view = wide[..., : array.shape[-1]]
    view[...] = array
    return view


def test_the_main_loop_is_the_one_around_what_is_walked() -> None:
    """It has sums of its own, so that its turns are told as those of the kernel with roles are."""
    _, module = lowered("attention", 64)
    steps = [step_of(op, 90) for op in module.walk() if isinstance(op, cuda.KernelOp)]
    assert len(steps) == 2  # by tensor copies, and without roles
    assert {step.tile["x"] for step in steps if step is not None} == {96}
    assert all(step is not None and step.scores == 48 for step in steps)
