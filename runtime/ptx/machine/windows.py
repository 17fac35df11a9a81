"""Memories of a block and of a thread: shared, local and parameters, and generic addresses of them.

The ISA leaves open where windows lie (sections 5.1 and 6.4). Here each shared window begins at another address, so that
one block's address means nothing in another block unless `mapa` made it:

    shared     bits 24 and up: 1 + the block's rank in its cluster; below: bytes in its window, of which the first
               1024 belong to the system, as on sm_90
    generic    global addresses are themselves; others have a number of their memory in bits 40 and up
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.types import BITS, Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.threads import Threads

RANK_SHIFT = 24
SYSTEM_BYTES = 1024
"""Of a window, which no kernel may use."""

GENERIC = {"shared": 1 << 40, "local": 2 << 40, "param": 3 << 40}
_SPAN = 1 << 40


def window_of(rank: Array) -> Array:
    """The shared addresses at which the windows of blocks begin."""
    return (rank.astype(np.int64) + 1) << RANK_SHIFT


class SharedMemory:
    """The windows of all blocks of a batch."""

    def __init__(self, slots: int, nbytes: int) -> None:
        self.nbytes = nbytes
        """That a kernel may use, behind those of the system."""
        self.stride = -(-(SYSTEM_BYTES + nbytes) // 1024) * 1024
        self.bytes = np.full(slots * self.stride, 0xFF, np.uint8)
        self.views = {size: self.bytes.view(dtype) for size, dtype in BITS.items()}

    def clear(self) -> None:
        """What nobody has written yet is 0xFF, a NaN in all formats."""
        self.bytes.fill(0xFF)

    def locate(self, threads: Threads, addresses: Array, nbytes: int, align: int, cluster: bool = False) -> Array:
        """Where in `bytes` these addresses lie, of `.shared::cta`, or of `.shared::cluster` (PtxFault)."""
        addresses = threads.full(addresses).astype(np.int64)
        wrong = addresses & (align - 1)
        if wrong.any():
            threads.fail(wrong != 0, f"a shared address that is not a multiple of {align} bytes")
        machine = threads.machine
        rank, offset = (addresses >> RANK_SHIFT) - 1, addresses & ((1 << RANK_SHIFT) - 1)
        own = machine.rank[threads.select]
        slot = machine.slot[threads.select]
        good = (rank >= 0) & (rank < machine.cluster) if cluster else rank == own
        threads.check(good, "an address that is in no shared window" if cluster else "no shared address of its block")
        inside = (offset >= SYSTEM_BYTES) & (offset + nbytes <= SYSTEM_BYTES + self.nbytes)
        if not inside.all():
            beyond = int(offset[~inside][0]) - SYSTEM_BYTES
            threads.fail(~inside, f"an access to byte {beyond} of {self.nbytes} bytes of shared memory")
        return (slot - own + rank) * self.stride + offset

    def load(self, threads: Threads, addresses: Array, nbytes: int, align: int, cluster: bool = False) -> Array:
        return self.views[nbytes][self.locate(threads, addresses, nbytes, align, cluster) // nbytes]

    def store(self, threads: Threads, addresses: Array, values: Array, align: int, cluster: bool = False) -> None:
        nbytes = values.itemsize
        self.views[nbytes][self.locate(threads, addresses, nbytes, align, cluster) // nbytes] = values


class LocalMemory:
    """Bytes of each thread of the batch, at the same addresses for all."""

    BASE = 1024

    def __init__(self, threads: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.stride = -(-nbytes // 16) * 16
        self.bytes = np.full(threads * self.stride, 0xFF, np.uint8)
        self.views = {size: self.bytes.view(dtype) for size, dtype in BITS.items()}

    def locate(self, threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        offset = threads.full(addresses).astype(np.int64) - self.BASE
        threads.check(offset & (align - 1) == 0, f"a local address that is not a multiple of {align} bytes")
        threads.check((offset >= 0) & (offset + nbytes <= self.nbytes), "an access outside of local memory")
        return threads.lanes * self.stride + offset

    def load(self, threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        return self.views[nbytes][self.locate(threads, addresses, nbytes, align) // nbytes]

    def store(self, threads: Threads, addresses: Array, values: Array, align: int) -> None:
        nbytes = values.itemsize
        self.views[nbytes][self.locate(threads, addresses, nbytes, align) // nbytes] = values


class ParameterMemory:
    """The parameters of the launch, the same for all threads, read only."""

    def __init__(self, data: bytes) -> None:
        self.bytes = np.frombuffer(data, np.uint8)

    def load(self, threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        offset = addresses.astype(np.int64)
        threads.check(offset & (align - 1) == 0, f"a parameter address that is not a multiple of {align} bytes")
        threads.check((offset >= 0) & (offset + nbytes <= self.bytes.size), "a read outside of the parameters")
        return self.bytes[offset[:, None] + np.arange(nbytes)].view(BITS[nbytes])[:, 0]


def to_generic(space: str, addresses: Array) -> Array:
    return addresses + np.uint64(GENERIC.get(space, 0))


def from_generic(threads: Threads, space: str, addresses: Array) -> Array:
    """Addresses in a memory (PtxFault for one that is not in it)."""
    base = GENERIC.get(space, 0)
    inside = (addresses >= base) & (addresses < base + _SPAN)
    threads.check(threads.full(inside), f"a generic address that is not of .{space} memory")
    return addresses - np.uint64(base)
