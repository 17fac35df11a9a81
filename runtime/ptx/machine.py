"""Runs an entry on a grid: blocks in batches, all threads of a batch at once where they stand together.

Threads are scheduled by their program counters: those that stand at the smallest one go on, up to where others stand,
so that what diverged meets again. What a thread waits for is its state:

    GOING     it can go on
    AWAITING  at an instruction that whole warps execute together, until the others come
    ASLEEP    before an instruction that cannot be done yet (`try_wait`), tried again when something changes
    WAITING   behind an instruction that has counted it (`bar.sync`), until it is released
    EXITED

Asynchronous operations wait in `later` and are done as late as they may be: when no thread can go on (another seed
draws the moments, and which warps go first).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from treadle.runtime.ptx.blocks import Block
from treadle.runtime.ptx.deadlock import deadlock, where
from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.layout import lay_out
from treadle.runtime.ptx.meanings import MOVED
from treadle.runtime.ptx.memory import GlobalMemory
from treadle.runtime.ptx.module import Entry
from treadle.runtime.ptx.program import Program
from treadle.runtime.ptx.special import SPECIAL, Triple
from treadle.runtime.ptx.threads import WARP, Lanes, Threads
from treadle.runtime.ptx.types import Array
from treadle.runtime.ptx.windows import LocalMemory, ParameterMemory, SharedMemory, window_of

GOING, AWAITING, ASLEEP, WAITING, EXITED = range(5)

BATCH_THREADS = 4096
"""Threads that run at once: fewer make numpy's calls dear, more do not fit its caches."""

BATCH_BYTES = 1 << 26
"""Shared memory of the blocks that run at once."""

FAR = np.iinfo(np.int64).max


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
        maps: dict[int, Any] | None = None,
        addresses: Mapping[str, int] | None = None,
    ) -> None:
        self.entry, self.grid, self.block, self.cluster = entry, grid, block, cluster
        self.memory = memory
        self.shared_bytes = shared_bytes
        self.parameters = ParameterMemory(parameters)
        self.maps = maps or {}
        """Tensor maps, by their offsets among the parameters."""
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
        self.kept: dict[str, Any] = {}
        """What topics keep for the blocks of a batch, by their names; empty when a batch begins."""
        self.leaving: list[Callable[[], None]] = []
        """Called when threads have ended, in a batch."""
        self.stirred = False
        """Whether threads may go on that could not when those that run now were chosen."""
        self._special: dict[str, Array] = {}
        self.block_index = np.zeros(self.size, np.int64)
        """The number of the block of each thread in the grid."""
        self.preferred = np.ones(self.size, bool)
        """The threads that a seed lets go first."""
        self.program = Program(self, entry.body.instructions, entry.body.registers)

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

    def special(self, name: str) -> Array:
        """A special register of all threads, in 32 bits."""
        if name not in self._special:
            self._special[name] = SPECIAL[name](self).astype(np.uint32)
        return self._special[name]

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

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """All blocks of the grid (PtxFault)."""
        count = prod(self.grid)
        for first in range(0, count, self.slots):
            self._begin(first, min(self.slots, count - first))
            self._run_batch()
            while self.later:
                self.later.popleft()()

    def _begin(self, first: int, blocks: int) -> None:
        self.pc.fill(0)
        self.state.fill(GOING)
        self.state[self.slot >= blocks] = EXITED
        self.block_index[:] = first + np.minimum(self.slot, blocks - 1)
        self.shared.clear()
        self.program.poison()
        for name, held in self._special.items():
            held[:] = SPECIAL[name](self)
        lanes, stride, threads = np.arange(self.size), self.shared.stride, self.size // self.slots
        self.blocks = [
            Block(
                index=self._index(first + slot),
                slot=slot,
                rank=slot % self.cluster,
                lanes=lanes[slot * threads : (slot + 1) * threads],
                window=int(self.window[slot * threads]),
                shared=self.shared.bytes[slot * stride : (slot + 1) * stride],
            )
            for slot in range(blocks)
        ]
        self.kept.clear()
        self.leaving.clear()
        self.living.fill(0)
        here = self.slot < blocks
        np.bitwise_or.at(self.living, self.warp[here], self.lane_bit[here])

    def _index(self, number: int) -> Triple:
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def _run_batch(self) -> None:
        while (self.state != EXITED).any():
            if not (self.state == GOING).any():
                if not self.later:
                    raise deadlock(self)
                self.later.popleft()()
                self.stir()
                continue
            if self.random is not None:
                self._draw()
            self._run_some()

    def _draw(self) -> None:
        """What a seed decides: whether something asynchronous is done now, and which warps go first."""
        assert self.random is not None
        if self.later and self.random.random() < 0.2:
            self.later.popleft()()
            self.stir()
        if self.random.random() < 0.1 or not (self.preferred & (self.state == GOING)).any():
            self.preferred = (self.random.random(self.warps) < 0.5)[self.warp]

    def _run_some(self) -> None:
        """The threads that stand at the smallest program counter, up to where others stand."""
        going = self.state == GOING
        if self.random is not None and (going & self.preferred).any():
            going &= self.preferred
        index = int(self.pc[going].min())
        awake = self.state <= AWAITING
        here = awake & (self.pc == index)
        if self.random is not None:
            here &= going | (self.state == AWAITING)
        lanes = np.flatnonzero(here)
        others = self.pc[awake & ~here]
        ahead = others[others > index]
        self.state[lanes] = GOING
        stop = int(ahead.min()) if ahead.size else FAR
        self._go(Threads(self, lanes), index, stop, alone=not others.size)

    def _go(self, threads: Threads, index: int, stop: int, alone: bool) -> None:
        steps = self.program.steps
        self.stirred = False
        try:
            while index < stop:
                outcome = steps[index](threads)
                if outcome is None:
                    index += 1
                    if self.stirred:
                        break
                elif outcome == MOVED:
                    return
                else:
                    index = outcome
                    if not alone or self.stirred:
                        break
        except PtxFault as fault:
            raise fault.at(where(self, index, fault.lane)) from None
        self.pc[threads.select] = index


def run_entry(
    entry: Entry,
    memory: GlobalMemory,
    parameters: bytes,
    grid: Triple,
    block: Triple,
    shared_bytes: int,
    **options: Any,
) -> Machine:
    """A launch from beginning to end."""
    machine = Machine(entry, memory, parameters, grid, block, shared_bytes, **options)
    machine.run()
    return machine


__all__: Sequence[str] = ["Machine", "run_entry"]
