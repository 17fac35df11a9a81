"""Products of f32 on the CUDA cores: operands come in vectors and serve rows and columns of a thread, at the sizes that
the model chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from roads import attention, compiled, main_entry, matmul
from treadle.compiler.cli.explain import Sketches
from treadle.compiler.explain import explain
from treadle.compiler.explain.costs import KernelCost
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.sass import Block, Loop, blocks_of, disassemble, find_disassembler, find_loops
from treadle.compiler.source import parse_module
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.nvcc import compile_cubin, find_nvcc

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_code = pytest.mark.skipif(find_nvcc() is None or find_disassembler() is None, reason="no nvcc or no disassembler")

LAYOUTS = [("mk", "kn"), ("mk", "nk"), ("km", "kn"), ("km", "nk")]
LARGE = {"m": 4096, "n": 4096, "k": 4096}
ARCH = {"a100": "sm_80", "h100": "sm_90a"}


def large(lhs: str, rhs: str) -> str:
    """A product with the tiles of a large one, which symbolic sizes keep."""
    stated = ", ".join(f"{axis} = {size}" for axis, size in LARGE.items())
    head, brace, body = matmul(lhs, rhs, "f32").partition(" {\n")
    return f"{head} attributes {{sizes = #diagram.sizes<{stated}>}}{brace}{body}"


@needs_compiler
@pytest.mark.sample(3)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("lhs", "rhs"), LAYOUTS)
def test_products_at_odd_sizes(lhs: str, rhs: str, machine: str) -> None:
    road = compiled(large(lhs, rhs), machine=machine)
    for sizes in ({"m": 70, "n": 131, "k": 45}, {"m": 1, "n": 1, "k": 1}, {"m": 129, "n": 8, "k": 32}):
        road.check(sizes)


@needs_compiler
@pytest.mark.parametrize(("lhs", "rhs"), LAYOUTS)
def test_no_bank_conflicts(lhs: str, rhs: str) -> None:
    road = compiled(large(lhs, rhs), machine="a100")
    sizes = {"m": 128, "n": 256, "k": 64}
    road.run(road.inputs(sizes))
    (report,) = (each for each in road.backend().reports if each.operations)
    assert sum(each.requests for each in report.operations if each.kind == "load_shared") > 0
    assert sum(each.conflicts for each in report.operations) == 0


@pytest.mark.parametrize(
    ("lhs", "rhs", "left", "right"),
    [("mk", "kn", 4, 2), ("mk", "nk", 4, 4), ("km", "kn", 1, 2), ("km", "nk", 1, 4)],
)
def test_a_load_brings_what_lies_together(lhs: str, rhs: str, left: int, right: int) -> None:
    """Four steps along a row of the summed axis, two neighbours of a fragment along a row of the result's."""
    text = compiled(large(lhs, rhs), machine="a100").text
    loads = [line.strip() for line in text.splitlines() if "load_shared(" in line and "hs[" in line]
    for name, together in (("lhs", left), ("rhs", right)):
        own = [line for line in loads if f"{name}[" in line.split("load_shared")[0]]
        assert own
        assert all((f"vec<{together}>" in line) == (together > 1) for line in own)


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_attention_of_f32(machine: str) -> None:
    road = compiled(attention(64, 64, "f32", batch=("h",)), machine=machine)
    for sizes in ({"h": 1, "q": 70, "x": 93}, {"h": 2, "q": 1, "x": 1}):
        road.check(sizes)


def every(loops: Iterable[Loop]) -> Iterator[Loop]:
    for loop in loops:
        yield loop
        yield from every(loop.inner)


def opcodes(loop: Loop, blocks: dict[int, Block]) -> Counter[str]:
    return Counter(str(each.opcode).split(".")[0] for block in loop.own for each in blocks[block].instructions)


@needs_code
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("lhs", "rhs"), LAYOUTS)
def test_most_instructions_multiply(lhs: str, rhs: str, machine: str) -> None:
    """Of the loop that multiplies, as nvcc makes it: 256 of 290 on an A100 and 512 of 559 on an H100, where both arrays
    are row by row, and at least 256 of 311."""
    cubin = compile_cubin(main_entry(compiled(large(lhs, rhs), machine=machine).text), ARCH[machine])
    (resources,) = (each for each in cubin.resources if each.kernel == "product_kernel")
    assert resources.spilled_bytes == 0
    (function,) = (each for each in disassemble(cubin.path) if each.name == "product_kernel")
    blocks = blocks_of(function)
    found = [opcodes(loop, blocks) for loop in every(find_loops(blocks))]
    most = max(found, key=lambda each: each["FFMA"])
    assert most["FFMA"] / sum(most.values()) >= 0.8


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_model_chooses_tiles_that_multiply(machine: str) -> None:
    module = parse_module(large("mk", "kn"))
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    (kernel,) = explain(module, load_machine(machine), LARGE).kernels
    assert kernel.share_of_limit is not None
    assert kernel.share_of_limit >= 0.65


def costed(tf32: bool) -> KernelCost:
    """Of a large product, with what would move its time."""
    module, sketches = parse_module(matmul("mk", "kn", "f32", "mn", tf32, **LARGE)), Sketches()
    run_pipeline(module, Options(), sketches, last=LAST_HIERARCHY_PASS)
    (kernel,) = explain(module, load_machine("a100"), LARGE, sketches.found).kernels
    return kernel


def test_tensor_cores_would_move_it() -> None:
    """By as much as they do where the program says `as tf32`."""
    plain, on_tensor_cores = costed(tf32=False), costed(tf32=True)
    assert plain.levers is not None
    assert on_tensor_cores.levers is not None
    (lever,) = (each for each in plain.levers if "tf32" in each.what)
    assert lever.time_us == pytest.approx(on_tensor_cores.time_us, rel=0.02)
    assert not any("tf32" in each.what for each in on_tensor_cores.levers)
