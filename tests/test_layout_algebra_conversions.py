"""Conversions between fragments: every plan, executed on numpy, moves every element to where it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from treadle.compiler.layouts import LayoutError, fragment, plan_conversion
from treadle.compiler.layouts.conversions import Conversion, packing
from treadle.compiler.layouts.exchange import plan_exchange
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode, accumulator, row_operand


def filled(layout: LayoutAttr) -> NDArray[np.int64]:
    """A fragment that holds, of each element, its own number: [warp, lane, register]."""
    map = fragment(layout)
    values = np.zeros((map.size("warp"), LANES, map.size("register")), np.int64)
    for at, coordinates in map.everywhere():
        number = sum(coordinates.get(axis, 0) * 1000**i for i, axis in enumerate("qxd"))
        values[at["warp"], at["lane"], at["register"]] = number
    return values


def check(source: LayoutAttr, target: LayoutAttr, element_bytes: int = 4) -> Conversion:
    plan = plan_conversion(source, target, element_bytes)
    np.testing.assert_array_equal(np.array(plan.run(filled(source))), filled(target))
    assert all(plan.cost.total <= cost.total for _, cost in plan.others)
    return plan


ACCUMULATOR = accumulator("q", "x", 1, 8, (4, 1))
BY_ROWS = LayoutAttr([Mode("q", 4, 4), Mode("x", 8, 1)], [Mode("q", 4, 1), Mode("x", 8, 8)], [Mode("q", 4, 16)])


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_nothing_moves(element_bytes: int) -> None:
    assert check(ACCUMULATOR, ACCUMULATOR, element_bytes).way == "same"
    operand = row_operand("q", "x", 1, 4, [Mode("q", 4, 16)])
    plan = check(ACCUMULATOR, operand, element_bytes)
    assert (plan.way, plan.cost.total) == ("same", 0)  # the next product's left operand, as it lies


def test_registers_change_names() -> None:
    other = LayoutAttr([Mode("q", 2, 8), Mode("x", 2, 1), Mode("x", 8, 8)], ACCUMULATOR.lane, ACCUMULATOR.warp)
    plan = check(ACCUMULATOR, other)
    assert (plan.way, plan.cost.total) == ("registers", 0)
    assert sorted(plan.permutation) == list(range(32))
    assert plan.permutation[:4] == (0, 4, 8, 12)


def test_few_elements_are_shuffled() -> None:
    """A column of row maxima, two a thread, from rows 8 apart to rows next to each other."""
    source = ACCUMULATOR.slice(["q"])
    target = LayoutAttr([Mode("q", 2, 1)], [Mode("q", 8, 2), Mode("", 4, 0)], [Mode("q", 4, 16)])
    plan = check(source, target)
    assert plan.way == "shuffle"
    assert plan.exchange is not None
    assert len(plan.exchange.rounds) == 2


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_a_tile_goes_through_shared_memory(element_bytes: int) -> None:
    """An accumulator for stores of whole rows: fewer instructions than shuffles, and each warp on its own."""
    plan = check(ACCUMULATOR, BY_ROWS, element_bytes)
    assert plan.way == "shared"
    assert plan.staging is not None
    assert plan.staging.within_warp
    assert (plan.staging.write.width, plan.staging.read.width) == (2, 16 // element_bytes if element_bytes == 2 else 4)
    assert dict(plan.others)["shuffle"].total > plan.cost.total


def test_other_warps_are_reached_through_shared_memory_only() -> None:
    target = LayoutAttr([Mode("q", 4, 16), Mode("x", 8, 1)], BY_ROWS.lane, [Mode("q", 4, 4)])
    plan = check(ACCUMULATOR, target)
    assert plan.way == "shared"
    assert plan.staging is not None
    assert not plan.staging.within_warp
    assert all(way == "shared" for way, _ in plan.others)


def test_copies_are_written_once() -> None:
    source = ACCUMULATOR.slice(["x"])
    target = LayoutAttr([], [Mode("x", 32, 1)], [Mode("x", 2, 32), Mode("", 2, 0)])
    plan = check(source, target)
    assert plan.staging is not None
    assert plan.staging.write.once


def test_what_is_no_conversion() -> None:
    with pytest.raises(LayoutError, match="different tiles"):
        plan_conversion(ACCUMULATOR, accumulator("q", "x", 1, 4, (4, 1)), 4)
    with pytest.raises(LayoutError, match="4 and 2 warps"):
        plan_conversion(ACCUMULATOR, accumulator("q", "x", 2, 8, (2, 1)), 4)
    with pytest.raises(LayoutError, match="held nowhere"):
        plan_conversion(LayoutAttr([], [Mode("q", 32, 2)], []), LayoutAttr([], [Mode("q", 32, 2)], []), 4)


@st.composite
def pairs_of_layouts(draw: st.DrawFn) -> tuple[LayoutAttr, LayoutAttr]:
    """Two layouts of one tile: the same digits, five of two values for the lanes, dealt twice."""
    strides, digits = {"q": 1, "x": 1}, list[Mode]()
    for size in draw(st.permutations([2] * draw(st.integers(5, 9)) + draw(st.sampled_from([[], [3]])))):
        axis = draw(st.sampled_from("qx"))
        digits.append(Mode(axis, size, strides[axis]))
        strides[axis] *= size
    twos, others = ([mode for mode in digits if (mode.size == 2) == even] for even in (True, False))
    warps = draw(st.integers(0, min(2, len(twos) - 5)))

    def dealt() -> LayoutAttr:
        lane_and_warp = draw(st.permutations(twos))
        register = draw(st.permutations([*lane_and_warp[5 + warps :], *others]))
        return LayoutAttr(register, lane_and_warp[:5], lane_and_warp[5 : 5 + warps])

    return dealt(), dealt()


@given(pairs_of_layouts(), st.sampled_from([2, 4]))
@settings(deadline=None, max_examples=80)
def test_random_conversions(layouts: tuple[LayoutAttr, LayoutAttr], element_bytes: int) -> None:
    check(*layouts, element_bytes)


@given(pairs_of_layouts())
@settings(deadline=None, max_examples=40)
def test_random_exchanges(layouts: tuple[LayoutAttr, LayoutAttr]) -> None:
    """The same within one warp, by shuffles alone, whatever they cost."""
    source, target = (LayoutAttr((*layout.register, *layout.warp), layout.lane, ()) for layout in layouts)
    exchange = plan_exchange(fragment(source), fragment(target))
    np.testing.assert_array_equal(np.array(exchange.run(filled(source)[0])), filled(target)[0])
    assert len(exchange.rounds) == exchange.moved


@given(st.permutations([0, 1, 2, 3, 4, 5, 6, 7]), st.permutations([0, 1, 2, 3, 4, 5, 6, 7]))
@settings(deadline=None, max_examples=60)
def test_an_exchange_takes_as_many_rounds_as_the_busiest_lane(left: list[int], right: list[int]) -> None:
    """Any two orders of the bits of register (3) and lane (5): as many shuffles as one lane must take."""

    def layout(order: list[int]) -> LayoutAttr:
        modes = [Mode("q", 2, 1 << bit) for bit in order]
        return LayoutAttr(modes[:3], modes[3:], [])

    source, target = layout(left), layout(right)
    exchange = plan_exchange(fragment(source), fragment(target))
    values = filled(source)
    np.testing.assert_array_equal(np.array(exchange.run(values[0])), filled(target)[0])
    takes = [0] * LANES
    for round in exchange.rounds:
        assert len({edge.target for edge in round.edges}) == len(round.edges)
        assert len({edge.source for edge in round.edges}) == len({(e.source, e.sends) for e in round.edges})
        for edge in round.edges:
            assert edge.source != edge.target
            takes[edge.target] += 1
    assert len(exchange.rounds) == max(takes)


def test_pairs_travel_together() -> None:
    source = LayoutAttr([Mode("x", 2, 1)], [Mode("q", 8, 1), Mode("x", 4, 2)], [])
    target = LayoutAttr([Mode("x", 2, 1)], [Mode("x", 4, 2), Mode("q", 8, 1)], [])
    assert packing(fragment(source), fragment(target), 2) == 2
    assert packing(fragment(source), fragment(target), 4) == 1
    plan: Any = check(source, target, 2)
    assert plan.way == "shuffle"
    assert plan.cost.wavefronts == 1
