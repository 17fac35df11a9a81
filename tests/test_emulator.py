"""The emulator runs printed CUDA C: arguments, numbers, compilation and its cache."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from treadle.compiler.primitives import source
from treadle.runtime.cache import cache_directory, cached_file
from treadle.runtime.emulator import (
    Array,
    CompileFailure,
    EmulatedModule,
    EmulationError,
    EmulatorUnavailable,
    compile_source,
)

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
ADD = (
    source(["load_global_if", "store_global_if"])
    + """
__global__ void add(const float* __restrict__ a, const float* __restrict__ b,
                    float* __restrict__ c, int n, int64_t stride) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = load_global_if(a + i * stride, i < n);
  const float y = load_global_if(b + i, i < n);
  store_global_if(c + i, x + y, i < n);
}
"""
)
CONVERT = (
    source(["load_global", "store_global", "to_float", "from_float"])
    + """
__global__ void widen_half(const __half* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  store_global(to + i, to_float(load_global(from + i)));
}
__global__ void widen_bfloat16(const __nv_bfloat16* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  store_global(to + i, to_float(load_global(from + i)));
}
__global__ void narrow_half(const float* from, __half* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  store_global(to + i, from_float<__half>(load_global(from + i)));
}
__global__ void narrow_bfloat16(const float* from, __nv_bfloat16* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  store_global(to + i, from_float<__nv_bfloat16>(load_global(from + i)));
}
"""
)
DTYPES = {"half": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@pytest.fixture(scope="module")
def add() -> EmulatedModule:
    return compile_source(ADD, ["add"])


@pytest.mark.parametrize("n", [1, 31, 257, 1000])
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_adds_vectors_of_any_length(add: EmulatedModule, n: int, seed: int) -> None:
    a, b = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
    c = np.zeros(n, np.float32)
    blocks = -(-n // 128)
    report = add.launch(
        "add",
        (blocks, 1, 1),
        (128, 1, 1),
        0,
        [Array(a, False), Array(b, False), Array(c, True), ctypes.c_int32(n), ctypes.c_int64(1)],
        seed=seed,
    )
    assert np.array_equal(c, a + b)
    assert report.unwritten == {2: 0}
    assert (report.bytes_loaded, report.bytes_stored) == (8 * n, 4 * n)


@pytest.mark.parametrize("stride", [3, -2])
def test_a_strided_view_is_read_where_it_lies(add: EmulatedModule, stride: int) -> None:
    whole = np.arange(300, dtype=np.float32)
    a = whole[::stride]
    b, c = np.zeros(a.size, np.float32), np.zeros(a.size, np.float32)
    add.launch(
        "add",
        (2, 1, 1),
        (128, 1, 1),
        0,
        [
            Array(a, False),
            Array(b, False),
            Array(c, True),
            ctypes.c_int32(a.size),
            ctypes.c_int64(stride),
        ],
    )
    assert np.array_equal(c, a)


def test_a_strided_output_leaves_what_lies_between(add: EmulatedModule) -> None:
    n = 40
    whole = np.full((n, 3), -1.0, np.float32)
    column = np.ascontiguousarray(np.arange(n, dtype=np.float32))
    zeros = np.zeros(n, np.float32)
    text = ADD.replace("c + i,", "c + 3 * i,")
    module = compile_source(text, ["add"])
    arguments = [
        Array(column, False),
        Array(zeros, False),
        Array(whole[:, 1], True),
        ctypes.c_int32(n),
        ctypes.c_int64(1),
    ]
    report = module.launch("add", (1, 1, 1), (64, 1, 1), 0, arguments)
    assert report.unwritten == {2: 0}
    assert np.array_equal(whole[:, 1], column)
    assert np.all(whole[:, [0, 2]] == -1.0)


def test_a_write_between_the_elements_of_a_view_is_caught(add: EmulatedModule) -> None:
    n = 20
    a = np.zeros(n, np.float32)
    out = np.zeros((n, 2), np.float32)[:, 0]
    arguments = [
        Array(a, False),
        Array(a, False),
        Array(out, True),
        ctypes.c_int32(n),
        ctypes.c_int64(1),
    ]
    with pytest.raises(EmulationError, match="writes 10 elements between those of argument 2"):
        add.launch("add", (1, 1, 1), (32, 1, 1), 0, arguments)


def test_counts_output_elements_that_nobody_wrote(add: EmulatedModule) -> None:
    a, c = np.zeros(100, np.float32), np.zeros((10, 10), np.float32)
    arguments = [
        Array(a, False),
        Array(a, False),
        Array(c, True),
        ctypes.c_int32(93),
        ctypes.c_int64(1),
    ]
    assert add.launch("add", (1, 1, 1), (128, 1, 1), 0, arguments).unwritten == {2: 7}


def test_an_input_that_is_also_the_output_stays_one_array(add: EmulatedModule) -> None:
    a = np.arange(64, dtype=np.float32)
    arguments = [
        Array(a, False),
        Array(a, False),
        Array(a, True),
        ctypes.c_int32(64),
        ctypes.c_int64(1),
    ]
    add.launch("add", (1, 1, 1), (64, 1, 1), 0, arguments)
    assert np.array_equal(a, 2.0 * np.arange(64))


def test_an_empty_grid_does_nothing(add: EmulatedModule) -> None:
    empty = np.zeros(0, np.float32)
    arguments = [Array(empty, flag) for flag in (False, False, True)]
    scalars = [ctypes.c_int32(0), ctypes.c_int64(1)]
    report = add.launch("add", (0, 1, 1), (128, 1, 1), 0, [*arguments, *scalars])
    assert report.operations == ()
    assert report.unwritten == {2: 0}


def test_arguments_that_do_not_fit_are_refused(add: EmulatedModule) -> None:
    with pytest.raises(TypeError, match="kernel add has parameters of"):
        add.launch("add", (1, 1, 1), (32, 1, 1), 0, [ctypes.c_int32(1)])


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [((1, 1, 1), (2048, 1, 1), 0), ((1, 1, -1), (32, 1, 1), 0), ((1, 1, 1), (32, 1, 1), 1 << 20)],
)
def test_launches_that_a_device_refuses_are_refused(
    add: EmulatedModule, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
) -> None:
    a = np.zeros(1, np.float32)
    arguments = [Array(a, True)] * 3 + [ctypes.c_int32(1), ctypes.c_int64(1)]
    with pytest.raises(ValueError, match=r"launched|shared memory"):
        add.launch("add", grid, block, shared, arguments)


def test_blocks_and_threads_have_three_indices() -> None:
    text = (
        source(["store_global"])
        + """
    __global__ void number(int* out) {
      const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      const int threads = blockDim.x * blockDim.y * blockDim.z;
      store_global(out + block * threads + thread, block * threads + thread);
    }
    """
    )
    out = np.zeros(2 * 3 * 4 * 5 * 3 * 2, np.int32)
    compile_source(text, ["number"]).launch("number", (2, 3, 4), (5, 3, 2), 0, [Array(out, True)])
    assert np.array_equal(out, np.arange(out.size))


@pytest.fixture(scope="module")
def convert() -> EmulatedModule:
    names = [f"{way}_{dtype}" for way in ("widen", "narrow") for dtype in DTYPES]
    return compile_source(CONVERT, names)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_16_bit_number_widens_as_in_numpy(convert: EmulatedModule, dtype: str) -> None:
    patterns = np.arange(65536, dtype=np.uint16).view(DTYPES[dtype])
    wide = np.zeros(65536, np.float32)
    arguments = [Array(patterns, False), Array(wide, True)]
    convert.launch(f"widen_{dtype}", (64, 1, 1), (1024, 1, 1), 0, arguments)
    np.testing.assert_array_equal(wide, patterns.astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_narrow_as_in_numpy(convert: EmulatedModule, dtype: str) -> None:
    rng = np.random.default_rng(3)
    exact = np.arange(65536, dtype=np.uint16).view(DTYPES[dtype]).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        ties = (exact + np.roll(exact, -1)) / 2  # the hard cases: halfway between neighbours
        beside = np.nextafter(ties, np.float32(0))
        random = rng.integers(0, 2**32, 1 << 17, dtype=np.uint32).view(np.float32)
        usual = rng.standard_normal(1 << 16).astype(np.float32)
        floats = np.concatenate([exact, ties, beside, random, usual])
        expected = floats.astype(DTYPES[dtype])
    floats, expected = floats[: floats.size // 1024 * 1024], expected[: floats.size // 1024 * 1024]
    narrow = np.zeros_like(expected)
    arguments = [Array(floats, False), Array(narrow, True)]
    convert.launch(f"narrow_{dtype}", (floats.size // 1024, 1, 1), (1024, 1, 1), 0, arguments)
    is_nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(narrow.astype(np.float32)), is_nan)
    assert np.array_equal(narrow.view(np.uint16)[~is_nan], expected.view(np.uint16)[~is_nan])


def test_half_arithmetic_rounds_once() -> None:
    text = (
        source(["load_global", "store_global"])
        + """
    __global__ void combine(const __half* a, const __half* b, __half* out) {
      const int i = threadIdx.x;
      const __half x = load_global(a + i), y = load_global(b + i);
      __half z = x * y;
      z += x;
      store_global(out + i, x < y ? z - y : __hmax(z, y));
    }
    """
    )
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(256).astype(np.float16) for _ in range(2))
    out = np.zeros(256, np.float16)
    arguments = [Array(a, False), Array(b, False), Array(out, True)]
    compile_source(text, ["combine"]).launch("combine", (1, 1, 1), (256, 1, 1), 0, arguments)
    z = a * b + a
    assert np.array_equal(out, np.where(a < b, z - b, np.maximum(z, b)))


def test_approximations_flush_subnormals() -> None:
    text = (
        source(["exp2_approx", "log2_approx", "rcp_approx", "reciprocal", "store_global"])
        + """
    __global__ void approximate(float* out) {
      store_global(out + 0, exp2_approx(3.0f));
      store_global(out + 1, exp2_approx(-130.0f));
      store_global(out + 2, exp2_approx(-INFINITY));
      store_global(out + 3, log2_approx(8.0f));
      store_global(out + 4, log2_approx(1e-40f));
      store_global(out + 5, rcp_approx(4.0f));
      store_global(out + 6, reciprocal(3.0f));
    }
    """
    )
    out = np.ones(7, np.float32)
    module = compile_source(text, ["approximate"])
    module.launch("approximate", (1, 1, 1), (1, 1, 1), 0, [Array(out, True)])
    third = np.float32(1) / np.float32(3)
    assert out.tolist() == [8.0, 0.0, 0.0, 3.0, -np.inf, 0.25, third]


def test_runs_without_checks_too() -> None:
    module = compile_source(ADD, ["add"], checks=False)
    a, c = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    arguments = [
        Array(a, False),
        Array(a, False),
        Array(c, True),
        ctypes.c_int32(100),
        ctypes.c_int64(1),
    ]
    report = module.launch("add", (1, 1, 1), (128, 1, 1), 0, arguments)
    assert np.array_equal(c, 2 * a)
    assert report.operations == ()
    assert report.unwritten == {}


@pytest.mark.full
def test_runs_on_the_c_librarys_fibres_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where we have no switch of our own."""
    monkeypatch.setenv("CXX", f"{COMPILER} -DTREADLE_UCONTEXT")
    text = (
        source(["shuffle_xor", "barrier_block", "store_global"])
        + """
    __global__ void swap(float* out) {
      float x = threadIdx.x;
      for (int mask = 1; mask < 32; mask *= 2) x = shuffle_xor(x, mask);
      barrier_block();
      store_global(out + threadIdx.x, x);
    }
    """
    )
    out = np.zeros(64, np.float32)
    compile_source(text, ["swap"]).launch("swap", (1, 1, 1), (64, 1, 1), 0, [Array(out, True)])
    assert np.array_equal(out, np.arange(64) ^ 31)


def test_an_output_must_be_writable(add: EmulatedModule) -> None:
    a = np.zeros(8, np.float32)
    a.flags.writeable = False
    arguments = [Array(a, False), Array(a, False), Array(a, True)]
    with pytest.raises(ValueError, match="argument 2 is an output, but its numpy array is read-only"):
        add.launch("add", (1, 1, 1), (8, 1, 1), 0, [*arguments, ctypes.c_int32(8), ctypes.c_int64(1)])


def test_a_compile_error_names_the_printed_file_and_line() -> None:
    lines = ADD.splitlines()
    at = next(i for i, line in enumerate(lines) if "store_global_if(c" in line)
    lines[at] = "  store_global_if(c + i, x + z, i < n);"
    with pytest.raises(CompileFailure, match=rf"sum\.cu:{at + 1}:.*error.*z"):
        compile_source("\n".join(lines), ["add"], name="sum.cu")


def test_a_name_cannot_smuggle_code() -> None:
    with pytest.raises(ValueError, match="C identifier"):
        compile_source(ADD, ["add) int evil("])
    compile_source(ADD, ["add"], name='a"\n#error evil\n"')


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmulatorUnavailable, match="install one"):
        compile_source(ADD, ["add"])
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EmulatorUnavailable, match="no-such-compiler"):
        compile_source(ADD, ["add"])


def test_compiles_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    compile_source(ADD, ["add"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "emulator").rglob("*.*")}
    compile_source(ADD, ["add"])
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "emulator").rglob("*.*")}
    assert before == after
    kept = sorted(path.suffix for path in before if path.suffix != ".sha256")
    assert kept == [".gch", ".o", ".o", ".so"]
    assert len(before) == 2 * len(kept)
    compile_source(ADD + "// changed\n", ["add"])
    assert len(list((tmp_path / "emulator").glob("*.so"))) == 2


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TREADLE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "treadle"
    assert stat.S_IMODE((tmp_path / "treadle").stat().st_mode) == 0o700
    (tmp_path / "treadle").chmod(0o777)
    assert not cache_directory().is_relative_to(tmp_path)


def test_an_unusable_cache_gives_way_to_a_temporary_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv("TREADLE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    folder = cache_directory()
    assert not folder.is_relative_to(tmp_path)
    assert os.access(folder, os.W_OK)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise CompileFailure("no")

    with pytest.raises(CompileFailure):
        cached_file(tmp_path / "made", fail)
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_both_succeed(tmp_path: Path) -> None:
    target = tmp_path / "made"

    def meanwhile(write: str, other: Callable[[], object]) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            other()
            path.write_text(write)

        return make

    cached_file(target, meanwhile("one", lambda: cached_file(target, lambda p: _write(p, "two"))))
    assert target.read_text() == "one"


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize("name", [15, 16])
def test_named_barriers_are_those_that_a_block_has(name: int) -> None:
    text = f"""{source(["barrier_numbered"])}
extern "C" __global__ void meet() {{ barrier_numbered({name - 1} + threadIdx.x / 64, 64); }}
"""
    module = compile_source(text, ["meet"])
    if name < 16:
        module.launch("meet", (1, 1, 1), (128, 1, 1), 0, [])
        return
    with pytest.raises(EmulationError, match="named barrier 16: names are 1 to 15"):
        module.launch("meet", (1, 1, 1), (128, 1, 1), 0, [])
