"""The object that mbarrier instructions work on, without any machine (PTX ISA 9.7.13.15.1 to 9.7.13.15.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from treadle.runtime.ptx.errors import PtxFault

MOST = 2**20 - 1
"""Of arrivals, expected or pending, and of transactions in either direction (contents of the mbarrier object)."""

BYTES = 8
"""Its size and alignment."""


class MbarrierFault(PtxFault):
    """What the ISA leaves undefined."""


@dataclass(frozen=True)
class Mbarrier:
    """Its contents: the arrivals that each phase waits for, those still to come, the transactions of asynchronous
    copies still to come, and how many phases have completed (a device keeps only whether that is odd)."""

    expected: int
    pending: int
    transactions: int = 0
    phase: int = 0

    @classmethod
    def init(cls, count: int) -> Self:
        """mbarrier.init: phase 0 waits for so many arrivals."""
        if not 1 <= count <= MOST:
            raise MbarrierFault(f"a count of {count}: an mbarrier waits for 1 to {MOST} arrivals")
        return cls(count, count)

    def expect(self, count: int) -> Mbarrier:
        """expect-tx: the phase waits for so many transactions, here bytes, more."""
        return self._with(self.pending, self.transactions + count)

    def complete(self, count: int) -> Mbarrier:
        """complete-tx: so many have been done. The phase may complete by it."""
        return self._with(self.pending, self.transactions - count)._after_arrival()

    def arrive(self, count: int = 1) -> Mbarrier:
        """arrive-on: so many arrivals. The phase may complete by it."""
        if count > self.pending:
            raise MbarrierFault(
                f"{count} arrivals where the phase waits for {self.pending} of {self.expected}: the count underflows"
            )
        return self._with(self.pending - count, self.transactions)._after_arrival()

    def has_completed(self, parity: int) -> bool:
        """test_wait.parity and try_wait.parity: whether the phase of this parity, the current one or the one before,
        has completed. The phase before the first one has parity 1 and counts as completed."""
        return self.phase % 2 != parity

    def packed(self) -> int:
        """The contents as 64 bits that stand in memory; a device's are opaque."""
        return self.phase % 2 << 63 | (self.transactions + MOST) << 40 | self.pending << 20 | self.expected

    def _with(self, pending: int, transactions: int) -> Mbarrier:
        if not -MOST <= transactions <= MOST:
            raise MbarrierFault(f"{transactions} transactions pending: the count takes {-MOST} to {MOST}")
        return Mbarrier(self.expected, pending, transactions, self.phase)

    def _after_arrival(self) -> Mbarrier:
        """The phase completes when nothing is pending, and the next one begins."""
        if self.pending or self.transactions:
            return self
        return Mbarrier(self.expected, self.expected, 0, self.phase + 1)
