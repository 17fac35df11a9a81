"""The registers that setmaxnreg moves between the warps of a block (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from treadle.runtime.ptx.errors import PtxFault

FILE = 65536
"""Registers of a multiprocessor, all of which a block may have (CUDA C++ programming guide, compute capabilities)."""

WARP = 32
LEAST, MOST, UNIT = 24, 256, 8


class RegisterFault(PtxFault):
    """What the ISA leaves undefined."""


def cap(threads: int, blocks: int) -> int:
    """Registers that each thread of a block begins with, where so many blocks of so many threads must fit in one
    multiprocessor: as many as do, in eights, but no more than 255 can name."""
    return min(FILE // (threads * blocks) // UNIT * UNIT, MOST - UNIT)


class RegisterPool:
    """Of one block: what each warp owns, and what nobody does."""

    def __init__(self, warps: int, each: int):
        self._owned = [each] * warps
        self._free = 0
        """In registers of one thread of a warp: a warp's share is 32 of them."""

    def owned(self, warp: int) -> int:
        return self._owned[warp]

    def give(self, warp: int, count: int) -> None:
        """setmaxnreg.dec: keep so many."""
        self._check(count)
        if count > self._owned[warp]:
            raise RegisterFault(f"setmaxnreg.dec to {count} of a warp that owns {self._owned[warp]} registers a thread")
        self._free += self._owned[warp] - count
        self._owned[warp] = count

    def take(self, warp: int, count: int) -> bool:
        """setmaxnreg.inc: have so many; False where the pool has too few, and the warp must wait."""
        self._check(count)
        more = count - self._owned[warp]
        if more < 0:
            raise RegisterFault(f"setmaxnreg.inc to {count} of a warp that owns {self._owned[warp]} registers a thread")
        if more > self._free:
            return False
        self._free -= more
        self._owned[warp] = count
        return True

    @staticmethod
    def _check(count: int) -> None:
        if not LEAST <= count <= MOST or count % UNIT:
            raise RegisterFault(f"setmaxnreg takes multiples of {UNIT} from {LEAST} to {MOST}, not {count}")
