"""Global memory: allocations at made-up addresses, checked for bounds, alignment and what may be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.types import BITS, Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.threads import Threads

ALIGNMENT = 256
"""Bytes to which an allocation is aligned, as the driver's are."""

GAP = 4096
"""Allocations begin at multiples of this, and so many bytes at least lie between two."""

_pages = count((1 << 36) // GAP)


@dataclass
class Allocation:
    """Memory that a kernel may use."""

    address: int
    data: NDArray[np.uint8]
    writable: bool


def allocate(nbytes: int, writable: bool) -> Allocation:
    """Memory of which every byte is 0xFF, which is a NaN in all formats, at an address that nothing else has."""
    pages = -(-nbytes // GAP) + 1
    for _ in range(pages - 1):
        next(_pages)
    return Allocation((next(_pages) - pages + 1) * GAP, np.full(nbytes, 0xFF, np.uint8), writable)


def _normal(values: Array) -> Array:
    """Floats, those below the smallest normal number as zeros of their sign; integers as they are."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.abs(values) < np.finfo(values.dtype).smallest_normal, np.copysign(0, values), values)


class GlobalMemory:
    """What one launch may reach."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        known = {each.address: each for each in allocations if each.data.size}
        self.allocations = [known[address] for address in sorted(known)]
        self.starts = np.array([each.address for each in self.allocations], np.int64)
        sizes = np.array([each.data.size for each in self.allocations], np.int64)
        self.ends = self.starts + sizes
        self.writable = np.array([each.writable for each in self.allocations], bool)
        rounded = -(-sizes // ALIGNMENT) * ALIGNMENT
        self.places = np.cumsum(rounded) - rounded
        self.bytes = np.full(int(rounded.sum()), 0xFF, np.uint8)
        """All allocations, one behind another, each at a multiple of 256."""
        for each, place in zip(self.allocations, self.places, strict=True):
            self.bytes[place : place + each.data.size] = each.data
        self.views = {size: self.bytes.view(dtype) for size, dtype in BITS.items()}
        self.constant = np.zeros(len(self.allocations), bool)
        """Allocations that a load says nobody writes (`ld.global.nc`)."""
        self.written = np.zeros(len(self.allocations), bool)

    def copy_back(self) -> None:
        """What was written, into the allocations that may be written."""
        for each, place in zip(self.allocations, self.places, strict=True):
            if each.writable:
                each.data[:] = self.bytes[place : place + each.data.size]

    def locate(self, threads: Threads, addresses: Array, nbytes: int | Array, align: int, writes: bool) -> Array:
        """Where in `bytes` these addresses lie, of accesses of so many bytes (PtxFault)."""
        addresses = threads.full(addresses.view(np.int64))
        wrong = addresses & (align - 1)
        if wrong.any():
            threads.fail(wrong != 0, f"an address that is not a multiple of {align} bytes")
        if not self.allocations:
            threads.fail(addresses == addresses, "an address that is in no allocation")
        which = np.maximum(np.searchsorted(self.starts, addresses, "right") - 1, 0)
        inside = (addresses >= self.starts[which]) & (addresses + nbytes <= self.ends[which])
        if not inside.all():
            threads.fail(~inside, self._outside(int(addresses[~inside][0])))
        if writes:
            threads.check(self.writable[which], "a write into an array that is only read")
            self.written[which] = True
        return addresses - self.starts[which] + self.places[which]

    def load(self, threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        """Raw bits of 1, 2, 4 or 8 bytes."""
        return self.views[nbytes][self.locate(threads, addresses, nbytes, align, writes=False) // nbytes]

    def load_constant(self, threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        """The same of memory that nobody writes during the launch, which `check_reads` looks at in the end."""
        self.constant[np.searchsorted(self.starts, addresses.view(np.int64), "right") - 1] = True
        return self.load(threads, addresses, nbytes, align)

    def check_reads(self) -> None:
        """That what was loaded as constant was not written by the same launch (PtxFault; by whole allocations)."""
        if (self.constant & self.written).any():
            raise PtxFault("an array that it loads by ld.global.nc is written by the same launch")

    def store(self, threads: Threads, addresses: Array, values: Array, align: int) -> None:
        """Raw bits; of several threads that write to one address, the last one's stay."""
        nbytes = values.itemsize
        self.views[nbytes][self.locate(threads, addresses, nbytes, align, writes=True) // nbytes] = values

    def add(self, threads: Threads, addresses: Array, values: Array, align: int) -> None:
        """One thread after another, in the format of the values; of floats only normal numbers."""
        nbytes = values.itemsize
        places = self.locate(threads, addresses, nbytes, align, writes=True) // nbytes
        held = self.views[nbytes].view(values.dtype)
        with np.errstate(all="ignore"):
            for place, value in zip(places.tolist(), _normal(values), strict=True):
                held[place : place + 1] = _normal(_normal(held[place : place + 1]) + value)

    def _outside(self, address: int) -> str:
        near = int(np.argmin(np.minimum(abs(self.starts - address), abs(self.ends - address))))
        start, end = int(self.starts[near]), int(self.ends[near])
        where = f"{start - address} bytes before" if address < start else f"{address - end} bytes past the end of"
        if start <= address < end:
            where = f"{end - address} bytes before the end of"
        return f"an access to {address:#x}, {where} an allocation of {end - start} bytes"
