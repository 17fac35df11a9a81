"""A product written by hand with the primitives of sm_90a, against numpy and against mistakes made on purpose: the
emulator finds nothing in the right kernel under any order of completion, and something in every wrong one."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from treadle.compiler.primitives import primitive_names, source
from treadle.compiler.primitives.wgmma import name_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import Array, EmulationError, LaunchReport, MappedArray, compile_source
from treadle.runtime.emulator.module import EmulatedModule
from treadle.runtime.tensor_maps import NoTensorMap, tensor_map

needs_host_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
KERNEL = (Path(__file__).parent / "hopper" / "product.cu").read_text()
TYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
ROWS, DEPTH = 128, 64


@dataclass(frozen=True)
class Shape:
    """How a kernel is made."""

    type: str = "__half"
    columns: int = 64
    stages: int = 2
    b_mn: bool = False

    @property
    def shared_bytes(self) -> int:
        return self.stages * (ROWS + self.columns) * DEPTH * 2 + 1024 + 2 * 64 * self.columns * 2

    def text(self, kernel: str = KERNEL) -> str:
        names = set(primitive_names()) & set(re.findall(r"\w+", kernel)) | {name_of(self.columns)}
        head = f"using T = {self.type};\nconstexpr int COLUMNS = {self.columns}, STAGES = {self.stages};\n"
        head += f"constexpr int B_MN = {int(self.b_mn)};\n"
        return source(names) + head + kernel.replace("WGMMA", name_of(self.columns))


def multiply(
    module: EmulatedModule, shape: Shape, m: int, n: int, k: int, seed: int
) -> tuple[LaunchReport, float, np.ndarray]:
    """The report, and the largest error of the product beyond what its formats explain (at most 0 if right)."""
    dtype = TYPES[shape.type]
    random = np.random.default_rng(0)
    a = random.standard_normal((m, k)).astype(dtype)
    b = random.standard_normal((k, n) if shape.b_mn else (n, k)).astype(dtype)
    c = np.full((m, n), 7, dtype)
    b_box = (DEPTH, 64) if shape.b_mn else (shape.columns, DEPTH)
    arguments = [
        MappedArray(Array(a, writable=False), (ROWS, DEPTH), 128),
        MappedArray(Array(b, writable=False), b_box, 128),
        MappedArray(Array(c, writable=True), (64, 64), 128),
        ctypes.c_int32(k),
    ]
    grid = (-(-n // shape.columns), -(-m // ROWS), 1)
    report = module.launch("product", grid, (384, 1, 1), shape.shared_bytes, arguments, seed=seed, time_limit=60)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    b64 = b64 if shape.b_mn else b64.T
    eps = float(ml_dtypes.finfo(dtype).eps)
    # One rounding to T, and one to f32 a step of 16 along k.
    bound = eps / 2 * np.abs(a64 @ b64) + (k // 16 + 1) * 2.0**-23 * (np.abs(a64) @ np.abs(b64))
    return report, float((np.abs(c.astype(np.float64) - a64 @ b64) - bound).max()), c


@cache
def compiled(shape: Shape, kernel: str = KERNEL) -> EmulatedModule:
    return compile_source(shape.text(kernel), ["product"])


@needs_host_compiler
@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(columns=128, stages=3),
        Shape(columns=128, b_mn=True),
        Shape(type="__nv_bfloat16", columns=192, stages=2, b_mn=True),
        Shape(type="__nv_bfloat16", columns=256, stages=3),
    ],
    ids=str,
)
@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 256), (100, 72, 72)])
@pytest.mark.sample(6)
def test_products_are_right_in_any_order_of_completion(shape: Shape, m: int, n: int, k: int) -> None:
    results = []
    for seed in (0, 1, 2):
        report, excess, c = multiply(compiled(shape), shape, m, n, k, seed)
        assert excess <= 0
        results.append(c)
        assert report.bytes_stored == m * n * 2  # nothing outside of the array
    assert all(np.array_equal(results[0], each) for each in results)


@needs_host_compiler
def test_twenty_orders_of_completion_give_no_report() -> None:
    for seed in range(20):
        multiply(compiled(Shape()), Shape(), 128, 64, 320, seed)


# What is replaced, by what, and the kinds of report that may come ("wrong": no report, but a wrong product).
FAULTS = {
    "consumers do not wait for the copies": (r"mbarrier_wait\(&full\[stage\], parity\);", ""),
    "consumers wait for the wrong phase": (r"uint32_t parity = 0;", "uint32_t parity = 1;"),
    "consumers never turn the phase": (r"(int before = 0;.*?)stage = 0, parity \^= 1;", r"\1stage = 0;"),
    "the producer does not wait for empty stages": (r"mbarrier_wait\(&empty\[stage\], parity\);", ""),
    "the producer waits for the wrong phase": (r"uint32_t parity = 1;", "uint32_t parity = 0;"),
    "the producer never turns the phase": (r"stage = 0, parity \^= 1;", "stage = 0;"),
    "a stage is released before its products are done": (r"wgmma_wait<1>\(\);", ""),
    "the newest stage is released": (r"mbarrier_arrive\(&empty\[before\]\)", "mbarrier_arrive(&empty[stage])"),
    "no stage is released": (r"if \(k0 > 0 && thread % 128 == 0\) mbarrier_arrive\(&empty\[before\]\);", ""),
    "every thread releases a stage": (r"k0 > 0 && thread % 128 == 0", "k0 > 0"),
    "one group of consumers releases for both": (
        r"mbarrier_init\(&empty\[stage\], 2\)",
        "mbarrier_init(&empty[stage], 1)",
    ),
    "too few bytes are expected": (r"A_BYTES \+ B_BYTES\);\n", "A_BYTES);\n"),
    "too many bytes are expected": (r"A_BYTES \+ B_BYTES\);\n", "A_BYTES + B_BYTES + 16);\n"),
    "a copy completes on the other barrier": (r"A, &full\[stage\]", "A, &empty[stage]"),
    "a copy goes to the first stage always": (r"A_tile \+ stage \* A_BYTES, A", "A_tile, A"),
    "products read the first stage always": (r"further\(a, stage \* A_BYTES \+", "further(a,"),
    "the barriers are not initialised": (r"mbarrier_init\(&full\[stage\], 1\);", ""),
    "the initialised barriers are not fenced": (r"mbarrier_init_fence\(\);", ""),
    "nobody waits for the initialised barriers": (r"barrier_block\(\);", ""),
    "products begin without a fence": (r"wgmma_fence\(\);", ""),
    "products are not committed": (r"wgmma_commit\(\);", ""),
    "results are read before the products are done": (r"wgmma_wait<0>\(\);\n", ""),
    "another swizzle in a descriptor": (
        r"matrix_descriptor<128>\(matrix_start\(A",
        "matrix_descriptor<64>(matrix_start(A",
    ),
    "another stride in a descriptor": (r"rows \* 128, 0\), 1024\)", "rows * 128, 0), 512)"),
    "a step along k too wide": (r"stage \* A_BYTES \+ k16 \* 32", "stage * A_BYTES + k16 * 64"),
    "a descriptor of the other rows": (r"A_tile \+ rows \* 128", "A_tile + (64 - rows) * 128"),
    "the output is not swizzled": (r"\(chunk \^ row % 8\)", "chunk"),
    "no proxy fence before the store": (r"fence_proxy_async\(\);", ""),
    "no barrier before the store": (r"if \(group == 1\) barrier_named<1>\(128\); else barrier_named<2>\(128\);", ""),
    "both groups take one named barrier for more": (r"barrier_named<1>\(128\)", "barrier_named<1>(160)"),
    "a store is not waited for": (r"tensor_store_wait<0>\(\);", ""),
    "a store is not committed": (r"tensor_store_commit\(\);", ""),
    "more registers than the producer gives": (r"registers_take<232>", "registers_take<240>"),
    "the producer gives no registers": (r"registers_give<40>\(\);", ""),
    "an accumulator is scaled in flight": (r"wgmma_commit\(\);", "wgmma_commit(); sums[0][0][0] *= 0.5f;"),
    "the sums are not initialised": (r"\[2\]\[2\] = \{\};", "[2][2];"),
    "an accumulator is written after the fence": (
        r"wgmma_fence\(\);(.*?)wgmma_wait<1>",
        r"wgmma_fence(); sums[0][0][0] += 1.0f; sums[0][0][0] -= 1.0f; sums[1][0][0] *= 2.0f;\1wgmma_wait<0>",
    ),
    "the output lies over the barriers": (r"A_tile \+ RING \+ 1024", "A_tile + RING"),
    "the barriers lie in a stage": (r"\(A_tile \+ RING\);", "(A_tile + RING - 64);"),
    "the barriers lie in a stage, and are fenced": (
        r"\(A_tile \+ RING\);(.*?)mbarrier_init_fence\(\);",
        r"(A_tile + RING - 64);\1mbarrier_init_fence(); fence_proxy_async();",
    ),
    "a named barrier of no whole warps": (r"barrier_named<1>\(128\)", "barrier_named<1>(100)"),
    "half of each warp meets": (r"barrier_named<1>\(128\);", "{ if (thread % 32 < 16) barrier_named<1>(64); }"),
    "one lane of each warp arrives": (
        r"if \(group == 1\) barrier_named<1>\(128\); else",
        "if (group == 1) { if (thread % 32 == 0) barrier_named_arrive<1>(32); } else",
    ),
    "one warp of the producer's gives registers": (r"registers_give<40>", "if (thread < 32) registers_give<40>"),
    "one warp of each consumer takes registers": (
        r"registers_take<232>",
        "if (thread % 128 < 32) registers_take<232>",
    ),
    "a warp takes other registers than the rest": (
        r"registers_take<232>\(\);",
        "if (thread % 128 < 32) registers_take<224>(); else registers_take<232>();",
    ),
    "registers are given that are not held": (
        r"registers_give<40>\(\);",
        "registers_give<40>(); registers_give<56>();",
    ),
    "fewer registers are taken than are held": (
        r"registers_take<232>\(\);",
        "registers_take<232>(); registers_take<200>();",
    ),
    "a block barrier in a role": (r"wgmma_fence\(\);", "wgmma_fence(); if (k0 == 0) barrier_block();"),
}


@pytest.mark.sample(11)
@needs_host_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    pattern, replacement = FAULTS[fault]
    kernel, count = re.subn(pattern, replacement, KERNEL, count=1, flags=re.S)
    assert count == 1
    shape = Shape()
    module = compile_source(shape.text(kernel), ["product"])
    caught = False
    for seed in (0, 1, 2):
        try:
            _, excess, _ = multiply(module, shape, 128, 64, 448, seed)
        except EmulationError:
            caught = True
        else:
            caught |= not excess <= 0
        if caught:
            return
    raise AssertionError("nothing was noticed")


@needs_host_compiler
@pytest.mark.parametrize(
    ("pattern", "replacement", "said"),
    [
        # The rows are read as they lie, by the address; the hardware would take row 60 for the first of eight.
        (r"rows = \(group - 1\) \* 64", "rows = (group - 1) * 60", "into the 1024 after which its swizzle begins anew"),
        (r"A_BYTES \+ B_BYTES\);\n", "1 << 20);\n", "1048576 bytes to wait for; it counts to 1048575"),
        (
            r"A_tile \+ RING \+ 1024",
            "A_tile + RING",
            "store_matrix at byte 49152 of shared memory, where a barrier lies",
        ),
        (r"barrier_named<1>\(128\)", "barrier_named<1>(100)", "100 threads are to come to a named barrier: it counts"),
        (
            r"registers_take<232>",
            "if (thread % 128 < 32) registers_take<232>",
            "some warps of a warpgroup change their",
        ),
        (r"(registers_take<232>\(\);)", r"\1 registers_take<200>();", "registers_take<200> of threads that have 232"),
        (
            r"wgmma_fence\(\);(.*?)wgmma_wait<1>",
            r"wgmma_fence(); sums[0][0][0] = float(k0);\1wgmma_wait<0>",
            "a register of the accumulator was written between wgmma_fence and the product",
        ),
        (r"wgmma_wait<0>\(\);\n", "", "what is rounded was made of a register of an accumulator that was read while"),
    ],
)
def test_what_only_the_hardware_would_do_otherwise_is_told(pattern: str, replacement: str, said: str) -> None:
    kernel, count = re.subn(pattern, replacement, KERNEL, count=1, flags=re.S)
    assert count == 1
    with pytest.raises(EmulationError) as caught:
        multiply(compile_source(Shape().text(kernel), ["product"]), Shape(), 128, 64, 128, 0)
    assert said in str(caught.value)


def test_a_box_fills_the_rows_of_its_swizzle() -> None:
    shape, strides, half = (100, 72), (144, 2), np.dtype(np.float16)
    assert tensor_map(shape, strides, half, 0, (8, 64), 128).box == (64, 8)
    with pytest.raises(NoTensorMap, match="128 bytes of its swizzle, here 64"):
        tensor_map(shape, strides, half, 0, (8, 32), 128)


@needs_nvcc
@pytest.mark.parametrize("shape", [Shape(columns=128, stages=4), Shape(columns=256, stages=3)], ids=str)
def test_ptxas_serialises_nothing_and_spills_nothing(tmp_path: Path, shape: Shape) -> None:
    (tmp_path / "product.cu").write_text(shape.text())
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", "product.cu", "-o", "product.cubin"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not re.search(r"C75\d\d", result.stderr), result.stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in result.stderr
