"""Products of warpgroups in kernels of a few instructions: right where all that the ISA asks for is done, and wrong or
refused where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import ptx_bodies
import pytest

from treadle.runtime.ptx.errors import PtxFault, PtxUnknown
from treadle.runtime.ptx.hopper import wgmma_layouts
from treadle.runtime.ptx.hopper.wgmma_operands import POISON

COLUMNS = 16
SUMS = ", ".join(f"%f{i + 1}" for i in range(COLUMNS // 2))
A_BYTES, B_BYTES = 64 * 32, COLUMNS * 32

HEAD = f"""
mov.u32 %r1, shared_bytes;
shl.b32 %r2, %tid, 4;
cvt.u64.u32 %d2, %r2;
add.s64 %d2, %in0, %d2;
add.u32 %r2, %r2, %r1;
ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%d2];
st.shared.v4.u32 [%r2], {{%r5, %r6, %r7, %r8}};
setp.ge.u32 %p1, %tid, {B_BYTES // 16};
@%p1 bra COPIED;
ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%d2+{A_BYTES}];
st.shared.v4.u32 [%r2+{A_BYTES}], {{%r5, %r6, %r7, %r8}};
COPIED:
fence.proxy.async.shared::cta;
bar.sync 0;
and.b32 %r3, %r1, 0x3ffff;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d3, %r3;
or.b64 %d3, %d3, {256 >> 4 << 32 | 128 >> 4 << 16};
add.s64 %d4, %d3, {A_BYTES // 16};
setp.eq.u32 %p2, %tid, %tid;
""" + "\n".join(f"mov.f32 %f{i + 1}, 0f3F800000;" for i in range(COLUMNS // 2))
"""A and B to shared memory, as they come; descriptors %d3 and %d4 of core matrices of 8 rows; sums that are 1."""

TAIL = "mul.wide.u32 %d1, %tid, 32;\nadd.s64 %d1, %out, %d1;\n" + "\n".join(
    f"st.global.f32 [%d1+{4 * i}], %f{i + 1};" for i in range(COLUMNS // 2)
)

FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
NAME = f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.f16.f16"
PRODUCT = f"{NAME} {{{SUMS}}}, %d3, %d4, %p2, 1, 1, 0, 0;"


def core_matrices(array: Any) -> Any:
    """K-major without a swizzle: groups of 8 rows, 256 bytes apart, of two halves of 8 elements, 128 bytes apart."""
    return array.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3).ravel()


def halves(format: Any = np.float16) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return tuple(rng.integers(-4, 5, shape).astype(format) for shape in ((64, 16), (COLUMNS, 16)))


def run(*lines: str, a: Any = None, threads: int = 128, seed: int = 0, operands: Any = None) -> Any:
    """The product as a matrix; A as it is laid out, if it is not core matrices."""
    left, right = operands or halves()
    given = np.concatenate([core_matrices(left) if a is None else a, core_matrices(right)])
    out = np.zeros((threads, COLUMNS // 2), np.float32)
    body = "\n".join([HEAD, *lines, TAIL])
    held = ptx_bodies.run(body, out, threads=threads, shared=4096, seed=seed, in0=given)
    made = np.empty((64, COLUMNS), np.float32)
    made[wgmma_layouts.accumulators(COLUMNS)] = held[:128]
    return made


def expected() -> Any:
    left, right = (each.astype(np.float32) for each in halves())
    return left @ right.T


@pytest.mark.parametrize("seed", range(3))
def test_a_product_is_added(seed: int) -> None:
    assert np.array_equal(run(FENCE, PRODUCT, COMMIT, WAIT, seed=seed), expected() + 1)


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        (", %p2, 1, 1", ", !%p2, 1, 1", lambda product: product),
        (", 1, 1, 0", ", -1, 1, 0", lambda product: 1 - product),
        (", 1, 1, 0", ", 1, -1, 0", lambda product: 1 - product),
        (", 1, 1, 0", ", -1, -1, 0", lambda product: 1 + product),
    ],
)
def test_scales(before: str, after: str, how: Any) -> None:
    assert np.array_equal(run(FENCE, PRODUCT.replace(before, after), COMMIT, WAIT), how(expected()))


INTEGERS = f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k32.s32.s8.s8 {{{SUMS.replace('f', 'r2')}}}, %d3, %d4, %p2;"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("left", "right"), [("s8", "s8"), ("u8", "s8"), ("s8", "u8"), ("u8", "u8")])
def test_products_of_integers(left: str, right: str, seed: int) -> None:
    """The same bytes, read with signs or without; sums that begin next to the largest number wrap."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 256, (outer, 32)).astype(np.uint8) for outer in (64, COLUMNS))
    begin = "\n".join(f"mov.u32 %r2{i + 1}, 0x7FFFFFFF;" for i in range(COLUMNS // 2))
    words = [each.reshape(-1, 32).view(np.float16) for each in (a, b)]  # 32 bytes of a row, as 16 halves are
    lines = (begin, FENCE, INTEGERS.replace("s8.s8", f"{left}.{right}"), COMMIT)
    end = "\n".join(f"mov.b32 %f{i + 1}, %r2{i + 1};" for i in range(COLUMNS // 2))
    made, in_flight = (run(*lines, *last, end, operands=words, seed=seed) for last in ((WAIT,), ()))
    numbers = (each.view(np.int8 if of == "s8" else np.uint8).astype(int) for each, of in ((a, left), (b, right)))
    whole = np.matmul(*(each if i == 0 else each.T for i, each in enumerate(numbers))) + 2**31 - 1
    assert np.array_equal(made.view(np.int32), whole.astype(np.int32))
    assert (in_flight.view(np.uint32) == POISON).all()


@pytest.mark.parametrize("seed", range(3))
def test_products_of_a_group_follow_one_another(seed: int) -> None:
    assert np.array_equal(run(FENCE, PRODUCT, PRODUCT, PRODUCT, COMMIT, WAIT, seed=seed), 3 * expected() + 1)


def test_a_transposed_operand() -> None:
    """A, M-major without a swizzle: 8 of m are 16 bytes; from 8 to 8 of m `stride`, of k `leading`."""
    left, _ = halves()
    m_major = left.reshape(8, 8, 2, 8).transpose(0, 2, 3, 1).ravel()
    assert np.array_equal(run(FENCE, PRODUCT.replace("0, 0;", "1, 0;"), COMMIT, WAIT, a=m_major), expected() + 1)


def test_an_operand_in_registers() -> None:
    """Each thread reads its elements of A from global memory, where they lie in its own order."""
    left, _ = halves()
    fragments = left[wgmma_layouts.left_operand(2)].ravel()
    product = f"{NAME} {{{SUMS}}}, {{%r11, %r12, %r13, %r14}}, %d4, %p2, 1, 1, 0;"
    load = "ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%d2];"
    assert np.array_equal(run(load, FENCE, product, COMMIT, WAIT, a=fragments), expected() + 1)
    late = run(load, FENCE, product, COMMIT, "mov.u32 %r11, 0;", WAIT, a=fragments)
    assert not np.array_equal(late, expected() + 1), "it is read when the product is waited for"


def test_without_a_wait_the_sums_are_nothing() -> None:
    assert np.isnan(run(FENCE, PRODUCT, COMMIT)).all()
    assert np.isnan(run(FENCE, PRODUCT, COMMIT, WAIT.replace("0", "1"))).all()
    assert np.isnan(run(FENCE, PRODUCT, WAIT)).all(), "an open group is not waited for"


def test_all_but_the_newest_groups_are_waited_for() -> None:
    other = PRODUCT.replace("%f", "%f2")
    begin = "\n".join(f"mov.f32 %f2{i + 1}, 0f00000000;" for i in range(COLUMNS // 2))
    found = run(begin, FENCE, PRODUCT, COMMIT, other, COMMIT, WAIT.replace("0", "1"))
    assert np.array_equal(found, expected() + 1)


def test_shared_memory_is_read_until_the_wait() -> None:
    late = run(FENCE, PRODUCT, COMMIT, "st.shared.u32 [%r2], 0;", WAIT)
    assert not np.array_equal(late, expected() + 1)


def test_what_is_written_to_sums_in_flight_is_lost() -> None:
    assert np.array_equal(run(FENCE, PRODUCT, COMMIT, "mov.f32 %f1, 0f40000000;", WAIT), expected() + 1)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([PRODUCT, COMMIT, WAIT], "without wgmma.fence"),
        ([FENCE, PRODUCT, COMMIT, WAIT, PRODUCT], "without wgmma.fence"),
        ([FENCE, PRODUCT, PRODUCT.replace("%f1, %f2", "%f2, %f1")], "another shape"),
        (["or.b64 %d3, %d3, 0x4000;", FENCE, PRODUCT, COMMIT, WAIT], "no field"),
        (["or.b64 %d3, %d3, 0x2000000000000;", FENCE, PRODUCT, COMMIT, WAIT], "base offset"),
        (["or.b64 %d3, %d3, 0x3ff0;", FENCE, PRODUCT, COMMIT, WAIT], "of which it has"),
        (["mov.b64 %d3, 0;", FENCE, PRODUCT, COMMIT, WAIT], "of which it has"),
        (["cvt.u64.u32 %d5, %tid;\nadd.s64 %d4, %d4, %d5;", FENCE, PRODUCT], "descriptors of B that differ"),
        (["setp.lt.u32 %p2, %tid, 7;", FENCE, PRODUCT], "scale-d that differ"),
    ],
)
def test_mistakes_with_products(lines: list[str], message: str) -> None:
    with pytest.raises(PtxFault, match=message):
        run(*lines)


@pytest.mark.parametrize(
    "line",
    [
        PRODUCT.replace("m64n16k16", "m64n12k16"),
        PRODUCT.replace("m64n16k16", "m64n264k16"),
        PRODUCT.replace("m64n16k16", "m64n16k8"),
        PRODUCT.replace("f32.f16.f16", "f16.f16.f16"),
        PRODUCT.replace("f16.f16", "f16.bf16"),
        PRODUCT.replace("f16.f16", "tf32.tf32"),
        PRODUCT.replace("m64n16k16.f32.f16.f16", "m64n16k32.f32.e4m3.e4m3"),  # which transposes nothing
        PRODUCT.replace("1, 1, 0, 0", "2, 1, 0, 0"),
        PRODUCT.replace("1, 1, 0, 0", "1, 1, 0, 2"),
        PRODUCT.replace("1, 1, 0, 0", "1, 1, 0"),
        PRODUCT.replace("%f8}", "%f8, %f9}"),
        PRODUCT.replace("wgmma.mma_async.sync", "wgmma.mma_async.sp.sync"),
        INTEGERS.replace("n16k32", "n16k16"),
        INTEGERS.replace("s32.s8", "f32.s8"),
        INTEGERS.replace("s8.s8", "s8.s8.satfinite"),
        INTEGERS.replace("%p2;", "%p2, 1, 1;"),
        INTEGERS.replace("n16k32", "n40k32"),
        "wgmma.wait_group.sync.aligned %r1;",
        "wgmma.fence.sync;",
    ],
)
def test_what_is_not_known_is_refused(line: str) -> None:
    with pytest.raises(PtxUnknown, match=r"PTX line \d+"):
        run(FENCE, line)


ONE_IS_LATE = """
shr.u32 %r3, %tid, 5;
setp.eq.u32 %p3, %r3, 3;
@!%p3 bra TOGETHER;
LATE
TOGETHER:"""


@pytest.mark.parametrize("seed", range(3))
def test_a_product_is_complete_when_all_four_warps_have_issued_it(seed: int) -> None:
    """Warp 3 comes late: it waits for a barrier to which the others come before they wait for the product, who then
    overwrite the operands of all four."""
    late = ONE_IS_LATE.replace("LATE", "bar.sync 1, 128;")
    others = "@%p3 bra DONE;\nbar.arrive 1, 128;\nDONE:"
    after = "add.u32 %r4, %r1, 1536;\nst.shared.u32 [%r4], -1;"
    assert np.array_equal(run(late, FENCE, PRODUCT, COMMIT, others, WAIT, after, seed=seed), expected() + 1)


def test_who_waits_for_a_product_waits_for_all_four_warps() -> None:
    """Warp 3 does not begin before the others have waited."""
    late = ONE_IS_LATE.replace("LATE", "bar.sync 1, 128;")
    others = "@%p3 bra DONE;\nbar.arrive 1, 128;\nDONE:"
    with pytest.raises(PtxFault, match=r"deadlock(?s:.)*wgmma.wait_group"):
        run(late, FENCE, PRODUCT, COMMIT, WAIT, others)


def test_a_warpgroup_has_four_warps() -> None:
    with pytest.raises(PtxFault, match="four warps"):
        run(FENCE, PRODUCT, COMMIT, WAIT, threads=160)


def test_a_warp_alone_waits_for_its_own_threads() -> None:
    """Half of a warp does not come to the product."""
    with pytest.raises(PtxFault, match="deadlock"):
        run("and.b32 %r3, %tid, 16;\nsetp.ne.u32 %p3, %r3, 0;\n@%p3 bra AWAY;", FENCE, "AWAY:\nbar.sync 0;")
