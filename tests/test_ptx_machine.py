"""How the PTX machine runs threads, and what it notices: divergence, barriers, memory, deadlocks, what is unknown."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptx_bodies import FIRST_LINE, entry, frame, run

from treadle.runtime.ptx.errors import PtxFault, PtxUnknown
from treadle.runtime.ptx.text.module_parser import parse_module

I32, U32, F32 = np.int32, np.uint32, np.float32

STORE = "mul.wide.u32 %d9, %tid, 4; add.s64 %d9, %d9, %out; st.global.b32 [%d9], %r9;"
"""%r9 of every thread, into the array."""
SHARED = "mov.u32 %r8, shared_bytes; shl.b32 %r7, %tid, 2; add.s32 %r8, %r8, %r7;"
"""%r8 is the shared address of a word of the thread's own."""


def ints(count: int) -> np.ndarray:
    return np.zeros(count, I32)


# -- control -----------------------------------------------------------------------------------

LOOP = f"""
mov.u32 %r9, 0; mov.u32 %r1, 0;
AGAIN: setp.ge.u32 %p1, %r1, %tid;
@%p1 bra DONE;
add.s32 %r9, %r9, %r1; add.s32 %r1, %r1, 1;
bra AGAIN;
DONE: {STORE}
"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_threads_part_and_meet_again(seed: int):
    made = run(LOOP, ints(64), threads=64, seed=seed)
    assert made.tolist() == [i * (i - 1) // 2 for i in range(64)]


def test_guards_and_what_ends_early():
    body = f"setp.lt.u32 %p1, %tid, 40; mov.u32 %r9, 1; @%p1 mov.u32 %r9, 2; @!%p1 ret; {STORE}"
    assert run(body, ints(64), threads=64).tolist() == [2] * 40 + [0] * 24


def test_names_of_a_scope_are_its_own():
    body = "{ .reg .b32 k; mov.u32 k, 3; { .reg .b32 k; mov.u32 k, 4; add.s32 %r9, k, 1; bra L; L: } "
    body += "bra L; mov.u32 %r9, 0; L: add.s32 %r9, %r9, k; }"
    assert run(body + STORE, ints(32)).tolist() == [8] * 32


def test_blocks_have_their_own_numbers_and_memory():
    body = f"{SHARED} mov.u32 %r1, %ctaid.x; st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r9, [%r8];"
    body += "mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %tid; mul.wide.u32 %d1, %r3, 4; add.s64 %d1, %d1, %out;"
    made = run(body + "st.global.u32 [%d1], %r9;", ints(200 * 33), threads=33, blocks=200, shared=4 * 33)
    assert made.reshape(200, 33).tolist() == [[i] * 33 for i in range(200)]


# -- barriers and warps ------------------------------------------------------------------------


def test_a_barrier_orders_what_warps_write():
    body = f"{SHARED} st.shared.u32 [%r8], %tid; bar.sync 0; xor.b32 %r1, %r7, 128; mov.u32 %r2, shared_bytes;"
    body += f"add.s32 %r2, %r2, %r1; ld.shared.u32 %r9, [%r2]; {STORE}"
    for seed in range(3):
        assert run(body, ints(64), threads=64, shared=256, seed=seed).tolist() == [i ^ 32 for i in range(64)]


def test_without_a_barrier_what_nobody_has_written_is_no_number():
    body = f"mov.u32 %r8, shared_bytes; ld.shared.u32 %r9, [%r8]; {STORE}"
    assert (run(body, ints(32), shared=4) == -1).all()
    assert np.isnan(run(body, ints(32), shared=4).view(F32)).all()


NAMED = f"""
{SHARED}
setp.ge.u32 %p1, %tid, 32;
@%p1 bra TAKE;
st.shared.u32 [%r8], 5; bar.arrive 1, 64;
ret;
TAKE: bar.sync 1, 64;
ld.shared.u32 %r9, [%r8+-128]; {STORE}
"""


def test_one_warp_arrives_and_the_other_waits():
    assert run(NAMED, ints(64), threads=64, shared=256).tolist() == [0] * 32 + [5] * 32


def test_a_barrier_that_not_all_reach():
    with pytest.raises(
        PtxFault, match=r"deadlock: of 32 threads none can go on, 32 have ended\n.* 32 wait, .*bar\.sync 1"
    ):
        run(NAMED.replace("bar.arrive 1, 64;", ""), ints(64), threads=64, shared=256)


def test_a_barrier_does_not_wait_for_warps_that_have_ended():
    body = f"setp.ge.u32 %p1, %tid, 32; @%p1 ret; bar.sync 0; mov.u32 %r9, 1; {STORE}"
    assert run(body, ints(64), threads=64).tolist() == [1] * 32 + [0] * 32


def test_a_warp_that_came_and_ended_counts_once():
    body = f"""{SHARED} setp.lt.u32 %p1, %tid, 64; @%p1 bra SOON; mov.u32 %r1, 0;
    LATER: add.s32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 50; @%p2 bra LATER;
    st.shared.u32 [%r8], 7; bar.arrive 1, 96; ret;
    SOON: setp.lt.u32 %p1, %tid, 32; @%p1 bra WAIT; bar.arrive 1, 96; ret;
    WAIT: bar.sync 1; ld.shared.u32 %r9, [%r8+256]; {STORE}"""
    for seed in range(4):
        made = run(body, ints(96), threads=96, shared=384, seed=seed)
        assert made.tolist() == [7] * 32 + [0] * 64


def test_threads_at_one_barrier_agree_on_how_many_come():
    body = "setp.ge.u32 %p1, %tid, 32; @%p1 bra MORE; bar.arrive 1, 64; ret; MORE: bar.sync 1, 96;"
    with pytest.raises(PtxFault, match="expect different numbers"):
        run(body, ints(1), threads=96)


def test_a_shuffle_waits_for_its_warp():
    body = "setp.lt.u32 %p1, %tid, 7; mov.u32 %r1, %tid; @%p1 bra MEET; add.s32 %r1, %r1, 100;"
    body += f"MEET: shfl.sync.bfly.b32 %r9|%p2, %r1, 16, 31, -1; {STORE}"
    values = [i if i < 7 else i + 100 for i in range(32)]
    assert run(body, ints(32)).tolist() == [values[i ^ 16] for i in range(32)]


@pytest.mark.parametrize(
    ("mode", "operand", "c", "source"),
    [
        ("up", 1, 0, lambda i: max(i - 1, 0) if i else 0),
        ("down", 3, 31, lambda i: i + 3 if i + 3 < 32 else i),
        ("idx", 9, 31, lambda i: 9),
        ("bfly", 1, 31, lambda i: i ^ 1),
        ("down", 3, 31 | 24 << 8, lambda i: i + 3 if i % 8 + 3 < 8 else i),
        ("idx", 9, 31 | 16 << 8, lambda i: i // 16 * 16 + 9),
    ],
)
def test_where_a_shuffle_reads(mode: str, operand: int, c: int, source):
    made = run(f"shfl.sync.{mode}.b32 %r9, %tid, {operand}, {c}, -1; {STORE}", ints(32))
    assert made.tolist() == [source(i) for i in range(32)]


def test_a_shuffle_from_a_thread_that_is_not_there():
    body = "setp.ge.u32 %p1, %tid, 16; @%p1 ret; shfl.sync.bfly.b32 %r9, %tid, 16, 31, 0xffff;"
    with pytest.raises(PtxFault, match="a lane is read from that does not execute it"):
        run(body, ints(32))


def test_half_a_warp_waits_for_the_other_forever():
    body = "setp.ge.u32 %p1, %tid, 16; @%p1 bra OTHER; shfl.sync.bfly.b32 %r9, %tid, 1, 31, -1; ret;\n"
    body += "OTHER: bar.warp.sync -1;"
    with pytest.raises(
        PtxFault, match=r"(?s)16 wait for others of their warps.*shfl\.sync.*16 wait for.*bar\.warp\.sync"
    ):
        run(body, ints(32))


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.u32 %r1, [%out+128];", "an access to 0x.*, 0 bytes past the end of an allocation of 128 bytes"),
        ("ld.global.u32 %r1, [%out+-4];", "4 bytes before an allocation"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%out+120];", "not a multiple of 16 bytes"),
        ("ld.global.u32 %r1, [%out+2];", "an address that is not a multiple of 4 bytes"),
        ("ld.global.v2.u32 {%r1, %r2}, [%out+4];", "not a multiple of 8 bytes"),
        ("st.global.u32 [%a], %tid;", "a write into an array that is only read"),
        ("mov.u32 %r1, shared_bytes; ld.shared.u32 %r2, [%r1+64];", "byte 64 of 64 bytes of shared memory"),
        ("mov.u32 %r1, 0; ld.shared.u32 %r2, [%r1];", "no shared address of its block"),
        ("mov.u32 %r1, shared_bytes; ld.shared.v2.u32 {%r2, %r3}, [%r1+4];", "not a multiple of 8 bytes"),
        ("cvta.to.shared.u64 %d1, %out;", "a generic address that is not of .shared memory"),
        ("div.s32 %r1, 1, 0;", "an integer is divided by 0"),
        ("bar.sync 16;", "a block has 16 barriers"),
        ("bar.sync 1, 33;", "a barrier expects whole warps"),
        ("trap;", "trap"),
    ],
)
def test_what_no_correct_kernel_does(body: str, message: str):
    with pytest.raises(PtxFault, match=message) as caught:
        run(f"setp.ne.u32 %p1, %tid, 3;\n@%p1 bra END;\n{body}\nEND:", ints(32), shared=64, a=ints(4))
    where = rf"k, block \(0, 0, 0\) thread 3, PTX line {FIRST_LINE + 2}: "
    assert re.match(where, str(caught.value)) or "bar.sync" in body


def test_faults_name_the_cuda_line():
    body = ".loc 1 40 3\n.loc 1 7 3, function_name $L__x, inlined_at 1 40 3\nld.global.u32 %r1, [%out+4096];"
    with pytest.raises(PtxFault, match=r"\(line 7, in line 40 of the CUDA C\): ld\.global\.u32"):
        run(body, ints(32))


def test_local_memory_and_generic_addresses():
    body = ".local .align 8 .b8 depot[16]; mov.u64 %d1, depot; cvta.local.u64 %d2, %d1; st.u32 [%d2+8], %tid;"
    body += f"ld.local.u32 %r1, [%d1+8]; ld.u32 %r2, [%d2+8]; add.s32 %r9, %r1, %r2; {STORE}"
    assert run(body, ints(32)).tolist() == [2 * i for i in range(32)]
    with pytest.raises(PtxFault, match="outside of local memory"):
        run(body.replace("[%d1+8]", "[%d1+16]"), ints(32))


def test_variables_of_the_file():
    file = ".global .align 4 .b8 table[8] = {1, 0, 0, 0, 255, 255, 255, 255};"
    body = f"mov.u64 %d1, table; and.b32 %r1, %tid, 1; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2; {STORE}"
    assert (
        run(body.replace(STORE, "ld.global.nc.u32 %r9, [%d1];" + STORE), ints(32), file=file).tolist() == [1, -1] * 16
    )


def test_what_is_loaded_as_constant_is_not_written():
    body = f"ld.global.nc.u32 %r9, [%out]; {STORE}"
    with pytest.raises(PtxFault, match=r"loads by ld\.global\.nc is written"):
        run(body, ints(32))


# -- asynchronous copies -----------------------------------------------------------------------

COPY = f"""
{SHARED}
mul.wide.u32 %d1, %tid, 4; add.s64 %d1, %d1, %a;
cp.async.ca.shared.global [%r8], [%d1], 4;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.u32 %r9, [%r8]; {STORE}
"""


def test_a_copy_is_there_after_the_wait_and_not_before():
    a = np.arange(32, dtype=I32)
    assert run(COPY, ints(32), shared=128, a=a).tolist() == a.tolist()
    assert (run(COPY.replace("wait_group 0", "wait_group 1"), ints(32), shared=128, a=a) == -1).all()
    assert (run(COPY.replace("cp.async.commit_group;", ""), ints(32), shared=128, a=a) == -1).all()


def test_a_copy_of_fewer_bytes_is_filled_with_zeros_and_reads_no_more():
    a = np.arange(30, dtype=I32)
    body = COPY.replace("[%d1], 4;", "[%d1], 4, %r6;").replace(
        "cp.async.ca", "setp.lt.u32 %p1, %tid, 30; selp.b32 %r6, 4, 0, %p1; cp.async.ca"
    )
    assert run(body, ints(32), shared=128, a=a).tolist() == [*range(30), 0, 0]
    with pytest.raises(PtxFault, match=r"thread 30.* past the end of an allocation"):
        run(COPY, ints(32), shared=128, a=a)


# -- clusters ----------------------------------------------------------------------------------

CLUSTER = """
mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, shared_bytes; mul.lo.u32 %r3, %r1, 10;
st.shared.u32 [%r2], %r3;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
xor.b32 %r4, %r1, 1;
mapa.shared::cluster.u32 %r5, %r2, %r4;
ld.shared::cluster.u32 %r9, [%r5];
mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r6, 32, %tid; mul.wide.u32 %d1, %r6, 4; add.s64 %d1, %d1, %out;
st.global.u32 [%d1], %r9;
"""


def test_blocks_of_a_cluster_read_each_other():
    for seed in range(3):
        made = run(CLUSTER, ints(6 * 32), blocks=6, cluster=2, shared=4, seed=seed).reshape(6, 32)
        assert made.tolist() == [[10 - 10 * (i % 2)] * 32 for i in range(6)]


def test_an_address_of_another_block_takes_the_window_of_the_cluster():
    with pytest.raises(PtxFault, match="no shared address of its block"):
        run(CLUSTER.replace("ld.shared::cluster", "ld.shared"), ints(64), blocks=2, cluster=2, shared=4)
    with pytest.raises(PtxFault, match="no block of that rank"):
        run(CLUSTER.replace("xor.b32 %r4, %r1, 1", "add.s32 %r4, %r1, 1"), ints(64), blocks=2, cluster=2, shared=4)
    with pytest.raises(PtxFault, match="arrives at the barrier of its cluster twice"):
        run(
            CLUSTER.replace("barrier.cluster.wait.acquire", "barrier.cluster.arrive"),
            ints(64),
            blocks=2,
            cluster=2,
            shared=4,
        )


# -- what it does not know ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("lop3.b32 %r1, %r2, %r3, %r4, 1;", "unknown instruction"),
        ("add.sat.s32 %r1, %r2, %r3;", "expected one of .u16"),
        ("fma.rz.f32 %f1, %f2, %f3, %f4;", "expected one of .rn"),
        ("add.f32.rn %f1, %f2, %f3;", "expected one of|unknown"),
        ("ld.global.L1::no_allocate.u32 %r1, [%out];", "expected one of"),
        ("ld.const.u32 %r1, [%out];", "expected one of"),
        ("cvt.f32.s32 %f1, %r1;", "unknown rounding"),
        ("cvt.rn.f16x2.f32 %r1, %f1;", "2 operands, expected 3"),
        ("mov.b32 %r1, %d1;", "wider"),
        ("mov.b64 %d1, %r1;", "is no .b64"),
        ("cp.async.cg.shared.global [%r1], [%out], 8;", "with .cg 16"),
        ("bra nowhere;", "'nowhere' is not declared"),
        ("mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};", "expected one of .row"),
        ("barrier.sync 0;", "without .aligned"),
        ("mov.u32 %r1, %clock;", "'%clock' is not declared"),
        ("add.s32 %r1, %r2, 0f3F800000;", "no"),
    ],
)
def test_what_is_unknown_is_refused_with_its_line(instruction: str, message: str):
    with pytest.raises(PtxUnknown, match=rf"PTX line {FIRST_LINE + 1}: .*{message}"):
        run(f"mov.u32 %r1, 0;\n{instruction}", ints(32))


@pytest.mark.parametrize(
    "text",
    [
        ".func (.param .b32 x) f () { ret; }",
        ".const .b32 x = 3;",
        ".shared .b8 x[];",
        ".visible .entry k(.param .b128 x) {}",
    ],
)
def test_files_that_it_does_not_know(text: str):
    with pytest.raises(PtxUnknown, match="PTX line 3"):
        parse_module(f".version 9.0\n.target sm_80\n{text}\n")


def test_a_file_without_a_target():
    with pytest.raises(PtxUnknown, match=r"no \.target"):
        parse_module("")


def test_parsing_keeps_what_stands_there():
    kernel = entry('.pragma "nounroll"; // a comment; with a semicolon\nmov.u32 %r1, /* none */ 5;')
    found = [each for each in kernel.body.instructions if each.line == FIRST_LINE + 1]
    assert [each.text for each in found] == ["mov.u32 %r1, 5"]
    assert kernel.directives["maxntid"] == (1024, 1, 1)
    assert "k" in parse_module(frame("", ())).entries
