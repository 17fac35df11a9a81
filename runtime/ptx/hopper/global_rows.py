"""Rows of bytes in global memory, as copies in bulk read and write them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.memory import GlobalMemory


def read_rows(memory: GlobalMemory, addresses: NDArray[np.int64], nbytes: int) -> NDArray[np.uint8]:
    """So many bytes from each address on, (addresses, bytes); PtxFault where they are in no allocation."""
    where, width = _words(memory, addresses, nbytes, writes=False)
    return memory.views[width][where].view(np.uint8)


def write_rows(memory: GlobalMemory, addresses: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
    where, width = _words(memory, addresses, data.shape[1], writes=True)
    memory.views[width][where] = np.ascontiguousarray(data).view(f"u{width}")


def _words(
    memory: GlobalMemory, addresses: NDArray[np.int64], nbytes: int, *, writes: bool
) -> tuple[NDArray[np.int64], int]:
    """Which words of all memory each row is, and their bytes: as wide as all rows allow."""
    which = np.maximum(np.searchsorted(memory.starts, addresses, "right") - 1, 0)
    inside = (addresses >= memory.starts[which]) & (addresses + nbytes <= memory.ends[which])
    if not inside.all():
        raise PtxFault(f"a copy of {nbytes} bytes at {int(addresses[~inside][0]):#x}, which are in no allocation")
    if writes:
        if not memory.writable[which].all():
            raise PtxFault("a copy into an array that is only read")
        memory.written[which] = True
    places = addresses - memory.starts[which] + memory.places[which]
    together = int(np.bitwise_or.reduce(places)) | nbytes
    width = next(each for each in (8, 4, 2, 1) if together % each == 0)
    return (places // width)[:, None] + np.arange(nbytes // width), width
