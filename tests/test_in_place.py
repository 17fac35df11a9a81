"""Tiles without room for two places come in turn: while a turn reads one, the other is on its way."""

from __future__ import annotations

from functools import cache

import pytest
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from roads import Road
from treadle.compiler.cost import estimate, plan_of
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.loops.in_place import apart
from treadle.runtime.backend import has_host_compiler

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
LONG = {"b": 1, "h": 16, "q": 4096, "x": 4096}


@cache
def road(example: str, in_place: bool = True) -> Road:
    """Heads of 256 on an A100, whose tiles fill shared memory."""
    algorithm = parse_module(programs.attention(256, LONG, example=example))
    module = algorithm.clone()
    asked = ArgSpec("pipelining", {} if in_place else {"stages": (1,)})
    passes = pipeline(Options("a100"))
    run_passes(module, [asked if spec.name == asked.name else spec for spec in passes])
    return Road(algorithm, module, print_cuda(module))


@needs_compiler
@pytest.mark.parametrize("example", ["attention", "attention_causal"])
def test_results_are_those_of_the_reference(example: str) -> None:
    made = road(example)
    for seed, (q, x) in enumerate([(200, 333), (40, 30), (300, 256), (1, 1)]):
        made.check({"b": 1, "h": 1, "q": q, "x": x}, seed)


def test_tiles_come_in_turn() -> None:
    (kernel,) = road("attention").kernels
    (before,) = road("attention", in_place=False).kernels
    copies = [op for op in kernel.walk() if isinstance(op, cuda.CopyOp) and not op.is_outward]
    assert all(op.asynchronous is not None for op in copies)
    assert kernel.shared_bytes.data == before.shared_bytes.data


@pytest.mark.parametrize(
    ("reads", "groups"),
    [([[1], [5]], [[0], [1]]), ([[5], [1]], [[1], [0]]), ([[1, 6], [5]], [[0, 1]]), ([[1], [1], [2]], [[0, 1], [2]])],
)
def test_what_is_read_at_a_time_comes_at_a_time(reads: list[list[int]], groups: list[list[int]]) -> None:
    assert apart(reads) == groups


def test_both_forms_of_a_kernel_have_the_same_phases() -> None:
    """The model asks in how many groups a step reads its tiles before streams are expanded, and after."""
    found: list[int] = []
    for last in ("hierarchy-choose-sizes", LAST_HIERARCHY_PASS):
        module = parse_module(programs.attention(256, LONG))
        run_pipeline(module, Options("a100"), last=last)
        found += [plan_of(op).phases for op in module.walk() if isinstance(op, KernelOp)]
    assert found == [2, 2]


@pytest.mark.parametrize(("example", "keys"), [("attention", 64), ("attention_causal", 64), ("attention_window", 16)])
def test_sizes_are_such_that_tiles_come_in_turn(example: str, keys: int) -> None:
    """Registers suffice where ptxas loads nothing ahead over the barriers of a turn; a window takes more of them."""
    machine, sizes = load_machine("a100"), {**LONG, "d": 256, "e": 256}
    module = parse_module(programs.attention(256, LONG, example=example))
    run_pipeline(module, Options("a100"), last="hierarchy-choose-sizes")
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    found = estimate(plan_of(kernel), machine, sizes)
    assert found is not None
    assert kernel.schedule is not None
    assert kernel.schedule.stream.as_dict() == {"x": keys}
    assert found.footprint.spilled == 0


@pytest.mark.parametrize("example", ["attention", "attention_window", "attention_segments", "attention_prefix"])
def test_both_forms_of_a_kernel_have_the_same_limits(example: str) -> None:
    found: list[bool] = []
    for last in ("hierarchy-choose-sizes", LAST_HIERARCHY_PASS):
        module = parse_module(programs.attention(64, LONG, example=example))
        run_pipeline(module, Options("a100"), last=last)
        found += [plan_of(op).limited_twice for op in module.walk() if isinstance(op, KernelOp)]
    assert found == [example == "attention_window"] * 2
