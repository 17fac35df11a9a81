"""Integers of 8 bits on warpgroups: sums are exact at every size and in every order of completion, what no tensor map
describes takes single warps, and nobody reads or writes a sum that a product still makes without being told."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_int8 import product

from roads import Road, alone, array, compiled
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.primitives.wgmma import WIDTHS_OF_INTEGERS
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.warpgroups import columns_of_products
from treadle.dialects.diagram.array import format_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import Array, EmulationError, compile_source
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.nvcc import compile_cubin
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
EXAMPLE = Path(__file__).parents[1] / "examples" / "matmul_int8.mlir"


@cache
def road() -> Road:
    return compiled(product("mk", "nk"), arch="sm_90a", machine="h100")


def numbers(seed: int, *shape: int) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def exact(left: NDArray[np.int8], right: NDArray[np.int8]) -> NDArray[np.int64]:
    return left.astype(np.int64) @ right.astype(np.int64).T


def launched(made: Road, *given: Any) -> tuple[Any, str]:
    """The first result, and the kernel that made it."""
    result = made.run(list(given))[0]
    return result, made.backend().variants[-1]


def test_products_are_those_of_warpgroups():
    found = [op for op in road().module.walk() if isinstance(op, cuda.WarpgroupProductOp)]
    assert {tuple(str(format_of(each.type)) for each in (*op.operands, op.result)) for op in found} == {
        ("i8", "i8", "i32", "i32")
    }
    assert "beside one that copies" in str(road().module)


@needs_compiler
@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 96, 128), (150, 144, 512), (65, 80, 112), (1, 3, 16), (200, 100, 1040), (64, 64, 32)]
)
def test_sums_are_exact_where_tensor_maps_describe_the_operands(m: int, n: int, k: int):
    left, right = numbers(1, m, k), numbers(2, n, k)
    made, kernel = launched(road(), left, right)
    np.testing.assert_array_equal(made, exact(left, right))
    assert "_specialised" in kernel


@needs_compiler
def test_results_whose_rows_begin_between_multiples_of_16_bytes_are_stored_by_lanes():
    """The kernel with tensor copies sends its results by them, too."""
    left, right = numbers(1, 200, 1040), numbers(2, 97, 1040)
    made, kernel = launched(road(), left, right)
    np.testing.assert_array_equal(made, exact(left, right))
    assert "_by_lanes" in kernel


@needs_compiler
@pytest.mark.parametrize("k", [47, 40, 100])
def test_rows_that_begin_between_multiples_of_16_bytes_take_single_warps(k: int):
    left, right = numbers(1, 70, k), numbers(2, 48, k)
    made, kernel = launched(road(), left, right)
    np.testing.assert_array_equal(made, exact(left, right))
    assert "_specialised" not in kernel


@needs_compiler
def test_parts_of_arrays():
    """Rows 160 bytes apart have maps where they begin at a multiple of 16 bytes, and only there."""
    left, right = numbers(1, 70, 160), numbers(2, 48, 160)
    for first, has_maps in ((0, True), (16, True), (4, False), (1, False)):
        a, b = left[:, first : first + 96], right[:, first : first + 96]
        made, kernel = launched(road(), a, b)
        np.testing.assert_array_equal(made, exact(a, b))
        assert ("_specialised" in kernel) == has_maps, first


@needs_compiler
def test_the_largest_sums():
    """2^14 for each product: the largest that fit in 32 bits, and the first that wraps."""
    made, kernel = launched(road(), *(np.full((4, 2**17 - 16), -128, np.int8) for _ in "ab"))
    assert made.ravel().tolist() == [2**31 - 2**18] * 16
    assert "_specialised" in kernel
    made, _ = launched(road(), *(np.full((1, 2**17), -128, np.int8) for _ in "ab"))
    assert made.item() == -(2**31)
    made, _ = launched(road(), np.full((1, 160), -128, np.int8), np.full((1, 160), 127, np.int8))
    assert made.item() == -128 * 127 * 160


@needs_compiler
def test_any_order_of_completion():
    left, right = numbers(1, 130, 640), numbers(2, 100, 640)
    for seed in range(10):
        backend = EmulatorBackend(road().text, kernel_names(road().module), seed=seed)
        (made,) = execute(road().module, [left, right], backend)
        np.testing.assert_array_equal(made, exact(left, right))


@needs_compiler
def test_scales_in_16_bits_and_integers_added():
    """A bias in i32, scales in f16, a result that is clipped to i8, and one in f16."""
    x, w, z = array("i8", m=None, k=None), array("i8", n=None, k=None), array("i32", m=None, n=None)
    b, s, h, q = array("i32", n=None), array("f16", n=None), array("f16", m=None, n=None), array("i8", m=None, n=None)
    made = compiled(
        f"""func.func @f(%X: {x}, %W: {w}, %b: {b}, %s: {s}) -> ({z}, {q}, {h}) {{
  %Z = diagram.contract %X, %W over [k] accumulate i32 : {x}, {w} -> {z}
  %B = diagram.map (%z = %Z : {z}, %c = %b : {b}) -> {z} {{
    %y = arith.addi %z, %c : i32
    diagram.yield %y : i32
  }}
  %Q = diagram.cast %B : {z} -> {q}
  %H = diagram.map (%z = %B : {z}, %t = %s : {s}) -> {h} {{
    %f = arith.sitofp %z : i32 to f32
    %u = arith.extf %t : f16 to f32
    %p = arith.mulf %f, %u : f32
    %y = arith.truncf %p : f32 to f16
    diagram.yield %y : f16
  }}
  func.return %B, %Q, %H : {z}, {q}, {h}
}}""",
        arch="sm_90a",
        machine="h100",
    )
    assert "wgmma_m64n" in made.text
    left, right = numbers(1, 70, 96), numbers(2, 56, 96)
    added = np.random.default_rng(3).integers(-(2**20), 2**20, 56).astype(np.int32)
    scales = np.random.default_rng(4).uniform(0, 2.0**-10, 56).astype(np.float16)
    sums, clipped, scaled = made.run([left, right, added, scales])
    expected = exact(left, right) + added
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(clipped, np.clip(expected, -128, 127))
    rounded = (expected.astype(np.float32) * scales.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(scaled, rounded)


FAULTS = {
    "no wait": (r"wgmma_wait<0>\(\);", "", "read while"),
    "too lax a wait": (r"wgmma_wait<0>\(\);", "wgmma_wait<1>();", "read while"),
    "a sum read in flight": (r"(wgmma_commit\(\);)", r"\1 if (SUM[0][1][0] > 7) wgmma_fence();", "read while"),
    "a sum written in flight": (r"(wgmma_commit\(\);)", r"\1 SUM[1][0][1] = 7;", "was written while a product"),
    "a sum doubled in flight": (
        r"(wgmma_commit\(\);)",
        r"\1 SUM[1][0][1] = 2 * SUM[1][0][1];",
        "read while",
    ),
    "sums that are written after the fence": (
        r"(wgmma_fence\(\);)",
        r"\1 SUM[0][0][0] = 7;",
        "written between",
    ),
    "no fence": (r"wgmma_fence\(\);", "", "begins without wgmma_fence"),
    "no commit": (r"wgmma_commit\(\);", "", ""),
    "sums that begin anywhere": (r"(ExactSum SUM.*) = \{\};", r"\1; SUM[0][0][0] = 7;", ""),
    "each step begins anew": (r"(wgmma_m64n\w+<int8_t, int8_t>\(.*), true\)", r"\1, false)", ""),
    "a step too wide": (r"further\(a, k32 \* 32\)", "further(a, k32 * 64)", ""),
    "the tile is not awaited": (r"mbarrier_wait\(&A_ring.*", "", ""),
    "released before the products are done": (
        r"(?s)wgmma_wait<1>\(\);(.*?mbarrier_arrive\(&B_ring[^;]*;)",
        r"\1 wgmma_wait<1>();",
        "",
    ),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault: str):
    """By a report, of the register where it is one of a sum; or by wrong sums."""
    text = road().text
    found = re.search(r"  ExactSum (\w+)\[.*= \{\};", text)
    assert found is not None
    begin, name = found.start(), found[1]
    pattern, replacement, said = (each.replace("SUM", name) for each in FAULTS[fault])
    changed, count = re.subn(pattern, replacement, text[begin:], count=1)
    assert count == 1
    reports: list[str] = []
    for seed, k in ((0, 128), (0, 1184), (1, 1184), (2, 1184)):  # one turn, and more than there are stages
        left, right = numbers(1, 130, k), numbers(2, 100, k)
        backend = EmulatorBackend(text[:begin] + changed, kernel_names(road().module), seed=seed)
        try:
            result = execute(road().module, [left, right], backend)
        except EmulationError as error:
            reports.append(str(error))
        else:
            if not all(verdict.ok for verdict in verify(road().algorithm, [left, right], result, "emulator")):
                reports.append("")
    assert reports, "nothing was noticed"
    assert any(said in report for report in reports), reports[0]


WATCHED = """
__global__ void watch(const int8_t* zeros, const int* given, int* kept) {
  int8_t* const tile = reinterpret_cast<int8_t*>(shared_memory());
  const int t = threadIdx.x;
  for (int i = t; i < 64 * 32; i += 128) store_shared(tile + i, load_global(zeros + i));
  fence_proxy_async();
  barrier_block();
  ExactSum sums[2][2][2];
  for (int i = 0; i < 8; ++i) sums[i / 4][i / 2 % 2][i % 2] = load_global(given + t * 8 + i);
  const uint64_t both = matrix_descriptor<32>(matrix_start(tile, 0), 256);
  wgmma_fence();
  wgmma_m64n16k32_s32<int8_t, int8_t>(sums, both, both, true);
  wgmma_commit();
  EARLY
  wgmma_wait<0>();
  for (int i = 0; i < 8; ++i) store_global(kept + t * 8 + i, int32_t(sums[i / 4][i / 2 % 2][i % 2]));
}
"""


@needs_compiler
def test_a_sum_may_have_the_bits_that_stand_for_none():
    """Every sum that a register in flight of lines 0 to 1023 holds is one of a product of zeros, read in time."""
    names = ["shared_memory", "load_global", "store_global", "store_shared", "fence_proxy_async", "barrier_block"]
    names += ["matrix_start", "matrix_descriptor", "wgmma_fence", "wgmma_commit", "wgmma_wait", "wgmma_m64n16k32_s32"]
    line = source(names).count("\n") + WATCHED[: WATCHED.index("wgmma_m64n16")].count("\n") + 1
    given = 0x7F950000 + (line & ~1023) + np.arange(1024, dtype=np.int32)
    zeros = np.zeros(64 * 32, np.int8)

    def launch(early: str) -> NDArray[np.int32]:
        kept = np.zeros(1024, np.int32)
        module = compile_source(source(names) + WATCHED.replace("EARLY", early), ["watch"])
        arguments = [Array(zeros, False), Array(given, False), Array(kept, True)]
        module.launch("watch", (1, 1, 1), (128, 1, 1), 64 * 32, arguments)
        return kept

    np.testing.assert_array_equal(launch(""), given)
    with pytest.raises(EmulationError, match=f"was read while the product on line {line} into it was in flight"):
        launch("store_global(kept + t, int32_t(sums[1][0][1]));")


# -- which products, what they cost, and what nvcc makes of them -------------------------------------


def test_columns_come_in_sixteens():
    assert {*WIDTHS_OF_INTEGERS} == {8, 16, 24, *range(32, 257, 16)}
    assert columns_of_products("i8") == WIDTHS_OF_INTEGERS


@pytest.mark.parametrize(("columns", "fit"), [(24, True), (40, False), (48, True)])
def test_columns_that_a_group_holds_whole(columns: int, fit: bool):
    """The model knows what the lowering will find."""
    x, w, r = array("i8", m=None, k=None), array("i8", n=columns, k=None), array("i32", m=None)
    z = array("i32", m=None, n=columns)
    module = parse_module(
        f"""func.func @f(%X: {x}, %W: {w}) -> {r} attributes {{sizes = #diagram.sizes<m = 8192, k = 8192>}} {{
  %Z = diagram.contract %X, %W over [k] accumulate i32 : {x}, {w} -> {z}
  %M = diagram.reduce max %Z over [n] : {z} -> {r}
  func.return %M : {r}
}}"""
    )
    run_pipeline(module, Options("h100"))
    assert fit == any(isinstance(op, cuda.WarpgroupProductOp) for op in module.walk())
    assert fit == ("beside one that copies" in str(module))


SCORES = """
!Q = tensor<?x64xi8, #diagram.array<[q, d]>>
!K = tensor<?x64xi8, #diagram.array<[x, d]>>
!V = tensor<?x64xf16, #diagram.array<[x, e]>>
!R = tensor<?x?xi32, #diagram.array<[q, x]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
func.func @f(%Q: !Q, %K: !K, %scale: f32, %V: !V) -> !O {
  %R = diagram.contract %Q, %K over [d] accumulate i32 : !Q, !K -> !R
  %S = diagram.map (%r = %R : !R, %c = %scale : f32) -> !S {
    %n = arith.sitofp %r : i32 to f32
    %s = arith.mulf %n, %c : f32
    diagram.yield %s : f32
  }
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
"""


@needs_compiler
def test_scores_of_integers_and_values_in_16_bits():
    made = compiled(SCORES, machine="h100")
    found = [op for op in made.module.walk() if isinstance(op, cuda.WarpgroupProductOp)]
    assert {(str(format_of(op.rhs.type)), str(format_of(op.result.type))) for op in found} == {
        ("i8", "i32"),
        ("f16", "f32"),
    }
    for q, x in ((130, 272), (70, 333), (1, 1)):
        given = numbers(1, q, 64), numbers(2, x, 64), 2.0**-14
        values = np.random.default_rng(3).standard_normal((x, 64)).astype(np.float16)
        assert all(verdict.ok for verdict in made.verdicts([*given, values], {"q": q, "x": x}))
        assert "_specialised" in made.backend().variants[-1]


@needs_nvcc
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("text", [product("mk", "nk"), SCORES], ids=["product", "scores"])
def test_what_nvcc_makes_of_it_computes_the_same(text: str, seed: int):
    """In the machine for PTX, with tensor maps as the driver would make them."""
    made = compiled(text, machine="h100")
    sizes = {"m": 70, "n": 48, "k": 272} if "%A" in text else {"q": 70, "x": 144}
    inputs = made.inputs(sizes, seed)
    plain = [given if isinstance(given, np.ndarray) else np.asarray(given).item() for given in inputs]
    backend = PtxBackend(alone(made.text), kernel_names(made.module), "sm_90a", seed=seed)
    results = execute(made.module, plain, backend)
    assert all(verdict.ok for verdict in verify(made.algorithm, inputs, results, "ptx", sizes=sizes))
    assert "_specialised" in backend.variants[-1]


@needs_nvcc
@pytest.mark.parametrize("size", [1024, 4096])
def test_ptxas_serialises_nothing_and_spills_nothing(size: int):
    module = load_module(str(EXAMPLE))
    run_pipeline(module, Options("h100", sizes=dict.fromkeys("tio", size)))
    cubin = compile_cubin(print_cuda(module), "sm_90a")
    roles = [each for each in cubin.resources if "_specialised" in each.kernel]
    assert roles
    assert not any(each.spilled_bytes or each.product_notes for each in cubin.resources)
