"""Operands of products of warpgroups: registers and shared memory of the warps of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.hopper import wgmma_layouts
from treadle.runtime.ptx.hopper.wgmma_products import Product, Sums, matrix, values
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.machine.windows import SYSTEM_BYTES
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine

WARP_ROWS = 16
"""Of a warp, among the 64 of its warpgroup."""

POISON = np.uint32(0x7FC0DEAD)
"""The bits of a NaN; of integers a sum that hardly any product has."""


@dataclass(eq=False)
class Accumulators:
    """The registers that products of one shape add to: of each an element for each thread of the batch."""

    names: tuple[str, ...]
    views: list[Sums]

    @property
    def columns(self) -> int:
        return len(self.views) * 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.views[0].dtype

    def read(self, threads: Threads) -> Array:
        """As rows of a matrix, (warps, 16, columns)."""
        rows, columns = wgmma_layouts.accumulators(self.columns)
        result = np.empty((threads.count // WARP, WARP_ROWS, self.columns), self.dtype)
        held = np.stack([view[threads.select] for view in self.views], axis=1)
        result[:, rows[:WARP], columns[:WARP]] = held.reshape(-1, WARP, len(self.views))
        return result

    def write(self, threads: Threads, matrix: Array) -> None:
        rows, columns = wgmma_layouts.accumulators(self.columns)
        held = matrix[:, rows[:WARP], columns[:WARP]].reshape(-1, len(self.views))
        for i, view in enumerate(self.views):
            view[threads.select] = held[:, i]

    def poison(self, threads: Threads) -> None:
        for view in self.views:
            view.view(np.uint32)[threads.select] = POISON


@dataclass(eq=False)
class InRegisters:
    """A held by the threads: four registers of 32 bits."""

    product: Product
    views: list[NDArray[np.uint32]]

    def read(self, machine: Machine, warps: Array) -> Array:
        """The rows of these warps, (warps, 16, depth)."""
        threads = threads_of(machine, warps)
        rows, columns = wgmma_layouts.left_operand(self.product.element_bytes)
        words = np.stack([view[threads.select] for view in self.views], axis=1)
        bits = words.view(f"u{self.product.element_bytes}").reshape(len(warps), WARP, -1)
        result = np.empty((len(warps), WARP_ROWS, self.product.depth), np.float64)
        result[:, rows[:WARP], columns[:WARP]] = values(bits, self.product.left)
        return result


@dataclass(eq=False)
class InShared:
    """A in shared memory, by the descriptor that each warp of the batch gave."""

    product: Product
    descriptors: NDArray[np.uint64]

    def read(self, machine: Machine, warps: Array) -> Array:
        result = np.empty((len(warps), WARP_ROWS, self.product.depth), np.float64)
        for slot, descriptor, which in by_descriptor(machine, warps, self.descriptors):
            whole = in_shared(machine, slot, descriptor, wgmma_layouts.ROWS, self.product, is_left=True)
            in_group = machine.thread_index[first_lanes(machine, warps[which])] // WARP % 4
            result[which] = whole.reshape(4, WARP_ROWS, -1)[in_group]
        return result


def threads_of(machine: Machine, warps: Array) -> Threads:
    """The threads of whole warps, which ascend."""
    return Threads(machine, (first_lanes(machine, warps)[:, None] + np.arange(WARP)).ravel())


def first_lanes(machine: Machine, warps: Array) -> Array:
    """The first thread in the batch of each warp."""
    return np.searchsorted(machine.warp, warps)


def by_descriptor(machine: Machine, warps: Array, descriptors: Array) -> list[tuple[int, int, Array]]:
    """The warps of one block that gave the same descriptor: block, descriptor, and which of the warps."""
    slots, given = machine.slot[first_lanes(machine, warps)], descriptors[warps]
    pairs = sorted(set(zip(slots.tolist(), given.tolist(), strict=True)))
    return [(slot, each, (slots == slot) & (given == each)) for slot, each in pairs]


def in_shared(machine: Machine, slot: int, descriptor: int, lines: int, product: Product, *, is_left: bool) -> Array:
    """An operand in the shared memory of a block (`wgmma_products.matrix`)."""
    usable = range(SYSTEM_BYTES, SYSTEM_BYTES + machine.shared.nbytes)
    return matrix(machine.blocks[slot].shared, descriptor, lines, product, usable, is_left=is_left)
