"""Products of warpgroups in flight: issued, not yet delivered (PTX ISA 9.7.15.5 and 9.7.15.7).

A product is one operation of the four warps of a warpgroup: it is complete for none of them before all have issued it,
so that who has waited may say for all four that operands are no longer read.

An accumulator is poison from the issue of its first product until its group is waited for, and only then are the
operands read: the latest that the ISA allows, so that an operand that is overwritten too early, or a result that is
used without a wait, makes a wrong number. A seed has operands read when their group is committed, now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.hopper.wgmma_operands import (
    WARP_ROWS,
    Accumulators,
    InRegisters,
    InShared,
    by_descriptor,
    first_lanes,
    in_shared,
    threads_of,
)
from treadle.runtime.ptx.hopper.wgmma_products import Product
from treadle.runtime.ptx.machine.threads import WARP
from treadle.runtime.ptx.machine.topics import blamed
from treadle.runtime.ptx.text.instruction import Instruction
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine

NONE = -1
"""The group of a warp that has no part in a product, or whose part is done."""


@dataclass(eq=False)
class Issue:
    """One product; arrays have an element for each warp of the batch."""

    instruction: Instruction
    product: Product
    accumulators: Accumulators
    left: InRegisters | InShared
    right: Array
    """Descriptors."""
    adds: Array
    """Whether it adds to what the accumulators hold."""
    group: Array


class Queue:
    """All products in flight of a batch of blocks, oldest first."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.issues: list[Issue] = []
        self.closed = np.zeros(machine.warps, np.int64)
        """Groups that each warp has committed."""
        first = first_lanes(machine, np.arange(machine.warps))
        self._warpgroup = machine.slot[first] * machine.warps + machine.thread_index[first] // (4 * WARP)
        """Of each warp, a number that those of one warpgroup have alike."""
        self._sleepers = False
        self.fenced = np.zeros(machine.warps, bool)
        self._held: dict[tuple[str, ...], Array] = {}
        """By the names of accumulators, sums so far of what is in flight: rows of each warp of the batch."""
        self._known: dict[tuple[str, ...], Accumulators] = {}
        self._newest: dict[tuple[str, ...], Array] = {}
        """The group of the newest product in flight to them, of each warp of the batch."""

    def issue(self, warps: Array, issue: Issue) -> None:
        """Start a product. What its accumulators held is put aside and poisoned, unless that has been done."""
        self._check(warps, self.fenced[warps], "a product without wgmma.fence since the last wait")
        mates = self._warpgroup[warps][:, None] == self._warpgroup[None, :]
        self._check(warps, mates.sum(axis=1) == 4, "a product of a warpgroup that has not four warps")
        accumulators = issue.accumulators
        newest = self._begin(accumulators)
        self._check_shapes(warps, accumulators.names)
        if (new := warps[newest[warps] == NONE]).size:
            threads = threads_of(self.machine, new)
            self._held[accumulators.names][new] = accumulators.read(threads)
            accumulators.poison(threads)
        newest[warps] = issue.group[warps] = self.closed[warps]
        self.issues.append(issue)

    def _begin(self, accumulators: Accumulators) -> Array:
        """The newest group of these accumulators, which may be used for the first time."""
        names, warps = accumulators.names, self.machine.warps
        if names not in self._known:
            self._known[names] = accumulators
            self._newest[names] = np.full(warps, NONE)
            self._held[names] = np.zeros((warps, WARP_ROWS, accumulators.columns), accumulators.dtype)
        return self._newest[names]

    def commit(self, warps: Array) -> None:
        self.closed[warps] += 1
        if self._sleepers:
            self._sleepers = False
            self.machine.stir()
        if self.machine.random is not None and self.machine.random.random() < 0.5:
            self._multiply_until(np.where(np.isin(np.arange(self.machine.warps), warps), self.closed, NONE))

    def can_wait(self, warps: Array, pending: int) -> Array:
        """Of which of these warps all of the warpgroup have committed what is waited for; the others sleep."""
        alike = self._warpgroup[warps][:, None] == self._warpgroup[None, :]
        slowest = np.where(alike, self.closed[None, :], np.iinfo(np.int64).max).min(axis=1)
        ready = slowest >= self.closed[warps] - pending
        self._sleepers |= not ready.all()
        return ready

    def wait(self, warps: Array, pending: int) -> None:
        """Deliver all groups of these warps but so many of the newest. They are done for the whole warpgroup."""
        mates = np.flatnonzero(np.isin(self._warpgroup, self._warpgroup[warps]))
        until = np.full(self.machine.warps, NONE)
        until[warps] = self.closed[warps] - pending
        of_group = np.where(self._warpgroup[mates][:, None] == self._warpgroup[None, :], until[None, :], NONE)
        until[mates] = of_group.max(axis=1)
        self._multiply_until(until)
        for names, newest in self._newest.items():
            done = (newest[warps] != NONE) & (newest[warps] < self.closed[warps] - pending)
            if (ready := warps[done]).size:
                self._known[names].write(threads_of(self.machine, ready), self._held[names][ready])
                newest[ready] = NONE
        self.fenced[warps] = False

    def _multiply_until(self, until: Array) -> None:
        """Do all products of each warp of the batch that are in groups before a number."""
        for issue in self.issues:
            if (ready := np.flatnonzero((issue.group != NONE) & (issue.group < until))).size:
                self._multiply(issue, ready)
        self.issues = [each for each in self.issues if (each.group != NONE).any()]

    def _multiply(self, issue: Issue, ready: Array) -> None:
        machine, product = self.machine, issue.product
        held = self._held[issue.accumulators.names]
        with blamed(machine, issue.instruction, first_lanes(machine, ready)[0]):
            left = issue.left.read(machine, ready)
            for slot, descriptor, which in by_descriptor(machine, ready, issue.right):
                right = in_shared(machine, slot, descriptor, product.columns, product, is_left=False)
                sums = np.where(issue.adds[ready[which], None, None], held[ready[which]], held.dtype.type(0))
                made = product.of(left[which].reshape(-1, product.depth), right, sums.reshape(-1, product.columns))
                held[ready[which]] = made.reshape(sums.shape)
        issue.group[ready] = NONE

    def _check_shapes(self, warps: Array, names: tuple[str, ...]) -> None:
        """Products in flight to the same registers must be of one shape, and hold them alike."""
        for other, newest in self._newest.items():
            flying = newest[warps] != NONE
            if other != names and flying.any() and not set(other).isdisjoint(names):
                self._check(warps, ~flying, "accumulators that a product of another shape in flight has, too")

    def _check(self, warps: Array, good: Array, message: str) -> None:
        if not good.all():
            raise PtxFault(message, int(first_lanes(self.machine, warps[~good])[0]))
