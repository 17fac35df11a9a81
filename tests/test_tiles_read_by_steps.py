"""Pieces of arrays that a step meets the result of a product with, element by element: they come by copies as the
operands of products do, and warps read them from shared memory in matrices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from benchmarking import benchmark
from roads import Road, fitting
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import LoadOp
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")
BIASED = (Path(__file__).parents[1] / "examples" / "attention_bias.mlir").read_text()
LONG = programs.attention(64, {"b": 4, "h": 16, "q": 4096, "x": 4096}, example="attention_bias")
"""Made for sizes at which two warpgroups share a block."""


@cache
def made(text: str, machine: str, until: str | None = None) -> tuple[ModuleOp, ModuleOp]:
    module, specs = parse_module(text), list(pipeline(Options(machine=machine)))
    algorithm, last = module.clone(), next((i for i, spec in enumerate(specs) if spec.name == until), len(specs))
    run_passes(module, specs[: last + 1])
    return algorithm, module


def levels(text: str, machine: str = "a100") -> dict[str, str]:
    """Where the piece of each array is loaded to."""
    _, module = made(text, machine, "hierarchy-expand-streams")
    loads = [op for op in module.walk() if isinstance(op, LoadOp)]
    return {str(op.source.name_hint): str(op.result.type).split("level = ")[1].split(">")[0] for op in loads}


def test_what_comes_to_shared_memory() -> None:
    assert levels(BIASED) == {"Q": "shared", "K": "shared", "V": "shared", "B": "shared"}
    wide = re.sub(r"(!B = tensor<\?x\?x\?x)f16", r"\1f32", BIASED)
    wide = wide.replace("%bias = arith.extf %b : f16 to f32\n", "").replace("%bias", "%b")
    assert levels(wide)["B"] == "register"
    across = BIASED.replace(
        "!B = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>", "!B = tensor<?x?x?xf16, #diagram.array<[h, x, q]>>"
    )
    assert levels(across)["B"] == "register"
    alone = BIASED.replace(
        "!B = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>", "!B = tensor<?x?xf16, #diagram.array<[h, x]>>"
    )
    assert levels(alone)["B"] == "shared"  # as a line (test_lines_read_by_steps.py)


@needs_compiler
@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("q", "x"), [(1, 1), (77, 333), (128, 256), (200, 0), (257, 65)])
def test_at_any_size(machine: str, width: int, q: int, x: int) -> None:
    algorithm, module = made(programs.attention(width, example="attention_bias"), machine)
    road = Road(algorithm, module, print_cuda(module))
    road.check(fitting(entry_function(algorithm), {"b": 1, "h": 2, "q": q, "x": x}))


def run(sizes: Mapping[str, int], seed: int, changed: str | None = None, pitch: int = 0) -> tuple[list[str], bool]:
    """The kernels of the example that were launched for an H100, and whether the result is right."""
    algorithm, module = made(LONG, "h100")
    inputs: list[Any] = list(make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed))
    if pitch:
        room = np.zeros((*inputs[3].shape[:-1], pitch), np.float16)
        room[..., : sizes["x"]] = inputs[3]
        inputs[3] = room[..., : sizes["x"]]
    execution = HostExecution(module, EmulatorBackend(changed or print_cuda(module), kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    verdicts = verify(algorithm, inputs, outputs, "emulator")
    return [launch.kernel for launch in execution.launches], all(verdict.ok for verdict in verdicts)


SIZES = {"b": 1, "h": 1, "q": 128, "x": 1024}


@needs_compiler
@pytest.mark.parametrize("first", range(0, 8, 2))
def test_any_order_of_completion(first: int) -> None:
    for seed in (first, first + 1):
        assert run(SIZES, seed) == (["attention_bias_kernel_specialised"], True)


@needs_compiler
@pytest.mark.parametrize(("pitch", "fits"), [(1032, True), (1025, False), (1028, False)])
def test_rows_that_no_tensor_map_takes(pitch: int, fits: bool) -> None:
    (launched,), right = run(SIZES, 0, pitch=pitch)
    assert right
    assert launched.startswith("attention_bias_kernel_specialised") == fits


def test_each_warp_gives_a_tile_back_that_it_reads_itself() -> None:
    _, module = made(LONG, "h100")
    rings = {op.result.name_hint: op for op in module.walk() if isinstance(op, cuda.RingOp)}
    assert {name: ring.arrivals for name, ring in rings.items()} == {"Q_ring": 2, "K_ring": 2, "B_ring": 8, "V_ring": 2}


# What is replaced in the printed kernel, and by what.
FAULTS = {
    "nobody waits for the tile": (r"mbarrier_wait\(&B_ring\[B_stage\][^;]*;", ";"),
    "a lane releases before others have read": (r"barrier_warp\(\);  // all lanes have read", ""),
    "one warp releases for all": (r"if \(lane == 0\) (mbarrier_arrive\(&B_ring)", r"if (thread % 128 == 0) \1"),
    "every lane releases": (r"if \(lane == 0\) (mbarrier_arrive\(&B_ring)", r"\1"),
    "a ring for one arrival a warpgroup": (r"(mbarrier_init\(&B_ring\[\d \+ stage\], )8", r"\g<1>2"),
    "the first stage is read always": (r"stage_at\((B_shared\w*), (stage\w*) \* \d+\);(\s+__half B_piece)", r"\1;\3"),
    "rows of another warp": (r"(B_now\w*\[in_boxes<.*?>\()warp \* 16", r"\1(warp ^ 1) * 16"),
    "the next columns": (r"(B_now\w*\[in_boxes<.*?>\(.*?), x16 \* 16", r"\1, (x16 ^ 1) * 16"),
    "the producer does not wait": (r"mbarrier_wait\(&B_ring\[\d \+ [^;]*;", ";"),
}


@needs_compiler
@pytest.mark.sample(5)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    printed = print_cuda(made(LONG, "h100")[1])
    pattern, replacement = FAULTS[fault]
    changed, count = re.subn(pattern, replacement, printed)
    assert count
    for seed in range(4):
        try:
            if not run(SIZES, seed, changed)[1]:
                return
        except EmulationError:
            return
    raise AssertionError("nothing was noticed")
