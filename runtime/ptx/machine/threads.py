"""Threads that stand at an instruction together, of any warps and blocks of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NoReturn

import numpy as np

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.machine.machine import WARP, Machine
from treadle.runtime.ptx.machine.meanings import MOVED
from treadle.runtime.ptx.types import Array, Lanes

__all__ = ["WARP", "Lanes", "Threads"]


class Threads:
    """The threads that execute an instruction now. What a step reads or writes has one element for each, in the order
    of `lanes`, which ascends."""

    def __init__(self, machine: Machine, lanes: Lanes) -> None:
        self.machine = machine
        self.lanes = lanes
        self.count = len(lanes)
        self.select: Lanes | slice = slice(None) if self.count == machine.size else lanes
        """Indexes arrays that have one element for each thread of the batch; a slice gives views."""

    def subset(self, which: Array) -> Threads:
        """Those for which a mask is set."""
        return Threads(self.machine, self.lanes[which])

    def full(self, values: Array) -> Array:
        """One value for each thread, where an immediate gave one for all."""
        return np.broadcast_to(values, (self.count,)) if values.shape != (self.count,) else values

    # -- warps and blocks ----------------------------------------------------------------------

    @cached_property
    def warp(self) -> Lanes:
        """The warp of each, numbered over the batch."""
        return self.machine.warp[self.select]

    @cached_property
    def are_whole_warps(self) -> bool:
        """Whether each warp is here with all of its threads that have not ended."""
        return self.count == self.machine.size or bool(self.in_whole_warps.all())

    @property
    def in_whole_warps(self) -> Array:
        """Of each, whether all threads of its warp are here that have not ended."""
        return self.present == self.machine.living[self.warp]

    @cached_property
    def present(self) -> Array:
        """The threads that are here of the warp of each, as a mask."""
        masks = np.zeros(self.machine.warps, np.int64)
        np.bitwise_or.at(masks, self.warp, self.machine.lane_bit[self.select])
        return masks[self.warp]

    def check_full_warps(self) -> None:
        """That each warp is here with 32 threads, so that `values.reshape(-1, 32)` has a row for each (PtxFault)."""
        if self.count != self.machine.size or self.machine.thread_count % WARP:
            self.check(self.present == (1 << WARP) - 1, "a warp executes it of which fewer than 32 threads are there")

    def by_warp(self) -> Iterator[tuple[int, Threads]]:
        """The threads of each warp."""
        for warp in np.unique(self.warp):
            yield int(warp), self.subset(self.warp == warp)

    # -- where they go -------------------------------------------------------------------------

    def go(self, which: Array | None, index: int) -> None:
        """Those for which the mask is set (None: all) stand at that instruction next. A step that uses this places all
        of its threads and gives MOVED."""
        self.machine.pc[self.lanes if which is None else self.lanes[which]] = index

    def sleep_here(self, which: Array, index: int) -> int:
        """Those of the mask stay at instruction `index`, which they have not executed, until something changes
        (`Machine.stir`), and execute it then; the others go on. Give what this gives."""
        self.machine.sleep(self.lanes[which], index)
        self.go(~which, index + 1)
        return MOVED

    def sleep_behind(self, which: Array, index: int) -> int:
        """Those of the mask have executed instruction `index` and wait until `Machine.release` names them; the others
        go on. Give what this gives."""
        self.machine.suspend(self.lanes[which], index)
        self.go(~which, index + 1)
        return MOVED

    # -- mistakes ------------------------------------------------------------------------------

    def check(self, good: Array, message: str) -> None:
        """PtxFault of the first thread for which the mask is not set."""
        if not good.all():
            self.fail(~good, message)

    def fail(self, bad: Array, message: str) -> NoReturn:
        raise PtxFault(message, int(self.lanes[np.flatnonzero(self.full(bad))[0]]))
