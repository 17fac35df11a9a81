"""Kernels with roles, as treadle makes them for sm_90a: right in the emulator at all shapes and in every order of
completion, the other kernel where no tensor map can be, and every mistake in barriers or copies noticed."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from benchmarking import benchmark
from roads import compiled
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime import cuda_driver
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.cuda_driver import DriverFailure, EncodedMap, arguments_of, encode
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.prepared import ALIGNMENT, parameters
from treadle.runtime.tensor_maps import tensor_map
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")
EXAMPLES = programs.EXAMPLES


@cache
def made(text: str, stream: str = "") -> tuple[ModuleOp, ModuleOp, str]:
    """The algorithm, its module for sm_90a, and the printed file; pieces of the stream as given, or as chosen."""
    module = parse_module(text)
    algorithm = module.clone()
    fixed = ArgSpec(CHOOSING_PASS, {"stream": (stream,)} if stream else {})
    specs = pipeline(Options(arch="sm_90a"))
    run_passes(module, [fixed if spec.name == fixed.name and stream else spec for spec in specs])
    return algorithm, module, print_cuda(module)


def execute(text: str, sizes: Mapping[str, int], seed: int = 0, printed: str | None = None) -> tuple[list[str], bool]:
    """The kernels that were launched, and whether all outputs are right (EmulationError)."""
    algorithm, module, own = made(text)
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, sizes), seed)
    return run(algorithm, module, printed or own, inputs, seed)


def run(algorithm: ModuleOp, module: ModuleOp, printed: str, inputs: list[Any], seed: int) -> tuple[list[str], bool]:
    backend = EmulatorBackend(printed, kernel_names(module), seed=seed)
    execution = HostExecution(module, backend)
    outputs = execution.run(entry_function(module), inputs)
    verdicts = verify(algorithm, inputs, outputs, "emulator")
    return [launch.kernel for launch in execution.launches], all(verdict.ok for verdict in verdicts)


MATMULS = [f"matmul{kind}" for kind in ("", "_nt", "_tn", "_tt")]


@needs_compiler
@pytest.mark.parametrize("name", MATMULS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 256, 256), (200, 136, 336), (64, 64, 64), (8, 8, 8), (72, 264, 40), (128, 128, 1024)]
)
@pytest.mark.sample(6)
def test_products_at_any_size_and_order(name: str, m: int, n: int, k: int) -> None:
    launched, right = execute((EXAMPLES / f"{name}.mlir").read_text(), {"m": m, "n": n, "k": k})
    assert right
    # Rows of 8 columns are not aligned to sectors: another entry of the same kernel.
    assert [entry.removesuffix("_aligned_16") for entry in launched] == [f"{name}_kernel_specialised"]


@needs_compiler
@pytest.mark.parametrize("width", [16, 32, 64, 80, 96, 128])
@pytest.mark.parametrize(("q", "x"), [(128, 128), (200, 333), (1, 1), (70, 1030), (64, 0)])
@pytest.mark.sample(6)
def test_attention_at_any_size(width: int, q: int, x: int) -> None:
    text = programs.attention(width)
    launched, right = execute(text, {"b": 1, "h": 2, "q": q, "x": x})
    assert right
    assert launched == ["attention_kernel_specialised" if x else "attention_kernel_by_lanes"]


@needs_compiler
@pytest.mark.parametrize("example", ["attention_causal", "attention_window", "attention_prefix", "attention_gqa"])
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.sample(4)
def test_attention_with_conditions_and_grouped_heads(example: str, width: int) -> None:
    """The tiles that a condition cuts and those that it leaves whole are loops over the same rings."""
    text = programs.attention(width, example=example)
    assert execute(text, {"b": 1, "q": 200, "x": 333}) == ([f"{example}_kernel_specialised"], True)


@needs_compiler
@pytest.mark.parametrize("example", ["attention_lengths", "attention_segments"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("q", "x"), [(200, 333), (1, 1), (900, 700), (333, 200)])
@pytest.mark.sample(6)
def test_loops_whose_ends_are_loaded(example: str, width: int, q: int, x: int) -> None:
    """Every warp loads them: an element, or several of which a warp finds the least. Segments begin behind most queries
    where there are more keys than queries: all is zero there."""
    text = programs.attention(width, example=example)
    assert execute(text, {"b": 2, "h": 1, "q": q, "x": x}) == ([f"{example}_kernel_specialised"], True)


@needs_compiler
@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("example", ["attention_lengths", "attention_segments"])
def test_loops_whose_ends_are_loaded_in_any_order_of_completion(example: str, first: int) -> None:
    text = programs.attention(64, example=example)
    for seed in range(first, first + 5):
        assert execute(text, {"b": 1, "h": 1, "q": 500, "x": 400}, seed)[1]


def test_what_all_warps_find_together_no_role_knows_alone() -> None:
    """A search whose steps the warps share."""
    text = (EXAMPLES / "attention_packed.mlir").read_text()
    told = str(entry_function(made(text)[1]).attributes["derivation"])
    assert "depends on what the warps of the kernel find together" in told
    assert "beside one that copies" not in told


@needs_compiler
@pytest.mark.parametrize(("q", "x"), [(128, 128), (70, 333)])
@pytest.mark.sample(1)
def test_attention_of_wide_heads(q: int, x: int) -> None:
    assert execute(programs.attention(256), {"b": 1, "h": 1, "q": q, "x": x}) == (
        ["attention_kernel_specialised"],
        True,
    )


@needs_compiler
@pytest.mark.parametrize("first", range(0, 20, 5))
@pytest.mark.parametrize("x", [300, 700])
def test_twenty_orders_of_completion_give_no_report(x: int, first: int) -> None:
    for seed in range(first, first + 5):
        assert execute(programs.attention(64), {"b": 1, "h": 1, "q": 100, "x": x}, seed)[1]


@needs_compiler
def test_the_emulator_takes_seconds() -> None:
    """At most 5 for attention of 256 queries and keys, d 64, with all checks, and 120 for 20 orders of completion: of
    this process's own time, in which the emulator runs, so that other work beside it has no say."""
    text, sizes, seconds = programs.attention(64), {"b": 1, "h": 1, "q": 256, "x": 256}, list[float]()
    made(text)
    for seed in range(21):
        start = process_time()
        assert execute(text, sizes, seed) == (["attention_kernel_specialised"], True)
        seconds.append(process_time() - start)
    assert max(seconds) <= 5
    assert sum(seconds[1:]) <= 120


@needs_compiler
def test_a_product_of_what_consumers_write_keeps_one_role() -> None:
    launched, right = execute((EXAMPLES / "linear_attention.mlir").read_text(), {"b": 1, "h": 2, "q": 100, "x": 300})
    assert right
    assert not any("specialised" in name for name in launched)


@needs_compiler
@pytest.mark.parametrize(("start", "pitch"), [(0, 72), (8, 64), (0, 65), (1, 64), (4, 68)])
def test_strides_and_addresses(start: int, pitch: int) -> None:
    """Where no tensor map can be made, the kernel whose lanes copy runs."""
    algorithm, module, printed = made(programs.attention(64))
    random = np.random.default_rng(0)

    def piece() -> Any:
        # One allocation is aligned to 16 bytes; the view begins `start` elements in, its rows `pitch` apart.
        room = np.zeros(40 * pitch + start + 8, np.float16)
        room[...] = random.standard_normal(room.size)
        shift = start - room.ctypes.data % 16 // 2 if room.ctypes.data % 16 else start
        return room[shift:][: 40 * pitch].reshape(1, 1, 40, pitch)[..., :64]

    launched, right = run(algorithm, module, printed, [piece() for _ in "qkv"], 0)
    assert right
    fits = start % 8 == 0 and pitch % 8 == 0
    assert launched[0].startswith("attention_kernel_specialised") == fits
    assert launched[0].startswith("attention_kernel_by_lanes") == (not fits)


# What is replaced in the printed kernel with roles, and by what.
FAULTS = {
    "consumers do not wait for K": (r"mbarrier_wait\(&K_ring\[[^;]*?\], (uint32_t\(turn\w*\) / \d) % 2\);", ";"),
    "consumers do not wait for V": (r"mbarrier_wait\(&V_ring\[[^;]*?\], (uint32_t\(turn\w*\) / \d) % 2\);", ";"),
    "consumers do not wait for Q": (r"mbarrier_wait\(&Q_ring\[0\], 0 % 2\);", ";"),
    "consumers wait for the wrong phase": (r"(mbarrier_wait\(&K_ring.*?)/ (\d) % 2\)", r"\1/ \2 % 2 ^ 1)"),
    "the producer does not wait for empty stages": (r"mbarrier_wait\(&K_ring\[\d \+ [^;]*?;", ";"),
    "the producer waits for the wrong phase": (r" \+ 1\) % 2\);", ") % 2);"),
    "K is not released": (r"if \(thread % 128 == 0\) mbarrier_arrive\(&K_ring[^;]*;", ";"),
    "V is not released": (r"if \(thread % 128 == 0\) mbarrier_arrive\(&V_ring[^;]*;", ";"),
    "every thread releases": (r"if \(thread % 128 == 0\) (mbarrier_arrive\(&K_ring)", r"\1"),
    "too few bytes": (r"(mbarrier_arrive_expect\(&K_ring\[.*?\], )(\d+)", r"\1 16"),
    "too many bytes": (r"(mbarrier_arrive_expect\(&K_ring\[.*?\], )(\d+)", r"\1 16 + \2"),
    "no bytes are expected": (r"mbarrier_arrive_expect\(&V_ring[^;]*;", ";"),
    "K completes on V's barrier": (r"(tensor_load\(K_\w+, K_map, )&K_ring", r"\1&V_ring"),
    "K lands in the first stage always": (r"stage_at\((K_\w+), [^;]*;", r"\1;"),
    "K is read from the first stage always": (
        r"(const uint64_t b = matrix_descriptor<128>\(K_\w+) \+ int\(K_stage\).*?, (\d+\);)",
        r"\1, \2",
    ),
    "the other array is loaded": (r"tensor_load\((K_\w+), K_map", r"tensor_load(\1, V_map"),
    "coordinates of another piece": (r"(tensor_load\(K_\w+, K_map.*?\{0, )int\((\w+)\)", r"\1int(\2) + 1"),
    "products begin without a fence": (r"wgmma_fence\(\);", ";"),
    "products are not committed": (r"wgmma_commit\(\);", ";"),
    "scores are read before they are there": (r"wgmma_wait<0>\(\);", ";"),
    "the left operand is made after the fence": (
        r"keep\((P16\w*)\);\s*wgmma_fence\(\);",
        r"const auto made = \1[0][0][0][0]; \1[0][0][0][0] = __half(7.0f); wgmma_fence(); \1[0][0][0][0] = made;",
    ),
    "another stride in a descriptor": (r"(matrix_descriptor<\d+>\([^;]*, )1024", r"\g<1>512"),
    "another swizzle in a descriptor": (r"matrix_descriptor<128>", "matrix_descriptor<64>"),
    "another step along the depth": (r"further\(b, k16 \* 32\)", "further(b, k16 * 64)"),
    "barriers are not fenced": (r"mbarrier_init_fence\(\);", ";"),
    "nobody waits for the barriers": (r"barrier_block\(\);", ";"),
    "a ring for one consumer more": (r"(mbarrier_init\(&K_ring\[\d \+ stage\], )(\d)", r"\1 1 + \2"),
    "the consumers do not meet": (r"(barrier_named<1>\(\d+\);.*?)barrier_named<1>\(\d+\);", r"\1;"),
    "fewer than all meet": (r"barrier_named<1>\((\d+)\)", r"barrier_named<1>(\1 + 32)"),
}


def start_of_roles(printed: str) -> int:
    return printed.index("attention_kernel_specialised_body")


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sample(10)
def test_every_fault_is_caught(fault: str) -> None:
    text, sizes = programs.attention(64, {"q": 128, "x": 8192}), {"b": 1, "h": 1, "q": 128, "x": 1700}
    _, _, printed = made(text)
    pattern, replacement = FAULTS[fault]
    at = start_of_roles(printed)
    changed, count = re.subn(pattern, replacement, printed[at:], count=1, flags=re.S)
    assert count == 1
    for seed in (0, 1, 2):
        try:
            if not execute(text, sizes, seed, printed[:at] + changed)[1]:
                return
        except EmulationError:
            return
    raise AssertionError("nothing was noticed")


# -- descriptors in the text ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [64, 256])
def test_a_turn_makes_no_start_of_a_descriptor(width: int) -> None:
    """It adds a stage to a number that was made before all loops, and to what stays, if it has many steps, a zero that
    is of the turn. At 64 keys a block takes one piece after another, in a loop around all that."""
    _, _, printed = made(programs.attention(width, {"b": 4, "h": 16, "q": 4096, "x": 4096}), "x=64")
    consumers = printed[printed.index("registers_take<", start_of_roles(printed)) :]
    before, loop = consumers[: consumers.index("\n}\n")].split("for (", 1)
    starts = re.findall(r"const int (\w+) = kept\(matrix_start\(", before)
    assert len(starts) == 3
    assert "matrix_start(" not in loop
    descriptors = re.findall(r"const uint64_t [ab] = matrix_descriptor<128>\((\w+)(?: \+ (.*?))?, 1024\);", loop)
    assert {start for start, _ in descriptors} == set(starts)
    turns = {added for start, added in descriptors if start.startswith("Q")}
    assert turns
    of_turn = r"\(kept\(uint32_t\(\w+\)\) >> 31\)" if width == 256 else r"(int\(Q_stage\) \* \d+)?"  # of two places
    assert all(re.fullmatch(of_turn, turn) for turn in turns)


# -- the way to a GPU ----------------------------------------------------------------------------------


def scaled_keys(q: tl.Array, k: tl.Array, s: tl.Array, length: tl.Array, v: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.keep(tl.contract(q, k, over="d") * s * 0.2, "x < length[q]", length=length)
    return tl.contract(tl.softmax(scores, over="x").to("f16"), v, over="x"), tl.logsumexp(scores, over="x")


@needs_compiler
def test_tiles_in_boxes_begin_at_whole_units() -> None:
    """Four places of three tiles, of which a line lies between two in boxes, would end 208 bytes behind what a block
    has."""
    signature, likely = "q d, x d, x, q, x v -> q v, q", {"q": 4096, "x": 130, "d": 64, "v": 128}
    traced = treadle.kernel(signature, machine="h100")(scaled_keys)
    text = str(traced.trace(["f16", "f16", "f32", "i32", "f16"], likely, fixed=("x", "d", "v")))
    road = compiled(text, machine="h100")
    assert any("_specialised" in each.sym_name.data for each in road.kernels)
    road.check({"q": 33})


def test_what_the_driver_is_asked() -> None:
    map = tensor_map((2, 100, 64), (100 * 72 * 2, 144, 2), np.dtype(np.float16), 4096, (1, 128, 64), 128)
    assert arguments_of(map, 4096) == {
        "data_type": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
        "rank": 3,
        "address": 4096,
        "sizes": [64, 100, 2],
        "strides": [144, 14400],
        "box": [64, 128, 1],
        "element_strides": [1, 1, 1],
        "swizzle": "CU_TENSOR_MAP_SWIZZLE_128B",
    }


@pytest.mark.parametrize("status", [0, 1])
def test_where_the_driver_writes_a_map(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """It refuses an address that is no multiple of 64, as those of Python's objects are; and is told no more numbers
    than the map has dimensions."""
    driver = pytest.importorskip("cuda.bindings.driver")
    image, told = bytes(range(128)), []

    def encoded(*given: Any) -> int:
        place, format, rank, address, sizes, strides, box, steps, *modes = given
        told.append((place, format, address, sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], modes))
        ctypes.memmove(place, image, 128)
        return status

    stand_in = ctypes.CFUNCTYPE(ctypes.c_int, *cuda_driver.ENCODE_ARGUMENTS)(encoded)
    monkeypatch.setattr(cuda_driver, "_encoder", lambda: stand_in)
    # Addresses that no other test has: each map is encoded once.
    address = 0x7F00_0000_0000 + 4096 * status
    map = tensor_map((2, 100, 64), (100 * 72 * 2, 144, 2), np.dtype(np.float16), address, (1, 128, 64), 128)
    if status:
        with pytest.raises(DriverFailure, match="CUDA_ERROR_INVALID_VALUE"):
            encode(map, address, None)
    else:
        assert encode(map, address, None).image == image
    ((place, format, *rest),) = told
    assert place % 64 == 0
    assert format == driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    none, promoted = 0, driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    modes = [none, int(driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B), int(promoted), none]
    assert rest == [address, [64, 100, 2], [144, 14400], [64, 128, 1], [1, 1, 1], modes]


def test_parameters_of_a_launch_lie_where_they_are_named() -> None:
    image = bytes(range(128))
    given = parameters([ctypes.c_uint64(7), EncodedMap(image, None), ctypes.c_int32(-3)])
    first, second, third = given.addresses
    assert ctypes.c_uint64.from_address(first).value == 7
    assert second % ALIGNMENT == 0
    assert ctypes.string_at(second, 128) == image
    assert ctypes.c_int32.from_address(third).value == -3
