"""Numbers of columns that a step meets the result of a product with: a line of words comes once for the whole block, by
the lanes of the producer where warps have roles, and rows may begin anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from roads import Road, fitting
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.tiles import is_line
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
EXAMPLES = Path(__file__).parents[1] / "examples"
BACKWARD = (EXAMPLES / "attention_backward.mlir").read_text()
LONG_BACKWARD = re.sub(r"sizes<.*?>", "sizes<b = 4, h = 16, q = 2000, x = 2333>", BACKWARD)
"""Made for sizes at which two warpgroups share a block."""
PACKED = (EXAMPLES / "attention_packed.mlir").read_text()
SCATTERED = PACKED.replace(", diagram.ascending", "")
"""Sequences in any order: nothing is searched, and every step asks."""


def of_columns(text: str) -> str:
    """Attention with a bias of f32 for each key in place of one for each score."""
    text = text.replace(
        "!B = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>", "!B = tensor<?x?xf32, #diagram.array<[h, x]>>"
    )
    return text.replace("%bias = arith.extf %b : f16 to f32\n", "").replace("%bias : f32", "%b : f32")


BIASED = of_columns((EXAMPLES / "attention_bias.mlir").read_text())
CAUSAL = BIASED.replace("%P = diagram", '%W = diagram.where %T if "x <= q" : !S\n  %P = diagram').replace(
    "@softmax(%T)", "@softmax(%W)"
)
LONG = of_columns(programs.attention(64, {"b": 4, "h": 16, "q": 4096, "x": 4096}, example="attention_bias"))
"""Made for sizes at which warpgroups share a block, and a block takes several pieces."""
WIDE = of_columns(programs.attention(128, {"b": 4, "h": 16, "q": 4096, "x": 4096}, example="attention_bias"))

NARROW = (
    BIASED.replace("?x?xf32, #diagram.array<[h, x]>", "?x?xf16, #diagram.array<[h, x]>")
    .replace("%scaled =", "%w = arith.extf %b : f16 to f32\n    %scaled =")
    .replace("%b : f32", "%w : f32")
)
"""The bias in 16 bits, of which lanes copy none by itself asynchronously: they load and store."""
MASKED = (
    (EXAMPLES / "attention.mlir")
    .read_text()
    .replace("%V: !V)", "%V: !V, %M: !M)")
    .replace("func.func", "!M = tensor<?x?xi8, #diagram.array<[b, x]>>\nfunc.func")
    .replace("func.func", "!N = tensor<?x?xi32, #diagram.array<[b, x]>>\nfunc.func")
    .replace("%P = diagram", "%N = diagram.cast %M : !M -> !N\n  %P = diagram")
    .replace("%P = diagram", '%W = diagram.where %T if "n[b, x] == 1" with (n = %N : !N) : !S\n  %P = diagram')
    .replace("@softmax(%T)", "@softmax(%W)")
)
"""Truth values that say which keys of a batch are there."""
SHARED_SCORES = (EXAMPLES / "state_space.mlir").read_text().replace("x <= q", "x <= q and q - x < 700")
"""Heads share scores and have decays of their own: no product has the axes that `a_x` and `dt` have, but what the next
one takes does. (A window has no chunks.)"""


@cache
def made(text: str, machine: str, until: str | None = None, cluster: int | None = None) -> tuple[ModuleOp, ModuleOp]:
    module, specs = parse_module(text), list(pipeline(Options(machine=machine)))
    if cluster is not None:
        specs = [ArgSpec(spec.name, {"size": (cluster,)}) if spec.name == "cuda-cluster" else spec for spec in specs]
    algorithm, last = module.clone(), next((i for i, spec in enumerate(specs) if spec.name == until), len(specs))
    run_passes(module, specs[: last + 1])
    return algorithm, module


def levels(text: str) -> dict[str, str]:
    """Where the piece of each array is loaded to."""
    _, module = made(text, "a100", "hierarchy-expand-streams")
    loads = [op for op in module.walk() if isinstance(op, LoadOp)]
    return {str(op.source.name_hint): str(op.result.type).split("level = ")[1].split(">")[0] for op in loads}


def lines(within: Operation) -> list[cuda.CopyOp]:
    return [op for op in within.walk() if isinstance(op, cuda.CopyOp) and is_line(op.tile.type)]


def of_rows(text: str) -> str:
    """With a bias of each row in place of each column."""
    changed, count = re.subn(r"(!B = tensor<\?x\?xf\d+, #diagram.array<\[h, )x", r"\1q", text)
    assert count == 1
    return changed


SHARED = {
    "a bias": (BIASED, "B"),
    "gradients": (BACKWARD, "S_max log_l D"),
    "decays": (SHARED_SCORES, "a_x dt a_q"),
    "packed": (PACKED, "of_x"),  # of each row one number: it is in a register
    "scattered": (SCATTERED, "of_x"),
    "of 16 bits": (NARROW, "B"),
    "truth": (MASKED, "M"),
    "of rows": (of_rows(BIASED), "B"),  # a word for each row of a group: its warps share sectors
}


@pytest.mark.parametrize("case", SHARED)
def test_what_comes_to_shared_memory(case: str) -> None:
    text, names = SHARED[case]
    found = levels(text)
    assert {found[name] for name in names.split()} == {"shared"}
    if names == "of_x":
        assert found["of_q"] == "register"


def test_what_no_lane_copies_asynchronously_comes_to_registers() -> None:
    assert levels(of_rows(NARROW))["B"] == "register"


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("text", [BIASED, BACKWARD, LONG, PACKED, SCATTERED, SHARED_SCORES, NARROW, MASKED])
def test_no_sector_is_asked_for_twice(machine: str, text: str) -> None:
    _, module = made(text, machine)
    found = lines(module)
    assert found
    for copy in found:
        kernel = copy.parent_op()
        while not isinstance(kernel, cuda.KernelOp):
            assert kernel is not None
            kernel = kernel.parent_op()
        for alignment in cuda.alignments(kernel):
            strides, base = strides_at(copy, alignment)
            assert traffic_of(copy, cuda.working_threads(kernel), alignment, strides, base).is_fewest


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_lines_make_no_other_access_narrower(machine: str) -> None:
    """Rows of 333 numbers begin anywhere; operands have rows of 64."""
    _, module = made(BACKWARD, machine)
    for asked in (op for op in module.walk() if isinstance(op, cuda.AlignmentOp)):
        single = {asked.buffers[number].name_hint for number in asked.single}
        assert single == {"S_max", "log_l", "D"}


@needs_compiler
@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("text", [BIASED, CAUSAL, LONG, WIDE, NARROW, MASKED])
@pytest.mark.parametrize(("q", "x"), [(1, 1), (77, 333), (128, 256), (200, 0), (257, 65)])
def test_at_any_size(machine: str, text: str, q: int, x: int) -> None:
    algorithm, module = made(text, machine)
    road = Road(algorithm, module, print_cuda(module))
    road.check(fitting(entry_function(algorithm), {"b": 1, "h": 2, "q": q, "x": x}))


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("q", "x"), [(1, 1), (300, 333), (65, 0)])
def test_decays_of_heads_that_share_scores(machine: str, q: int, x: int) -> None:
    algorithm, module = made(SHARED_SCORES, machine)
    assert {copy.source.name_hint for copy in lines(module)} == {"a_x", "dt", "a_q"}
    road = Road(algorithm, module, print_cuda(module))
    road.check(fitting(entry_function(algorithm), {"h": 3, "q": q, "x": x}))


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("text", [PACKED, SCATTERED])
@pytest.mark.parametrize("size", [1, 65, 333])
@pytest.mark.parametrize("step", [1, 3])
def test_numbers_of_sequences_come_once(machine: str, text: str, size: int, step: int) -> None:
    """No load asks for numbers of columns, and each position sees its own sequence, wherever rows begin."""
    algorithm, module = made(text, machine)
    assert not [op for op in module.walk() if isinstance(op, cuda.LoadOp) and op.source.name_hint == "of_x"]
    road = Road(algorithm, module, print_cuda(module))
    *operands, _, _ = road.inputs({"b": 1, "h": 2, "q": size, "x": size})
    of_q, of_x = np.random.default_rng(size).integers(0, 3, (2, size), np.int32)
    if text == PACKED:
        of_q, of_x = np.sort(of_q), np.sort(of_x)
    apart = np.zeros(1 + step * size, np.int32)[1::step][:size]
    apart[:] = of_x
    (verdict,) = road.verdicts((*operands, of_q, apart))
    assert verdict.ok, verdict


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("x", [17, 112, 333])
def test_searches_of_static_length(machine: str, x: int) -> None:
    """Their last piece stands right before the loop whose ends it tells, which nothing of that loop comes before."""
    text = PACKED.replace("?x64xf16, #diagram.array<[b, h, x", f"{x}x64xf16, #diagram.array<[b, h, x")
    text = re.sub(r"\?(x\w+, #diagram\.array<\[[\w, ]*x\]>)", rf"{x}\1", text).replace(", x = 333>", ">")
    algorithm, module = made(text, machine)
    road = Road(algorithm, module, print_cuda(module))
    for q in (1, 130):
        *operands, _, _ = road.inputs({"b": 1, "h": 2, "q": q})
        of_q, of_x = (np.sort(np.random.default_rng(n).integers(0, 3, n, np.int32)) for n in (q, x))
        (verdict,) = road.verdicts((*operands, of_q, of_x))
        assert verdict.ok, verdict


def run(
    sizes: Mapping[str, int], seed: int, changed: str | None = None, pitch: int = 0, step: int = 1, cluster: int = 1
) -> tuple[list[str], bool]:
    """The kernels of attention that were launched for an H100, and whether the result is right."""
    algorithm, module = made(LONG, "h100", cluster=cluster)
    inputs: list[Any] = list(make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed))
    if pitch:
        room = np.zeros((*inputs[3].shape[:-1], pitch), np.float32)
        room[..., : step * sizes["x"] : step] = inputs[3]
        inputs[3] = room[..., : step * sizes["x"] : step]
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
def test_clusters_bring_lines_each_for_itself() -> None:
    sizes = {"b": 1, "h": 2, "q": 768, "x": 777}
    (launched,), right = run(sizes, 1, cluster=2)
    assert right
    assert launched.startswith("attention_bias_kernel_specialised")


@needs_compiler
@pytest.mark.parametrize(("pitch", "step"), [(1025, 1), (1027, 1), (2100, 2)])
def test_rows_that_no_tensor_map_takes(pitch: int, step: int) -> None:
    """Only what tensor copies bring must be multiples of 16 bytes."""
    (launched,), right = run(SIZES, 0, pitch=pitch, step=step)
    assert right
    assert launched.startswith("attention_bias_kernel_specialised")


def of_static_length(x: int) -> str:
    text = LONG.replace("?x64xf16, #diagram.array<[b, h, x", f"{x}x64xf16, #diagram.array<[b, h, x")
    return re.sub(r"\?(x\w+, #diagram\.array<\[[\w, ]*x\]>)", rf"{x}\1", text).replace(", x = 4096>", ">")


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("x", [17, 128, 333])
def test_lines_of_static_length(x: int, machine: str) -> None:
    """What is left of a length that is known stands in no branch, but right behind the loop: its copies are its own."""
    algorithm, module = made(of_static_length(x), machine)
    assert lines(module)
    road = Road(algorithm, module, print_cuda(module))
    for q in (1, 130):
        road.check({"b": 1, "h": 2, "q": q})


@needs_compiler
@pytest.mark.parametrize("condition", ["x <= q", "x <= q and q - x < 100"])
def test_lines_of_static_length_under_conditions(condition: str) -> None:
    """The length is a constant where conditions have the last piece: both roles know it, wherever it stands."""
    text = of_static_length(333).replace("%P = diagram", f'%W = diagram.where %T if "{condition}" : !S\n  %P = diagram')
    algorithm, module = made(text.replace("@softmax(%T)", "@softmax(%W)"), "h100")
    assert any(isinstance(op, cuda.RolesOp) for op in module.walk())
    Road(algorithm, module, print_cuda(module)).check({"b": 1, "h": 1, "q": 500})


def test_lines_that_come_together_have_one_ring() -> None:
    _, module = made(LONG_BACKWARD, "h100")
    kernels = [op for op in module.walk() if isinstance(op, cuda.KernelOp)]
    streaming = [each for each in kernels if each.sym_name.data.endswith("_specialised")]
    (kernel,) = (each for each in streaming if {line.source.name_hint for line in lines(each)} > {"D"})
    rings = [op for op in kernel.walk() if isinstance(op, cuda.RingOp) and op.by_lanes is not None]
    assert [(ring.filling, ring.arrivals) for ring in rings] == [(32, 8)]
    arrivals = [op for op in kernel.walk() if isinstance(op, cuda.ArriveOp)]
    assert len(arrivals) == 2  # in the loop, and for the last piece
    assert all(op.ring is rings[0].result for op in arrivals)


# What is replaced in the printed kernel, and by what.
FAULTS = {
    "nobody waits for the line": (r"mbarrier_wait\(&B_ring\[B_stage\][^;]*;", ";"),
    "a lane releases before others have read": (r"barrier_warp\(\);  // all lanes have read", ""),
    "one warp releases for all": (r"if \(lane == 0\) (mbarrier_arrive\(&B_ring)", r"if (thread % 128 == 0) \1"),
    "a ring for one arrival a warpgroup": (r"(mbarrier_init\(&B_ring\[\d \+ stage\], )8", r"\g<1>2"),
    "the phase waits for one lane": (r"(mbarrier_init\(&B_ring\[stage\], )32", r"\g<1>1"),
    "lanes arrive before their copies": (r"copy_async_arrive\(&B_ring", "mbarrier_arrive(&B_ring"),
    "the first stage is read always": (r"stage_at\((B_shared\w*), (stage\w*) \* \d+\);(\s+float B_piece)", r"\1;\3"),
    "the next columns": (r"(B_now\w*\[.*?)x8 \* 8", r"\1(x8 ^ 1) * 8"),
    "the producer does not wait": (r"mbarrier_wait\(&B_ring\[\d \+ [^;]*;", ";"),
    "lanes copy from the next row": (r"const float\* const there = &B\[", "const float* const there = &B[1 + "),
}


@needs_compiler
@pytest.mark.sample(5)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    printed = print_cuda(made(LONG, "h100", cluster=1)[1])
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
