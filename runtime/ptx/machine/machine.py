"""One launch of an entry: its memories, where its threads stand, and what instructions ask for.

Blocks run in batches, all threads of a batch at once where they stand together (`schedule`). What a thread waits for is
its state:

    GOING     it can go on
    AWAITING  at an instruction that whole warps execute together, until the others come
    ASLEEP    before an instruction that cannot be done yet (`try_wait`), tried again when something changes
    WAITING   behind an instruction that has counted it (`bar.sync`), until it is released
    EXITED
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from treadle.runtime.ptx.machine.blocks import Block
from treadle.runtime.ptx.machine.layout import lay_out
from treadle.runtime.ptx.machine.memory import GlobalMemory
from treadle.runtime.ptx.machine.windows import LocalMemory, ParameterMemory, SharedMemory, window_of
from treadle.runtime.ptx.text.module import Entry
from treadle.runtime.ptx.types import Array, Lanes, Triple

GOING, AWAITING, ASLEEP, WAITING, EXITED = range(5)

WARP = 32

BATCH_THREADS = 4096
"""Threads that run at once: fewer make numpy's calls dear, more do not fit its caches."""

BATCH_BYTES = 1 << 26
"""Shared memory of the blocks that run at once."""


class Machine:
    """One launch of an entry."""

    def __init__(
        self,
        entry: Entry,
        memory: GlobalMemory,
        parameters: bytes,
        grid: Triple,
        block: Triple,
        shared_bytes: int,
        *,
        cluster: int = 1,
        seed: int = 0,
        addresses: Mapping[str, int] | None = None,
    ) -> None:
        self.entry, self.grid, self.block, self.cluster = entry, grid, block, cluster
        self.memory = memory
        self.shared_bytes = shared_bytes
        self.parameters = ParameterMemory(parameters)
        self.random = np.random.default_rng(seed) if seed else None
        layout = lay_out(entry, shared_bytes, addresses or {})
        self.variables = layout.variables
        self.labels = entry.body.labels
        threads = prod(block)
        slots = self._slots(threads, layout.shared_bytes)
        self.size, self.slots = slots * threads, slots
        """Threads and blocks of a batch."""
        self.thread_count = threads
        """Threads of a block."""
        self._number(threads)
        self.shared = SharedMemory(slots, layout.shared_bytes)
        self.local = LocalMemory(self.size, layout.local_bytes)
        self.blocks: list[Block] = []
        self.pc = np.zeros(self.size, np.int64)
        self.state = np.zeros(self.size, np.int8)
        self.waits_at = np.zeros(self.size, np.int64)
        """The instruction that a thread which does not go on is at."""
        self.later: deque[Callable[[], None]] = deque()
        """Asynchronous operations, the oldest first (`Machine.stir` is called after each)."""
        self.ended: list[Callable[[], None]] = []
        """Called when all blocks of a batch have ended, for what must not be left undone."""
        self.kept: dict[str, Any] = {}
        """What topics keep for the blocks of a batch, by their names; empty when a batch begins."""
        self.leaving: list[Callable[[], None]] = []
        """Called when threads have ended, in a batch."""
        self.stirred = False
        """Whether threads may go on that could not when those that run now were chosen."""
        self.special: dict[str, Array] = {}
        """The special registers that the entry reads, of all threads of the batch."""
        self.block_index = np.zeros(self.size, np.int64)
        """The number of the block of each thread in the grid."""
        self.preferred = np.ones(self.size, bool)
        """The threads that a seed lets go first."""

    def _slots(self, threads: int, shared_bytes: int) -> int:
        room = min(BATCH_THREADS // threads, BATCH_BYTES // max(shared_bytes, 1), prod(self.grid))
        return max(1, room // self.cluster) * self.cluster

    def _number(self, threads: int) -> None:
        lanes = np.arange(self.size)
        self.thread_index = lanes % threads
        """The number of each thread in its block."""
        self.slot = lanes // threads
        """The number of its block in the batch."""
        self.rank = (self.slot % self.cluster).astype(np.uint32)
        """The rank of its block in the cluster."""
        self.window = window_of(self.rank)
        """The shared address at which the window of its block begins."""
        per_block = -(-threads // WARP)
        self.warp = self.slot * per_block + self.thread_index // WARP
        """The number of its warp in the batch."""
        self.warps = self.slots * per_block
        self.warp_size = np.bincount(self.warp, minlength=self.warps)
        """Threads of each warp."""
        self.lane_bit = np.int64(1) << self.thread_index % WARP
        """The bit of each thread in a mask of its warp."""
        self.living = np.zeros(self.warps, np.int64)
        """The threads of each warp that have not ended, as a mask."""

    # -- what steps ask for --------------------------------------------------------------------

    def stir(self) -> None:
        """Something has changed: threads that are asleep try again."""
        asleep = self.state == ASLEEP
        if asleep.any():
            self.state[asleep] = GOING
            self.stirred = True

    def sleep(self, lanes: Lanes, index: int) -> None:
        self.pc[lanes] = self.waits_at[lanes] = index
        self.state[lanes] = ASLEEP

    def suspend(self, lanes: Lanes, index: int) -> None:
        self.pc[lanes], self.waits_at[lanes] = index + 1, index
        self.state[lanes] = WAITING

    def release(self, lanes: Lanes) -> None:
        """Threads that waited behind an instruction go on."""
        self.state[lanes] = GOING
        self.stirred = True

    def await_others(self, lanes: Lanes, index: int) -> None:
        self.pc[lanes] = self.waits_at[lanes] = index
        self.state[lanes] = AWAITING

    def exit(self, lanes: Lanes) -> None:
        """Threads end: nobody waits for them any more."""
        self.state[lanes] = EXITED
        np.bitwise_and.at(self.living, self.warp[lanes], ~self.lane_bit[lanes])
        self.state[self.state == AWAITING] = GOING
        self.stirred = True
        for each in self.leaving:
            each()

    @property
    def has_ended(self) -> Array:
        """Of each thread of the batch."""
        return self.state == EXITED
