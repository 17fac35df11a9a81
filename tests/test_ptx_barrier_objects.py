"""Mbarriers and pools of registers, by the rules of the PTX ISA."""

from __future__ import annotations

import pytest

from treadle.runtime.ptx.hopper.mbarrier_objects import MOST, Mbarrier, MbarrierFault
from treadle.runtime.ptx.instructions.register_pools import RegisterFault, RegisterPool, cap


def test_a_phase_completes_with_its_last_arrival() -> None:
    barrier = Mbarrier.init(2)
    assert barrier.has_completed(1), "the phase before the first one"
    barrier = barrier.arrive()
    assert not barrier.has_completed(0)
    barrier = barrier.arrive()
    assert barrier.has_completed(0)
    assert not barrier.has_completed(1)
    assert barrier == Mbarrier(2, 2, 0, 1), "the next phase waits for as many"


def test_a_phase_waits_for_bytes_too() -> None:
    barrier = Mbarrier.init(1).expect(4096).arrive()
    assert not barrier.has_completed(0)
    barrier = barrier.complete(4000)
    assert not barrier.has_completed(0)
    assert barrier.complete(96).has_completed(0)


def test_bytes_may_come_before_they_are_expected() -> None:
    """A copy that is faster than the arrival that announces it: the count is negative for a while."""
    barrier = Mbarrier.init(1).complete(64)
    assert barrier.transactions == -64
    assert barrier.expect(64).arrive().has_completed(0)


def test_bytes_alone_complete_nothing() -> None:
    assert not Mbarrier.init(1).expect(64).complete(64).has_completed(0)


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_counts_of_arrivals(count: int) -> None:
    with pytest.raises(MbarrierFault):
        Mbarrier.init(count)


def test_the_pending_count_does_not_underflow() -> None:
    """The last arrival that a phase waits for comes while its bytes do not: another one is a mistake."""
    with pytest.raises(MbarrierFault, match="underflows"):
        Mbarrier.init(1).expect(64).arrive().arrive()


def test_the_count_of_transactions_has_a_range() -> None:
    barrier = Mbarrier.init(1).expect(MOST)
    with pytest.raises(MbarrierFault):
        barrier.expect(1)


def test_what_stands_in_memory_tells_states_apart() -> None:
    states = [Mbarrier.init(2), Mbarrier.init(2).arrive(), Mbarrier.init(2).expect(16), Mbarrier.init(3)]
    states += [Mbarrier.init(2).arrive().arrive()]
    assert len({each.packed() for each in states}) == len(states)
    assert all(0 <= each.packed() < 1 << 64 for each in states)


def test_registers_that_one_warp_gives_another_takes() -> None:
    pool = RegisterPool(12, cap(384, 1))
    assert pool.owned(0) == 168
    assert not pool.take(0, 240)
    for warp in range(4):
        pool.give(8 + warp, 24)
    assert all(pool.take(warp, 240) for warp in range(8))
    assert not pool.take(0, 248), "3 x 168 - 24 - 2 x 240 are none"


def test_registers_come_in_eights_and_in_one_direction() -> None:
    pool = RegisterPool(4, 128)
    for count in (16, 100, 264):
        with pytest.raises(RegisterFault):
            pool.give(0, count)
    with pytest.raises(RegisterFault):
        pool.give(0, 136)
    with pytest.raises(RegisterFault):
        pool.take(0, 120)
