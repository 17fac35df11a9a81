"""Pieces of streams without products come ahead of their turns: through shared memory or in registers, as the blocks of
a multiprocessor allow, or it is said why not; whatever the length of rows, results are those of the reference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects import scf
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.lowering.barriers import PIPELINED
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of
from treadle.passes.loops.without_products import meets
from treadle.runtime.backend import has_host_compiler

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

EXAMPLES = Path(__file__).parents[1] / "examples"
MACHINES = ("a100", "h100")


@cache
def road(name: str, machine: str, stages: int = 2) -> Road:
    """An example with so many places for the pieces of its streams."""
    algorithm = parse_module((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    module = algorithm.clone()
    asked = ArgSpec("pipelining", {"stages": (stages,)})
    passes = pipeline(Options(machine=machine))
    run_passes(module, [asked if spec.name == asked.name else spec for spec in passes])
    return Road(algorithm, module, print_cuda(module))


def said(made: Road) -> dict[str, list[StepAttr]]:
    """What the pass says of each kernel."""
    functions = [op for op in made.module.body.block.ops if isinstance(op, FuncOp)]
    steps = [step for each in functions for step in derivation_of(each.attributes)]
    found: dict[str, list[StepAttr]] = {}
    for step in steps:
        if step.rewrite.data in ("pipelining", "decline pipelining"):
            found.setdefault(step.subject.data.removeprefix("@"), []).append(step)
    return found


def loops_of(kernel: cuda.KernelOp) -> list[scf.ForOp]:
    return [op for op in kernel.walk() if isinstance(op, scf.ForOp)]


SIZES: dict[str, list[dict[str, int]]] = {
    "softmax": [{"row": 3, "x": 5000}, {"row": 2, "x": 4096}, {"row": 5, "x": 2049}, {"row": 1, "x": 1}],
    "log_softmax": [{"row": 3, "x": 5000}, {"row": 2, "x": 6144}, {"row": 5, "x": 37}],
    "log_sum_exp": [{"row": 3, "x": 5000}, {"row": 2, "x": 2048}, {"row": 7, "x": 1025}, {"row": 1, "x": 1}],
    "rms_norm": [{"t": 3, "i": 3500}, {"t": 2, "i": 2048}, {"t": 5, "i": 1025}, {"t": 1, "i": 17}],
    "layer_norm": [{"t": 3, "i": 3500}, {"t": 2, "i": 2048}, {"t": 1, "i": 33}],
    "variance": [{"row": 3, "x": 3500}, {"row": 2, "x": 2048}, {"row": 1, "x": 5}],
    "cross_entropy": [{"t": 3, "c": 3500}, {"t": 2, "c": 2048}, {"t": 1, "c": 7}],
}
"""Of whole pieces and of parts, of rows that begin anywhere, and of less than a piece, so that a loop has no turn."""


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SIZES)
def test_rows_of_any_length_are_those_of_the_reference(name: str, machine: str):
    for seed, sizes in enumerate(SIZES[name]):
        road(name, machine).check(sizes, seed)


@needs_compiler
@pytest.mark.parametrize("name", ["log_sum_exp", "log_softmax", "softmax_bounded", "rms_norm"])
def test_more_stages_than_registers_hold_lie_in_shared_memory(name: str):
    """Also where turns do not meet, if so many are asked for."""
    made = road(name, "a100", stages=3)
    (kernel,) = made.kernels
    pipelined = [loop for loop in loops_of(kernel) if PIPELINED in loop.attributes]
    declined = [step for step in said(made)[kernel.sym_name.data] if step.rewrite.data == "decline pipelining"]
    assert len(pipelined) + len(declined) == len(loops_of(kernel))
    tiles = [op for op in kernel.walk() if isinstance(op, cuda.SharedOp) and op.stages.data == 3]
    assert bool(tiles) == bool(pipelined)
    axis = {"rms_norm": "i"}.get(name, "x")
    other = next(each for each in made.symbolic if each != axis)
    for size in (7000, 4096, 1500, 3):
        made.check({axis: size, other: 2})


@needs_compiler
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "rms_norm"])
def test_each_piece_is_asked_for_once(name: str):
    """What is ahead of the last turn is not loaded, nor is anything twice: as many bytes as without stages."""
    axis, other = {"rms_norm": ("i", "t")}.get(name, ("x", "row"))
    sizes = {axis: 8192, other: 2}
    loaded: list[int] = []
    for stages in (1, 2):
        made = road(name, "a100", stages)
        made.check(sizes)
        accesses = traffic_of(made.text, made.backend().reports[-1:])
        loaded.append(sum(each.bytes for each in accesses if each.kind in ("load_global", "copy_async")))
    assert loaded[0] == loaded[1]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.mlir")))
def test_every_stream_of_every_example_is_pipelined_or_it_is_said_why_not(name: str, machine: str):
    made = road(name, machine)
    steps = said(made)
    for kernel in made.kernels:
        if loops_of(kernel) and kernel.fallback is None:
            assert kernel.sym_name.data in steps, kernel.sym_name.data


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SIZES)
def test_no_turn_that_meets_loads_what_it_needs_at_once(name: str, machine: str):
    """But where blocks would be fewer for it, as is then said; some of those meet only around what they load."""
    made = road(name, machine)
    steps = said(made)
    for kernel in made.kernels:
        declined = [s for s in steps[kernel.sym_name.data] if s.law.data == "an SM holds as many blocks"]
        waiting = [
            loop
            for loop in loops_of(kernel)
            if meets(loop) and any(isinstance(op, cuda.LoadOp) for op in loop.body.block.ops)
        ]
        assert len(waiting) <= len(declined)
