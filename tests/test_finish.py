"""What is made of finished sums where a thread has no registers for all of it at once: right at odd sizes, piece by
piece in the text, and without local memory in machine code."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import compile_cubin
from treadle.runtime.verify import verify

EXAMPLES = Path(__file__).parents[1] / "examples"
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

LARGE = {
    # Sizes that these are made for; they are given at the launch, so that every access asks for its bounds.
    "rms_norm_matmul": {"t": 16384, "i": 4096, "o": 4096},
    "quantised_matmul": {"t": 16384, "i": 4096, "o": 4096},
    "matmul_residual": {"t": 16384, "j": 4096, "i": 4096},
    "matmul_gelu": {"t": 16384, "i": 4096, "o": 4096},
    "swiglu": {"t": 16384, "i": 4096, "j": 4096},
}
TWO_SIZES = {"t": 16384, "j": 4096, "i": 4096}
WIDE = "t=128,i=256"


TWO_RESULTS = """
!H = tensor<?x?xf16, #diagram.array<[t, j]>>
!W = tensor<?x?xf16, #diagram.array<[j, i]>>
!row = tensor<?xf32, #diagram.array<[i]>>
!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!Z = tensor<?x?xf32, #diagram.array<[t, i]>>
func.func @two_results(%H: !H, %W: !W, %bias: !row, %X: !X, %gain: !row) -> (!X, !X)
    attributes {sizes = #diagram.sizes<>} {
  %Z = diagram.contract %H, %W over [j] accumulate f32 : !H, !W -> !Z
  %out = diagram.map (%z = %Z : !Z, %b = %bias : !row, %x = %X : !X, %g = %gain : !row) -> !Z {
    %wide = arith.extf %x : f16 to f32
    %biased = arith.addf %z, %b : f32
    %sum = arith.addf %biased, %wide : f32
    %y = arith.mulf %sum, %g : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %out : !Z -> !X
  %biased = diagram.map (%z = %Z : !Z, %b = %bias : !row) -> !Z {
    %s = arith.addf %z, %b : f32
    diagram.yield %s : f32
  }
  %S = diagram.cast %biased : !Z -> !X
  func.return %Y, %S : !X, !X
}
"""


def program(name: str) -> str:
    """An example, made for large sizes."""
    text = TWO_RESULTS if name == "two_results" else (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    sizes = ", ".join(f"{axis} = {size}" for axis, size in LARGE.get(name, TWO_SIZES).items())
    return re.sub(r"#diagram\.sizes<[^>]*>", f"#diagram.sizes<{sizes}>", text)


@cache
def made(name: str, arch: str, group: str = "") -> tuple[ModuleOp, ModuleOp, str]:
    """The algorithm, its module, and the printed file; with the tile of a group, if one is given."""
    module = parse_module(program(name))
    algorithm = module.clone()
    specs = pipeline(Options(arch=arch))
    if group:
        forced = ArgSpec("hierarchy-choose-sizes", {"group": (group,)})
        specs = tuple(forced if each.name == forced.name else each for each in specs)
    run_passes(module, specs)
    return algorithm, module, print_cuda(module)


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("t", "j", "i"), [(131, 72, 264), (60, 40, 516), (1, 8, 1)])
def test_a_residual_added_in_pieces(arch: str, t: int, j: int, i: int) -> None:
    """Rows that tensor maps take, that only narrow loads do, and one element; the last pieces are cut."""
    assert_right(*made("matmul_residual", arch, WIDE), {"t": t, "j": j, "i": i})


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("t", "j", "i"), [(131, 72, 264), (60, 40, 516), (1, 8, 1)])
def test_two_results_of_one_sum_in_pieces(arch: str, t: int, j: int, i: int) -> None:
    assert_right(*made("two_results", arch, WIDE), {"t": t, "j": j, "i": i})


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["matmul_gelu", "rms_norm_matmul", "quantised_matmul"])
def test_finishes_of_large_tiles(name: str, arch: str) -> None:
    assert_right(*made(name, arch), {"t": 75, "i": 104, "o": 200})


def assert_right(algorithm: ModuleOp, module: ModuleOp, printed: str, sizes: dict[str, int]) -> None:
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), 0)
    execution = HostExecution(module, EmulatorBackend(printed, kernel_names(module), seed=0))
    outputs = execution.run(entry_function(module), inputs)
    assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


def test_what_a_residual_needs_is_loaded_piece_by_piece() -> None:
    """Sums, a bias and what is added are more than the 240 registers of a consumer: the bias is read in the loop, what
    is added is loaded there, and the bias's place is given back behind it."""
    _, _, printed = made("matmul_residual", "sm_90a", WIDE)
    body = printed[printed.index("residual_kernel_specialised_body(") :]
    loop = body[
        (begin := body.index("UNROLL for (int i16 = 0; i16 < 16; ++i16) {")) : body.index("__half Y[32]", begin)
    ]
    assert "unpack(bias_piece[i8], load_shared(" in loop
    assert "UNROLL for (int i8 = i16 * 2; i8 < i16 * 2 + 2; ++i8)" in loop
    assert "unpack(&X_piece[i16][t8][i1], load_global_if(" in loop
    assert "shuffle(" in loop
    assert loop.count("keep(Z[i8][t8][i1]);") == 1


def test_results_of_one_sum_are_made_together() -> None:
    """The loop that makes the one makes the other, and narrows both: neither is made beside all sums."""
    _, _, printed = made("two_results", "sm_90a", WIDE)
    begin = printed.index("two_results_kernel_specialised_body(")
    body = printed[begin : printed.index("_by_lanes_body(", begin)]
    loop = body[
        (begin := body.index("UNROLL for (int i16 = 0; i16 < 16; ++i16) {")) : body.index("fence_proxy_async", begin)
    ]
    loop = loop[: loop.index("\n      }\n")]
    assert "unpack(bias_piece[i8], load_shared(" in loop
    assert loop.count("Z[i8][t8][i1] + bias_piece[i8][i1]") == 2
    assert loop.count("store_pair(") == 2
    assert body.count("store_pair(") == 2


def test_results_that_go_to_their_array_leave_piece_by_piece() -> None:
    """The scale of a column is read, used, and its results are stored, before the next one's: never all beside all
    sums. Its line has no swizzle, so that all are read from one place on. It comes with the scales of rows."""
    _, _, printed = made("quantised_matmul", "sm_90a")
    body = printed[printed.index("quantised_matmul_2_kernel_by_lanes_body(") :]
    begin = body.index("UNROLL for (int o8 = 0; o8 < 32; ++o8) {")
    loop = body[begin : body.index("\n      }\n", begin)]
    read, store = (
        loop.index("load_shared(vec<2>(&w_scale_shared[o8 * 8 + lane % 4 * 2]))"),
        loop.index("store_global_if("),
    )
    assert read < loop.index("keep(Z[o8][t8][o1]);") < store
    assert body.count("store_global_if(") == 1
    assert body.index("mbarrier_arrive(&scale_ring[1])") > begin + store


def test_small_finishes_stay_whole() -> None:
    """What fits at once is loaded at once, and left to the compiler to order."""
    _, _, printed = made("matmul_residual", "sm_90a", "t=128,i=128")
    assert "_specialised_body" in printed
    assert "keep(Z);" in printed
    assert "keep(Z[" not in printed
    assert "i16 * 2" not in printed.replace("[i16 * 2]", "").replace("[i16 * 2 + 1]", "")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each == "matmul_residual" else [pytest.mark.full]) for each in LARGE]
)
def test_large_products_with_a_finish_spill_nothing(name: str) -> None:
    """The kernels with roles, for arrays that tensor maps take and rows in order. ptxas fences no product once more
    (C7519): the zeros that it adds to are there before the fence."""
    _, _, printed = made(name, "sm_90a")
    cubin = compile_cubin(printed, "sm_90a")
    assert not re.search(r"C75\d\d|warning", cubin.log), cubin.log
    found = [each for each in cubin.resources if "_specialised" in each.kernel]
    assert found
    assert not {
        each.kernel: each.spilled_bytes for each in found if each.spilled_bytes and not each.kernel.endswith("_strided")
    }
