"""Mbarriers, elections, registers and stored matrices, in kernels of a few instructions."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_bodies import run

from treadle.runtime.ptx.errors import PtxFault, PtxUnknown

NOTHING = np.zeros(64, np.uint32)

INIT = """
mov.u32 %r1, shared_bytes;
setp.ne.s32 %p1, %tid, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r1], COUNT;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
"""

WAIT = """
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], PARITY;
@%p2 bra DONE;
bra WAIT;
DONE:
"""

STORE = """
mul.wide.u32 %d1, %tid, 4;
add.s64 %d1, %out, %d1;
st.global.u32 [%d1], %r9;
"""


def initialised(count: int) -> str:
    return INIT.replace("COUNT", str(count))


def waiting(parity: int) -> str:
    return WAIT.replace("PARITY", str(parity))


@pytest.mark.parametrize("seed", range(4))
def test_a_wait_ends_with_the_last_arrival(seed: int) -> None:
    """Warp 1 writes, then arrives, thread by thread; warp 0 reads after the phase."""
    body = f"""{initialised(32)}
setp.lt.u32 %p3, %tid, 32;
@%p3 bra READS;
shl.b32 %r2, %tid, 2;
add.u32 %r2, %r2, %r1;
st.shared.u32 [%r2], %tid;
mbarrier.arrive.shared::cta.b64 _, [%r1];
bra END;
READS:{waiting(0)}
shl.b32 %r2, %tid, 2;
add.u32 %r2, %r2, %r1;
ld.shared.u32 %r9, [%r2+128];
{STORE}
END:"""
    found = run(body, NOTHING, threads=64, shared=256, seed=seed)
    assert found.tolist() == [*range(32, 64), *32 * [0]]


def test_a_wait_for_a_phase_that_has_not_begun_does_not_end() -> None:
    with pytest.raises(PtxFault, match=r"deadlock: of 32 threads none can go on(?s:.)*try_wait"):
        run(initialised(1) + waiting(0), NOTHING, shared=256)


def test_the_phase_before_the_first_has_ended() -> None:
    run(initialised(1) + waiting(1), NOTHING, shared=256)


def test_bytes_that_never_come_are_waited_for() -> None:
    arrive = "setp.ne.s32 %p3, %tid, 0;\n@!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;"
    with pytest.raises(PtxFault, match="deadlock"):
        run(initialised(1) + arrive + waiting(0), NOTHING, shared=256)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 %r1, shared_bytes;" + waiting(0), "no mbarrier"),
        (initialised(1) + "st.shared.u32 [%r1], %tid;" + waiting(1), "written over"),
        (initialised(1) + "mbarrier.init.shared::cta.b64 [%r1], 1;", "where one is"),
        (initialised(0), "a count of 0"),
        ("mov.u32 %r1, shared_bytes;\nmbarrier.init.shared::cta.b64 [%r1+4], 1;", "multiple of 8"),
        (initialised(1) + waiting(2), "parity"),
        (initialised(1) + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;", "underflows"),
    ],
)
def test_mistakes_with_barriers(body: str, message: str) -> None:
    with pytest.raises(PtxFault, match=message):
        run(body, NOTHING, shared=256)


@pytest.mark.parametrize(
    "line",
    [
        "mbarrier.arrive.noComplete.shared::cta.b64 _, [%r1];",
        "mbarrier.arrive.shared::cta.b64 %d2, [%r1];",
        "mbarrier.arrive.shared::cta.b32 _, [%r1];",
        "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0;",
        "mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %d2;",
        "fence.proxy.alias;",
        "fence.sc.cta;",
        "setmaxnreg.dec.sync.aligned.u32 %r1;",
        "elect.sync %r1, -1;",
        "stmatrix.sync.aligned.m8n8.x3.shared.b16 [%r1], {%r1, %r1, %r1};",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%r1};",
        "prefetch.tensormap.param [%d1];",
        "cp.async.bulk.wait_group 1, 2;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r1];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d1, {%r1, %r1}], "
        "[%r1];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {%r1}], [%r1];",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d1, {%r1, %r1}], [%r1];",
    ],
)
def test_what_is_not_known_is_refused(line: str) -> None:
    with pytest.raises(PtxUnknown, match=r"PTX line \d+"):
        run(line, NOTHING, shared=256)


def test_an_arrival_after_copies_waits_for_them() -> None:
    """Each thread copies 16 bytes and arrives when they are there: the phase says that all are."""
    body = f"""{initialised(32)}
shl.b32 %r2, %tid, 4;
cvt.u64.u32 %d2, %r2;
add.s64 %d2, %in0, %d2;
add.u32 %r2, %r2, %r1;
cp.async.cg.shared.global [%r2+16], [%d2], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];
{waiting(0)}
xor.b32 %r3, %tid, 31;
shl.b32 %r3, %r3, 4;
add.u32 %r3, %r3, %r1;
ld.shared.u32 %r9, [%r3+16];
{STORE}"""
    given = np.arange(128, dtype=np.uint32)
    found = run(body, NOTHING, shared=1024, in0=given)
    assert found[:32].tolist() == given[::4][::-1].tolist()


def test_one_thread_is_elected() -> None:
    body = "elect.sync %r9|%p3, 0xffffffff;\n@%p3 add.u32 %r9, %r9, 100;\n" + STORE
    found = run(body, NOTHING, threads=64)
    assert found.tolist() == 2 * [100, *31 * [0]]


REGISTERS = f"""
setp.lt.u32 %p3, %tid, 128;
@%p3 bra GIVES;
setmaxnreg.inc.sync.aligned.u32 160;
bra END;
GIVES:
setmaxnreg.dec.sync.aligned.u32 COUNT;
END:
mov.u32 %r9, %tid;
{STORE}"""
BOUNDS = ".maxntid 512, 1, 1\n.minnctapersm 1"


@pytest.mark.parametrize("seed", range(3))
def test_registers_are_taken_when_others_have_given_them(seed: int) -> None:
    """512 threads begin with 128 each; a warpgroup that keeps 24 leaves 34 for each thread of the three others."""
    found = run(REGISTERS.replace("COUNT", "24"), np.zeros(512, np.uint32), threads=512, seed=seed, bounds=BOUNDS)
    assert found.tolist() == [*range(512)]


def test_registers_that_nobody_gives_are_waited_for() -> None:
    """One that keeps 40 leaves 29 for each, who want 32 more."""
    with pytest.raises(PtxFault, match=r"deadlock(?s:.)*setmaxnreg.inc"):
        run(REGISTERS.replace("COUNT", "40"), np.zeros(512, np.uint32), threads=512, bounds=BOUNDS)


def test_registers_are_given_in_eights() -> None:
    with pytest.raises(PtxFault, match="multiples of 8"):
        run(REGISTERS.replace("COUNT", "25"), np.zeros(512, np.uint32), threads=512, bounds=BOUNDS)


def test_without_launch_bounds_registers_stay() -> None:
    with pytest.raises(PtxUnknown, match="launch bounds"):
        run(REGISTERS.replace("COUNT", "24"), np.zeros(512, np.uint32), threads=512, bounds="")


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_four_matrices_are_stored(trans: str) -> None:
    """Lane l gives row l % 8 of matrix l / 8, 48 bytes a row, and holds in register i the numbers 128 i + 2 l + 0, 1:
    the elements of matrix i in order, two a lane."""
    rows = "\n".join(f"shl.b32 %r4, %tid, 1;\nadd.u32 %r{5 + i}, %r4, {128 * i};" for i in range(4))
    pack = "\n".join(
        f"add.u32 %r9, %r{5 + i}, 1;\nshl.b32 %r9, %r9, 16;\nor.b32 %r{5 + i}, %r9, %r{5 + i};" for i in range(4)
    )
    body = f"""
mov.u32 %r1, shared_bytes;
{rows}
{pack}
mul.lo.u32 %r2, %tid, 48;
add.u32 %r2, %r2, %r1;
stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r2], {{%r5, %r6, %r7, %r8}};
ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r2];
mul.wide.u32 %d1, %tid, 16;
add.s64 %d1, %out, %d1;
st.global.v4.b32 [%d1], {{%r5, %r6, %r7, %r8}};
"""
    found = run(body, np.zeros((4, 8, 8), np.uint16), shared=48 * 32)
    expected = np.arange(64).reshape(8, 8) + 128 * np.arange(4)[:, None, None]
    assert np.array_equal(found, expected.swapaxes(1, 2) if trans else expected)
