"""Tensor copies in kernels of a few instructions: what has been waited for is there, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_bodies import device, run

from treadle.runtime.cuda_driver import EncodedMap, arguments_of
from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.hopper.tensor_map_images import encode
from treadle.runtime.tensor_maps import tensor_map

BOX_BYTES = 4 * 64
DATA = np.arange(1, 1 + 6 * 40, dtype=np.uint16).view(np.float16).reshape(6, 40)


def mapped(array: Any, box: tuple[int, int], swizzle: int = 0, *, writable: bool = False) -> EncodedMap:
    on_device = device(array, writable=writable)
    made = tensor_map(array.shape, array.strides, array.dtype, on_device.pointer, box, swizzle)
    return EncodedMap(encode(arguments_of(made, on_device.pointer)), on_device)


def words(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint32).ravel()


LOAD = """
mov.u32 %r1, shared_bytes;
setp.ne.s32 %p1, %tid, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r1], 1;
READY:
SYNC
@%p1 bra LOADED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], BYTES;
COPY
LOADED:
WAIT
shl.b32 %r2, %tid, 2;
add.u32 %r2, %r2, %r1;
ld.shared.u32 %r9, [%r2+1024];
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
mad.lo.u32 %r3, %r3, %r4, %tid;
mul.wide.u32 %d1, %r3, 4;
add.s64 %d1, %out, %d1;
st.global.u32 [%d1], %r9;
END
"""
COPY = """add.u32 %r5, %r1, 1024;
mov.u32 %r6, COLUMN;
mov.u32 %r7, ROW;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r5], [%m0, {%r6, %r7}], [%r1];"""
WAIT = """AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
@!%p2 bra AGAIN;"""


def loading(x: int = 0, y: int = 0, wait: str = WAIT, bytes: int = BOX_BYTES, copy: str = COPY) -> str:
    text = LOAD.replace("SYNC", "bar.sync 0;").replace("COPY", copy).replace("WAIT", wait).replace("END", "")
    return text.replace("BYTES", str(bytes)).replace("COLUMN;", f"{x};").replace("ROW;", f"{y};")


def loaded(body: str, array: Any = DATA, swizzle: int = 0) -> Any:
    maps = {"m0": mapped(array, (4, 32), swizzle)}
    return run(body, np.zeros(64, np.uint32), threads=64, shared=2048, maps=maps)


def test_a_box_is_there_after_the_wait() -> None:
    assert np.array_equal(loaded(loading(8, 2)), words(DATA[2:6, 8:40]))


def test_what_is_outside_is_zero_and_counts() -> None:
    expected = np.zeros((4, 32), np.float16)
    expected[1:4, :24] = DATA[0:3, 16:40]
    assert np.array_equal(loaded(loading(16, -1)), words(expected))


def test_a_swizzled_box() -> None:
    """Rows of 64 bytes: two a line of 128, and the units of line 1 change places by 1."""
    units = loaded(loading(8, 2), swizzle=64).reshape(2, 2, 4, 4)
    rows = words(DATA[2:6, 8:40]).reshape(2, 2, 4, 4)
    assert np.array_equal(units[0], rows[0])
    assert np.array_equal(units[1], rows[1][:, [1, 0, 3, 2]])


def test_without_a_wait_nothing_is_there() -> None:
    assert np.all(loaded(loading(wait="")) == 0xFFFFFFFF)


@pytest.mark.parametrize("bytes", [BOX_BYTES + 16, BOX_BYTES - 16])
def test_a_wrong_number_of_bytes_is_waited_for(bytes: int) -> None:
    with pytest.raises(PtxFault, match=r"deadlock(?s:.)*try_wait"):
        loaded(loading(bytes=bytes))


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (COPY.replace("1024;", "1088;"), "multiple of 128"),
        (COPY.replace("[%m0,", "[%out,"), "no parameter"),
        (COPY.replace("[%m0,", "[%m0+64,"), "no parameter"),
        (COPY.replace("[%r1];", "[%r1+8];"), "no mbarrier"),
        (COPY.replace("1024;", "1920;"), "ends past"),
    ],
)
def test_mistakes_with_copies(copy: str, message: str) -> None:
    with pytest.raises(PtxFault, match=message):
        loaded(loading(copy=copy))


def test_a_map_of_what_is_not_there() -> None:
    """Its tensor has a row more than the allocation."""
    on_device = device(DATA, writable=False)
    arguments = arguments_of(tensor_map((7, 40), DATA.strides, DATA.dtype, on_device.pointer, (4, 32), 0), 0)
    maps = {"m0": EncodedMap(encode({**arguments, "address": on_device.pointer}), on_device)}
    with pytest.raises(PtxFault, match="in no allocation"):
        run(loading(0, 3), np.zeros(64, np.uint32), threads=64, shared=2048, maps=maps)


CLUSTER = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;"
MULTICAST = COPY.replace("bytes [", "bytes.multicast::cluster [").replace("[%r1];", "[%r1], %h1;")


def multicast(mask: int) -> str:
    """Each block of a cluster of 2 expects a box; block 0 loads it for those of the mask, from its own corner."""
    first = f"mov.u32 %r3, %cluster_ctarank;\nsetp.ne.s32 %p3, %r3, 0;\nmov.u16 %h1, {mask};\n@%p3 bra LOADED;\n"
    text = LOAD.replace("SYNC", CLUSTER).replace("COPY", first + MULTICAST).replace("WAIT", WAIT)
    return text.replace("END", CLUSTER).replace("BYTES", str(BOX_BYTES)).replace("COLUMN;", "8;").replace("ROW;", "2;")


def run_cluster(body: str) -> Any:
    maps = {"m0": mapped(DATA, (4, 32))}
    return run(body, np.zeros((4, 64), np.uint32), threads=64, blocks=4, cluster=2, shared=2048, maps=maps)


def test_a_multicast_comes_to_each_block_and_counts_there() -> None:
    found = run_cluster(multicast(0b11))
    assert all(np.array_equal(block, words(DATA[2:6, 8:40])) for block in found)


@pytest.mark.parametrize(("mask", "message"), [(0b01, "deadlock"), (0b101, "a cluster of 2"), (0, "a cluster of 2")])
def test_a_multicast_to_others(mask: int, message: str) -> None:
    with pytest.raises(PtxFault, match=message):
        run_cluster(multicast(mask))


STORE = """
mov.u32 %r1, shared_bytes;
shl.b32 %r2, %tid, 2;
add.u32 %r2, %r2, %r1;
st.shared.u32 [%r2], %tid;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.s32 %p1, %tid, 0;
@%p1 bra END;
mov.u32 %r6, 16;
mov.u32 %r7, 4;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m0, {%r6, %r7}], [%r1];
cp.async.bulk.commit_group;
AFTER
END:
"""
READ = "cp.async.bulk.wait_group.read 0;"


def stored(after: str) -> Any:
    target = mapped(np.zeros((6, 40), np.float16), (4, 32), writable=True)
    run(STORE.replace("AFTER", after), np.zeros(1, np.uint32), threads=64, shared=2048, maps={"m0": target})
    array: Any = target.array
    return array.allocation.data.view(np.uint16).reshape(6, 40)


@pytest.mark.parametrize("after", [READ, READ.replace(".read", "")])
def test_a_store_writes_what_is_inside(after: str) -> None:
    expected = np.zeros((6, 40), np.uint16)
    expected[4:6, 16:40] = np.arange(64, dtype=np.uint32).view(np.uint16).reshape(4, 32)[:2, :24]
    assert np.array_equal(stored(after), expected)


def test_a_store_reads_as_late_as_its_wait() -> None:
    """What is overwritten before it shows."""
    found = stored("st.shared.u32 [%r1], -1;\n" + READ)
    assert found[4, 16:18].tolist() == [0xFFFF, 0xFFFF]


@pytest.mark.parametrize("after", ["", "cp.async.bulk.wait_group.read 1;"])
def test_a_block_that_ends_before_its_store_has_read(after: str) -> None:
    with pytest.raises(PtxFault, match="it has ended while a copy"):
        stored(after)


def test_a_store_into_what_is_only_read() -> None:
    target = mapped(np.zeros((6, 40), np.float16), (4, 32))
    with pytest.raises(PtxFault, match="only read"):
        run(STORE.replace("AFTER", READ), np.zeros(1, np.uint32), threads=64, shared=2048, maps={"m0": target})
