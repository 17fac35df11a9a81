"""Numbers of columns that finish the sums of products (a bias, scales): a line of words comes once for the whole block,
while products run, and is read where sums are finished, in pieces where a thread has no registers for all of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutant_cuda import few_processors
from xdsl.dialects.builtin import ModuleOp

from roads import Road
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import is_line
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.nvcc import compile_cubin, find_nvcc

EXAMPLES = Path(__file__).parents[1] / "examples"
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
LARGE = "t = 4096, i = 4096, o = 4096"
"""Sizes at which a block of an H100 takes several pieces, one after another."""


def program(name: str, sizes: str = "") -> str:
    text = (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    return re.sub(r"#diagram\.sizes<[^>]*>", f"#diagram.sizes<{sizes}>", text) if sizes else text


def narrow(text: str) -> str:
    """With a bias of 16 bits."""
    text = text.replace("!bias = tensor<?xf32", "!bias = tensor<?xf16")
    return text.replace("%s = arith.addf %z, %b", "%w = arith.extf %b : f16 to f32\n    %s = arith.addf %z, %w")


@cache
def made(text: str, machine: str) -> tuple[ModuleOp, ModuleOp]:
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_pipeline(module, Options(machine=machine))
    return algorithm, module


def kernels_of(module: ModuleOp) -> list[cuda.KernelOp]:
    return [op for op in module.walk() if isinstance(op, cuda.KernelOp)]


def coming(module: ModuleOp, name: str) -> set[type]:
    """The operations that bring an array."""
    ops = [op for op in module.walk() if isinstance(op, cuda.CopyOp | cuda.LoadOp)]
    return {type(op) for op in ops if op.source.name_hint == name}


BROUGHT = [("matmul_epilogue", "bias"), ("matmul_residual", "bias"), ("mlp", "b2"), ("quantised_matmul", "w_scale")]


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("name", "line"), BROUGHT)
def test_no_sector_is_asked_for_twice(name: str, line: str, machine: str) -> None:
    _, module = made(program(name), machine)
    if name == "mlp" and machine == "a100":  # whose parts another kernel adds up, without products
        assert coming(module, line) == {cuda.LoadOp}
        return
    assert coming(module, line) == {cuda.CopyOp}
    for kernel in kernels_of(module):
        copies = [op for op in kernel.walk() if isinstance(op, cuda.CopyOp) and op.source.name_hint == line]
        for copy in copies:
            assert is_line(copy.tile.type)
            for alignment in cuda.alignments(kernel):
                strides, base = strides_at(copy, alignment)
                assert traffic_of(copy, cuda.working_threads(kernel), alignment, strides, base).is_fewest


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (program("attention_lengths"), "len"),
        (program("attention_segments"), "first"),
    ],
    ids=["lengths", "first keys"],
)
def test_what_is_loaded(text: str, line: str, machine: str) -> None:
    """By what the streams of a group begin and end."""
    assert coming(made(text, machine)[1], line) == {cuda.LoadOp}


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("t", "i", "o"), [(300, 72, 520), (131, 40, 777)])
def test_numbers_of_16_bits_are_stored_as_lines(machine: str, t: int, i: int, o: int) -> None:
    """Which no lane copies asynchronously: it loads and stores them."""
    algorithm, module = made(narrow(program("matmul_epilogue", LARGE)), machine)
    assert coming(module, "bias") == {cuda.CopyOp}
    Road(algorithm, module, print_cuda(module)).check({"t": t, "i": i, "o": o})


def road(machine: str) -> Road:
    """Of an epilogue, whose blocks take several pieces on an H100 with two processors."""
    algorithm, module = made(program("matmul_epilogue", LARGE), machine)
    module = module.clone()
    few_processors(module)
    return Road(algorithm, module, print_cuda(module))


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("t", "i", "o"), [(300, 72, 520), (1, 8, 1), (131, 40, 777)])
@pytest.mark.parametrize("step", [1, 3])
def test_at_any_size_and_stride(machine: str, t: int, i: int, o: int, step: int) -> None:
    made = road(machine)
    x, w, bias = made.inputs({"t": t, "i": i, "o": o})
    apart = np.zeros(1 + step * o, np.float32)[1::step][:o]
    apart[:] = bias
    (verdict,) = made.verdicts((x, w, apart))
    assert verdict.ok, verdict


# What is replaced in the printed kernel, and by what.
FAULTS = {
    "nobody waits for the line": (r"mbarrier_wait\(&bias_ring\[0\][^;]*;", ";"),
    "its place is given back before it is read": (
        r"(float bias_piece.*?)(barrier_warp\(\);[^\n]*\n\s*if \(lane == 0\) mbarrier_arrive\(&bias_ring\[1\]\);)",
        r"\2 \1",
    ),
    "the producer does not wait": (r"mbarrier_wait\(&bias_ring\[1\][^;]*;", ";"),
    "the next columns": (r"(bias_shared\[.*?)o8 \* 8", r"\1(o8 ^ 1) * 8"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    made = road("h100")
    pattern, replacement = FAULTS[fault]
    changed, count = re.subn(pattern, replacement, made.text, flags=re.DOTALL)
    assert count
    wrong = Road(made.algorithm, made.module, changed)
    inputs = made.inputs({"t": 300, "i": 72, "o": 1000})
    try:
        verdicts = wrong.verdicts(inputs)
    except EmulationError:
        return
    assert not all(verdict.ok for verdict in verdicts), "nothing was noticed"


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc is installed")
@pytest.mark.full
def test_blocks_that_take_several_pieces_spill_nothing() -> None:
    """What a bias of any stride asked for beside all sums made the entry for it spill 88 bytes."""
    _, module = made(program("matmul_epilogue", LARGE), "h100")
    resources = compile_cubin(print_cuda(module), "sm_90a").resources
    assert {each.spilled_bytes for each in resources} == {0}
