"""Every fault the emulator looks for is found, and the correct twin of each kernel is not accused.

The kernels are not run until they fail: what is wrong is found whatever the order of the threads.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

import numpy as np
import pytest

from treadle.compiler.primitives import primitive_names, source
from treadle.runtime.emulator import Array, EmulationError, Fault, LaunchReport, compile_source

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
SEEDS = (0, 1, 2, 3, 4)
THREADS = 64
PRIMITIVES = source(primitive_names("sm_80"))
FIRST_LINE = PRIMITIVES.count("\n") + 1  # of the kernel


def run(
    body: str,
    *arrays: Array,
    seed: int = 0,
    threads: int = THREADS,
    blocks: int = 1,
    shared_bytes: int = 1024,
) -> LaunchReport:
    """Runs a kernel with this body on float arrays `p0`, `p1`, ... ; its line 1 is the body's first."""
    parameters = ", ".join(f"float* p{i}" for i in range(len(arrays)))
    head = (
        f"__global__ void kernel({parameters}) {{ const int t = threadIdx.x; (void)t; "
        "float* s = reinterpret_cast<float*>(shared_memory()); (void)s;"
    )
    module = compile_source(f"{PRIMITIVES}{head}{body}\n}}\n", ["kernel"])
    return module.launch("kernel", (blocks, 1, 1), (threads, 1, 1), shared_bytes, arrays, seed=seed)


def faults(body: str, *arrays: Array, seed: int = 0, **shape: int) -> tuple[Fault, ...]:
    with pytest.raises(EmulationError) as caught:
        run(body, *arrays, seed=seed, **shape)
    return caught.value.faults


def output(size: int = THREADS) -> Array:
    return Array(np.zeros(size, np.float32), True)


def values(size: int = THREADS) -> Array:
    return Array(np.arange(size, dtype=np.float32), False)


# Each: what is wrong, the kernel, what the fault says, its correct twin. `//!` marks the guilty line.
SHARED = [
    pytest.param(
        """
        store_shared(s + t, 1.0f);
        store_global(p0 + t, load_shared(s + (t + 1) % 64)); //!
        """,
        "race",
        r"at byte \d+ of shared memory, which thread \d+ (wrote|read) on line \d+, with no",
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        store_global(p0 + t, load_shared(s + (t + 1) % 64));
        """,
        id="read after write",
    ),
    pytest.param(
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        const float x = load_shared(s + (t + 1) % 64);
        store_shared(s + t, x); //!
        store_global(p0 + t, x);
        """,
        "race",
        r"at byte \d+ of shared memory, which thread \d+ (wrote|read) on line \d+, with no",
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        const float x = load_shared(s + (t + 1) % 64);
        barrier_block();
        store_shared(s + t, x);
        store_global(p0 + t, x);
        """,
        id="write after read",
    ),
    pytest.param(
        """
        store_shared(s + t / 2, 1.0f); //!
        store_global(p0 + t, 1.0f);
        """,
        "race",
        r"store_shared at byte \d+ of shared memory, which thread \d+ wrote",
        """
        store_shared(s + t, 1.0f);
        store_global(p0 + t, 1.0f);
        """,
        id="write after write",
    ),
    pytest.param(
        """
        store_shared(s + t, 1.0f);
        barrier_warp();
        store_global(p0 + t, load_shared(s + (t ^ 32))); //!
        """,
        "race",
        r"which thread \d+ (wrote|read)",
        """
        store_shared(s + t, 1.0f);
        barrier_warp();
        store_global(p0 + t, load_shared(s + (t ^ 31)));
        """,
        id="a warp's barrier orders no other warp",
    ),
    pytest.param(
        """
        store_shared(s + t, 1.0f);
        const float x = shuffle_xor(1.0f, 1);
        store_global(p0 + t, x + load_shared(s + (t ^ 1))); //!
        """,
        "race",
        r"which thread \d+ (wrote|read)",
        """
        store_shared(s + t, 1.0f);
        const float x = shuffle_xor(1.0f, 1);
        barrier_warp();
        store_global(p0 + t, x + load_shared(s + (t ^ 1)));
        """,
        id="a shuffle orders no memory",
    ),
    pytest.param(
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        float x = 0;
        for (int i = 0; i < 64; ++i) x += load_shared(s + i);
        store_global(p0 + t, x);
        if (t == 5) store_shared(s, 2.0f); //!
        """,
        "race",
        r"which thread \d+ (wrote|read)",
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        float x = 0;
        for (int i = 0; i < 64; ++i) x += load_shared(s + i);
        store_global(p0 + t, x);
        barrier_block();
        if (t == 5) store_shared(s, 2.0f);
        """,
        id="a write after many reads",
    ),
    pytest.param(
        """
        if (t < 32) store_shared(s + t, 1.0f);
        barrier_block();
        store_global(p0 + t, load_shared(s + t)); //!
        """,
        "uninitialised",
        r"load_shared reads byte \d+ of shared memory, which nobody has written",
        """
        store_shared(s + t, 1.0f);
        barrier_block();
        store_global(p0 + t, load_shared(s + t));
        """,
        id="never written",
    ),
    pytest.param(
        """
        auto h = reinterpret_cast<__half*>(s);
        for (int i = t; i < 255; i += 64) store_shared(h + i, __half(1.0f));
        barrier_block();
        __half r[4][2];
        load_matrix_x4(r, h + t % 32 * 8); //!
        store_global(p0 + t, to_float(r[0][0]));
        """,
        "uninitialised",
        "load_matrix reads byte 510",
        """
        auto h = reinterpret_cast<__half*>(s);
        for (int i = t; i < 512; i += 64) store_shared(h + i, __half(1.0f));
        barrier_block();
        __half r[4][2];
        load_matrix_x4(r, h + t % 32 * 8);
        store_global(p0 + t, to_float(r[0][0]));
        """,
        id="never written, read by a matrix load",
    ),
    pytest.param(
        """
        auto h = reinterpret_cast<__half*>(s);
        for (int i = t; i < 512; i += 64) store_shared(h + i, __half(1.0f));
        __half r[4][2];
        load_matrix_x4(r, h + t % 32 * 8); //!
        store_global(p0 + t, to_float(r[0][0]));
        """,
        "race",
        r"at byte \d+ of shared memory, which thread \d+ (wrote|read) on line \d+, with no",
        """
        auto h = reinterpret_cast<__half*>(s);
        for (int i = t; i < 512; i += 64) store_shared(h + i, __half(1.0f));
        barrier_block();
        __half r[4][2];
        load_matrix_x4(r, h + t % 32 * 8);
        store_global(p0 + t, to_float(r[0][0]));
        """,
        id="a matrix load before the barrier",
    ),
    pytest.param(
        """
        store_shared(s + 193 + t, 1.0f); //!
        store_global(p0 + t, 1.0f);
        """,
        "out of bounds",
        "store_shared of 4 bytes at byte 1024 of shared memory, which has 1024",
        """
        store_shared(s + 192 + t, 1.0f);
        store_global(p0 + t, 1.0f);
        """,
        id="beyond shared memory",
    ),
    pytest.param(
        """
        Vec<float, 4> v{};
        store_shared(reinterpret_cast<Vec<float, 4>*>(s) + t % 32 + 2, v);
        """.replace("s) + t % 32 + 2", "s + 2) + t % 32").replace("v);", "v); //!")
        + "store_global(p0 + t, 1.0f);",
        "misaligned",
        "store_shared of 16 bytes at an address that is 8 past a multiple of 16",
        """
        Vec<float, 4> v{};
        store_shared(reinterpret_cast<Vec<float, 4>*>(s) + t, v);
        store_global(p0 + t, 1.0f);
        """,
        id="a misaligned vector",
    ),
]


def line_of(body: str) -> int:
    return next(i for i, line in enumerate(body.split("\n")) if "//!" in line) + FIRST_LINE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("wrong", "kind", "message", "right"), SHARED)
def test_shared_memory(wrong: str, kind: str, message: str, right: str, seed: int) -> None:
    found = faults(wrong, output(), seed=seed)
    assert kind in {fault.kind for fault in found}
    # A reader that runs before the writer reads what nobody has written: that is said as well.
    assert {fault.kind for fault in found} <= {kind, "uninitialised"}
    assert any(re.search(message, fault.message) for fault in found)
    assert line_of(wrong) in {fault.line for fault in found} or kind == "race"
    run(right, output(), seed=seed)


def test_a_fault_is_told_in_one_line() -> None:
    (fault,) = faults("store_shared(s + 250 + t % 32 * 2, 1.0f);", output(), threads=32)
    assert str(fault) == (
        f"out of bounds: kernel line {FIRST_LINE}, block (0, 0, 0) thread 3: "
        "store_shared of 4 bytes at byte 1024 of shared memory, which has 1024"
    )


def test_repeated_faults_are_counted() -> None:
    with pytest.raises(EmulationError, match="and 31 more") as caught:
        run("store_global(p0 + 64 + t, 1.0f);", output(), threads=32)
    assert len(caught.value.faults) == 1
    assert caught.value.total == 32


# ---- Global memory


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("store_global(p0 + t + 1, 0.0f);", "store_global of 4 bytes at byte 256 of argument 0"),
        ("store_global(p0 + t - 1, 0.0f);", "store_global of 4 bytes at 4 bytes before argument 0"),
        (
            "store_global(p0 + t, load_global(p1 + t + 8));",
            "load_global of 4 bytes at byte 256 of argument 1, which has 256",
        ),
        (
            "copy_async<16>(s + 4 * (t % 64), p1 + 4 * (t % 32), true); store_global(p0 + t, 0.0f);",
            "copy_async of 16 bytes at byte 256 of argument 1",
        ),
    ],
)
def test_out_of_bounds(body: str, message: str) -> None:
    found = faults(body, output(), values())
    assert [fault.kind for fault in found] == ["out of bounds"]
    assert message in found[0].message
    assert found[0].line == FIRST_LINE


def test_bounds_do_not_apply_where_nothing_is_accessed() -> None:
    run(
        """
        store_global_if(p0 + 1000 * t, load_global_if(p1 - 1000, false), t == 0);
        copy_async<16>(s + 4 * t, p1 - 1000, false);
        copy_async_commit();
        copy_async_wait<0>();
        store_global_if(p0 + 1, load_shared(s + 4 * t), t == 1);
        """,
        output(),
        values(),
    )


def test_bounds_of_a_strided_view_are_its_extent() -> None:
    whole = np.zeros((8, 64), np.float32)
    inside = Array(whole[2:4, 8:16], False)
    run("store_global(p0 + t, load_global(p1 + 64 + t % 8));", output(), inside)
    (fault,) = faults("store_global(p0 + t, load_global(p1 + 65 + t % 8));", output(), inside)
    assert "byte 288 of argument 1, which has 288" in fault.message


def test_misaligned_global_vector() -> None:
    body = "store_global(p0 + t, load_global(reinterpret_cast<Vec<float, 4>*>(p1 + t % 4)).at[0]);"
    (fault,) = faults(body, output(), values())
    assert fault.kind == "misaligned"
    assert "load_global of 16 bytes at an address that is 4 past" in fault.message


def test_a_view_is_as_misaligned_as_it_was() -> None:
    whole = np.zeros(65, np.float32)
    body = "store_global(p0 + t, load_global(reinterpret_cast<Vec<float, 2>*>(p1)).at[0]);"
    run(body, output(), Array(whole[2:], False))
    assert faults(body, output(), Array(whole[1:], False))[0].kind == "misaligned"


def test_write_to_an_input() -> None:
    (fault,) = faults("store_global(p0 + t, 1.0f);", values())
    assert fault.kind == "read-only"
    assert "argument 0, which is an input" in fault.message


@pytest.mark.parametrize("seed", SEEDS)
def test_two_blocks_write_one_element(seed: int) -> None:
    (fault,) = faults("store_global(p0 + t, 1.0f);", output(), blocks=2, seed=seed)
    assert fault.kind == "race"
    assert fault.message == (
        f"writes byte {4 * (fault.thread or 0)} of argument 0, "
        f"which was written by thread {fault.thread} of block (0, 0, 0)"
    )
    run("store_global(p0 + 64 * blockIdx.x + t, 1.0f);", output(128), blocks=2, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_threads_write_one_element(seed: int) -> None:
    (fault,) = faults("store_global(p0 + t / 2, 1.0f);", output(), seed=seed)
    assert "with no barrier between" in fault.message
    ordered = "store_global(p0 + t, 1.0f); barrier_block(); store_global(p0 + 63 - t, 2.0f);"
    run(ordered, output(), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_reads_what_another_block_wrote(seed: int) -> None:
    body = """
    if (blockIdx.x == 0) store_global(p0 + t, 1.0f);
    if (blockIdx.x == 1) store_global(p0 + 64 + t, load_global(p0 + t));
    """
    (fault,) = faults(body, output(128), blocks=2, seed=seed)
    assert fault.kind == "race"
    assert "reads byte" in fault.message


# ---- Asynchronous copies

COPY = """
copy_async<16>(s + 4 * (t % 16), p1 + 4 * (t % 16), true);
"""
COPIES = [
    pytest.param("copy_async_commit();", "barrier_block();", "not waited for", id="no wait"),
    pytest.param("", "copy_async_wait<0>(); barrier_block();", "never committed", id="no commit"),
    pytest.param("copy_async_commit();", "copy_async_wait<1>(); barrier_block();", "not waited", id="too lax"),
    pytest.param("copy_async_commit();", "copy_async_wait<0>();", "barrier", id="no barrier"),
]
FINISH = "store_global(p0 + t, load_shared(s + t));"


def copies(commit: str, wait: str) -> str:
    return f"if (t < 16) copy_async<16>(s + 4 * t, p1 + 4 * t, true);\n{commit}\n{wait}\n{FINISH}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("commit", "wait", "message"), COPIES)
def test_asynchronous_copy_read_too_early(commit: str, wait: str, message: str, seed: int) -> None:
    found = faults(copies(commit, wait), output(), values(), seed=seed)
    # A reader may even come before the copy was begun.
    assert {fault.kind for fault in found} - {"uninitialised"} == {"race"}
    assert any(message in fault.message for fault in found)
    assert FIRST_LINE + 3 in {fault.line for fault in found}


@pytest.mark.parametrize("seed", SEEDS)
def test_asynchronous_copy_waited_for(seed: int) -> None:
    out, given = output(), values()
    body = copies("copy_async_commit();", "copy_async_wait<0>(); barrier_block();")
    run(body, out, given, seed=seed)
    assert np.array_equal(out.data, given.data)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_copies_arrive_in_turn(seed: int) -> None:
    """Two stages: while one is used, the next one is under way."""
    body = """
    const int stages = 8;
    copy_async<4>(s + t, p1 + t, true);
    copy_async_commit();
    for (int i = 0; i < stages; ++i) {
      if (i + 1 < stages) copy_async<4>(s + (i + 1) % 2 * 64 + t, p1 + (i + 1) * 64 + t, true);
      copy_async_commit();
      copy_async_wait<1>();
      barrier_block();
      store_global(p0 + 64 * i + t, load_shared(s + i % 2 * 64 + (t ^ 33)));
      BARRIER
    }
    """
    out, given = output(512), values(512)
    run(body.replace("BARRIER", "barrier_block();"), out, given, seed=seed)
    assert np.array_equal(out.data, given.data[np.arange(512) ^ 33])
    found = faults(body.replace("BARRIER", ""), output(512), given, seed=seed)
    assert {fault.kind for fault in found} == {"race"}
    assert any("copy_async" in fault.message for fault in found)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_fill_with_zeros(size: int) -> None:
    n = size // 4
    body = f"""
    copy_async<{size}>(s + {n} * t, p1 + {n} * t, t % 3 != 0);
    copy_async_commit();
    copy_async_wait<0>();
    for (int i = 0; i < {n}; ++i) store_global(p0 + {n} * t + i, load_shared(s + {n} * t + i));
    """
    out, given = output(n * 64), Array(np.arange(1, n * 64 + 1, dtype=np.float32), False)
    run(body, out, given)
    expected = np.where(np.arange(n * 64) // n % 3 != 0, given.data, 0)
    assert np.array_equal(out.data, expected)


# ---- Threads that wait for each other in vain


@pytest.mark.parametrize("seed", SEEDS)
def test_barriers_on_two_lines_never_meet(seed: int) -> None:
    body = """
    if (t < 32) barrier_block();
    else
      barrier_block();
    """
    (fault,) = faults(body, seed=seed)
    assert fault.kind == "deadlock"
    one, two = FIRST_LINE + 1, FIRST_LINE + 3
    assert fault.message == (
        f"threads 0-31 wait at barrier_block on line {one} for threads 32-63; "
        f"threads 32-63 wait at barrier_block on line {two} for threads 0-31"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_at_different_collectives(seed: int) -> None:
    body = """
    float x = t;
    if (t % 32 < 8) x = shuffle_xor(x, 1);
    barrier_block();
    """
    (fault,) = faults(body, seed=seed, threads=32)
    assert fault.kind == "divergence"
    assert fault.message == (
        f"threads 0-7 wait at shuffle_xor on line {FIRST_LINE + 2} for threads 8-31; "
        f"threads 8-31 wait at barrier_block on line {FIRST_LINE + 3} for threads 0-7"
    )


def test_threads_that_returned_are_not_awaited() -> None:
    body = "if (t >= 32) return; store_shared(s + t, 1.0f); barrier_block(); barrier_warp();"
    run(body)


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("float d[2][2] = {}, a[2][2] = {}, b[2] = {}; mma_m16n8k8_tf32(d, a, b);", "mma"),
        ("__half r[2]; load_matrix_x1(r, reinterpret_cast<__half*>(s));", "load_matrix"),
        ("any_lane(t == 3);", "any_lane"),
    ],
)
def test_a_matrix_instruction_needs_all_lanes(use: str, name: str) -> None:
    (fault,) = faults(f"if (t == 33) return; {use}", shared_bytes=1024, threads=48)[-1:]
    assert fault.kind in ("missing lanes", "uninitialised")
    found = faults(f"if (t == 7) return; {use}", threads=32)
    assert found[0].kind == "missing lanes"
    assert f"{name} needs all 32 lanes of the warp, but thread 7 returned" in found[0].message


def test_a_shuffle_reads_only_from_lanes_that_are_there() -> None:
    run("store_global(p0 + t, shuffle_xor(1.0f, 1));", output(), threads=48)
    found = faults("store_global(p0 + t, shuffle_xor(1.0f, 16));", output(), threads=48)
    assert found[0].kind == "missing lanes"
    assert "reads from thread 48, which does not exist" in found[0].message


def test_after_a_fault_the_next_launch_is_sound() -> None:
    text = f"{PRIMITIVES}__global__ void kernel(float* p) {{ if (threadIdx.x < 8) barrier_warp();\n"
    module = compile_source(text + "store_global(p + threadIdx.x, 1.0f); }", ["kernel"])
    arguments: Sequence[Array] = [output(8)]
    for _ in range(3):
        module.launch("kernel", (1, 1, 1), (8, 1, 1), 0, arguments)
        with pytest.raises(EmulationError):
            module.launch("kernel", (1, 1, 1), (32, 1, 1), 0, arguments)


def test_an_endless_loop_is_given_up_at_the_time_limit() -> None:
    text = PRIMITIVES + "__global__ void kernel(float* p) { for (;;) load_global(p); }"
    module = compile_source(text, ["kernel"])
    with pytest.raises(EmulationError, match=r"timeout: .* still running after 0\.05 seconds"):
        module.launch("kernel", (1, 1, 1), (32, 1, 1), 0, [output(1)], time_limit=0.05)


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_old_accesses_may_be_forgotten(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long kernel's accesses are dropped at block barriers; faults are found all the same."""
    monkeypatch.setenv("CXX", f"{COMPILER} -DTREADLE_MANY_ACCESSES=200")
    body = """
    copy_async<4>(s + 64 + t, p1 + t, true);
    copy_async_commit();
    for (int i = 0; i < 30; ++i) {
      store_shared(s + (t + i) % 64, 1.0f);
      barrier_block();
      if (load_shared(s + (t + 7) % 64) != 1.0f) return;
      BARRIER
    }
    WAIT
    store_global(p0 + t, load_shared(s + 64 + t));
    """
    right = body.replace("BARRIER", "barrier_block();").replace("WAIT", "copy_async_wait<0>();")
    run(right, output(), values(), seed=seed)
    found = faults(right.replace("copy_async_wait<0>();", ""), output(), values(), seed=seed)
    assert "not waited for" in found[0].message
    found = faults(body.replace("BARRIER", "").replace("WAIT", ""), output(), values(), seed=seed)
    assert {fault.kind for fault in found} == {"race"}
