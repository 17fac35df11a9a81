"""Sectors of global memory and bank conflicts of shared memory, on patterns whose cost is known."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from treadle.compiler.primitives import primitive_names, source
from treadle.runtime.emulator import Array, LaunchReport, OperationCount, compile_source

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
PRIMITIVES = source(primitive_names("sm_80"))
LINE = PRIMITIVES.count("\n") + 2  # the body's


def run(body: str, threads: int = 32, size: int = 1 << 15) -> LaunchReport:
    head = """__global__ void kernel(const float* in, float* out) { const int t = threadIdx.x;
"""
    shared = "float* s = reinterpret_cast<float*>(shared_memory()); (void)s; "
    module = compile_source(PRIMITIVES + head + shared + body + "}\n", ["kernel"])
    arrays = [Array(np.zeros(size, np.float32), False), Array(np.zeros(size, np.float32), True)]
    return module.launch("kernel", (1, 1, 1), (threads, 1, 1), 64 << 10, arrays)


def count(body: str, kind: str, threads: int = 32) -> OperationCount:
    (found,) = [each for each in run(body, threads).operations if each.kind == kind]
    assert found.line == LINE
    return found


@pytest.mark.parametrize(
    ("access", "requests", "sectors"),
    [
        ("load_global(in + t);", 1, 4),
        ("load_global(in + t + 1);", 1, 5),
        ("load_global(in + 8 * t);", 1, 32),
        ("load_global(in + t / 4);", 1, 1),
        ("load_global(in);", 1, 1),
        ("load_global(reinterpret_cast<const Vec<float, 4>*>(in) + t);", 1, 16),
        ("load_global(reinterpret_cast<const Vec<__half, 8>*>(in) + t);", 1, 16),
        ("load_global(reinterpret_cast<const __half*>(in) + t);", 1, 2),
        ("load_global_if(in + t, t < 8);", 1, 1),
        ("load_global_if(in + t, false);", 0, 0),
        ("for (int i = 0; i < 5; ++i) load_global(in + 32 * i + t);", 5, 20),
        ("for (int i = 0; i < t % 4; ++i) load_global(in + 32 * i + t);", 3, 12),
        ("load_global(in + t) + load_global(in + 64 * t);", 2, 36),
        ("for (int i = 0; i < 9999; ++i) load_global(in + i);", 9999, 9999),
    ],
)
def test_sectors_of_a_load(access: str, requests: int, sectors: int) -> None:
    kinds = {each.kind: each for each in run(access).operations}
    if requests == 0:
        assert kinds["load_global"].requests == 0
        return
    assert (kinds["load_global"].requests, kinds["load_global"].sectors) == (requests, sectors)


def test_sectors_of_a_store() -> None:
    found = count("store_global(out + t, 1.0f);", "store_global", threads=128)
    assert found == OperationCount(LINE, "store_global", 4, 512, 16, 0, 16)


@pytest.mark.parametrize(
    ("access", "sectors", "distinct"),
    [
        ("load_global(in + t);", 16, 16),
        ("load_global(in + t / 8);", 4, 2),  # two warps share a sector
        ("load_global(in + t + 1);", 20, 17),
        ("for (int i = 0; i < 2; ++i) load_global(in + t);", 32, 16),
        ("for (int i = 0; i < 2; ++i) { load_global(in + t); barrier_block(); }", 32, 32),
    ],
)
def test_distinct_sectors_between_barriers(access: str, sectors: int, distinct: int) -> None:
    found = count(access, "load_global", threads=128)
    assert (found.sectors, found.distinct) == (sectors, distinct)


STORE = "for (int i = 0; i < 128; ++i) store_shared(s + 32 * i + t, 0.0f); barrier_warp(); "
WIDE = "reinterpret_cast<const Vec<float, 4>*>(s)"


@pytest.mark.parametrize(
    ("access", "conflicts"),
    [
        ("load_shared(s + t);", 0),
        ("load_shared(s + 31 - t);", 0),
        ("load_shared(s);", 0),
        ("load_shared(s + 2 * t);", 1),
        ("load_shared(s + 33 * t);", 0),
        ("load_shared(s + 32 * t);", 31),
        ("load_shared(s + 16 * t);", 15),
        ("load_shared(reinterpret_cast<const __half*>(s) + t);", 0),
        (f"load_shared({WIDE} + t);", 0),
        (f"load_shared({WIDE} + 8 * t);", 28),
        ("load_shared(reinterpret_cast<const Vec<float, 2>*>(s) + t);", 0),
        ("load_shared(reinterpret_cast<const Vec<float, 2>*>(s) + 16 * t);", 30),
    ],
)
def test_bank_conflicts_of_a_load(access: str, conflicts: int) -> None:
    found = count(STORE + access, "load_shared")
    assert (found.requests, found.conflicts) == (1, conflicts)


@pytest.mark.parametrize(("pitch", "conflicts"), [(64, 7), (72, 0), (128, 7), (40, 0)])
def test_bank_conflicts_of_a_matrix_load(pitch: int, conflicts: int) -> None:
    """Eight rows of 16 bytes at a pitch of so many 16-bit elements."""
    body = "__half r[2]; load_matrix_x1(r, reinterpret_cast<const __half*>(s) + t % 8 * PITCH);"
    found = count(STORE + body.replace("PITCH", str(pitch)), "load_matrix")
    assert (found.requests, found.bytes, found.conflicts) == (1, 128, conflicts)


def test_an_asynchronous_copy_costs_on_both_sides() -> None:
    body = "copy_async<16>(s + 32 * t, in + 4 * t, t < 16); copy_async_commit();"
    report = run(body)
    (found,) = [each for each in report.operations if each.kind == "copy_async"]
    assert found == OperationCount(LINE, "copy_async", 1, 256, 8, 28, 8)
    assert (report.bytes_loaded, report.shared_bytes_stored) == (256, 512)


def test_bytes_moved_over_a_launch() -> None:
    report = run(
        "store_shared(s + t, load_global(in + t)); barrier_block();"
        "store_global_if(out + t, load_shared(s + t), t < 10);",
        threads=64,
    )
    assert (report.bytes_loaded, report.bytes_stored) == (256, 40)
    assert (report.shared_bytes_loaded, report.shared_bytes_stored) == (256, 256)
