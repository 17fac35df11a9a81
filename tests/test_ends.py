"""What blocks begin and end with: counted with the rates that last, and not when sizes are chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_overlap_pieces import decorated

from benchmarking import benchmark
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.timing import time
from treadle.compiler.cost.timing.between import (
    TESTED,
    Piece,
    clocks_of_ends,
    exposed,
    exposed_loops,
    has_rest,
    mean_drains,
    slots_of_tests,
    waits_for_tiles,
)
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.machines import load_machine
from treadle.dialects.hierarchy import KernelOp

programs = benchmark("programs")
H100 = load_machine("h100")
FAST_L2 = replace(H100.levels["l2"], bandwidth=1e14)
"""So that processors are what is waited for."""
LASTING = replace(H100.as_sustained(), levels={**H100.as_sustained().levels, "l2": FAST_L2})
WITHOUT = replace(LASTING, counts_ends=False)
SQUARE = dict.fromkeys("mnk", 4096)
HEADS = {"b": 2, "h": 3, "q": 2048, "x": 2048, "d": 64, "e": 64}


def plan(text: str) -> Plan:
    found = decorated(text)
    assert isinstance(found, KernelOp)
    return plan_of(found)


def product() -> Plan:
    return plan(programs.matmul(SQUARE))


def layer() -> Plan:
    return plan(programs.example("matmul_epilogue", dict.fromkeys("tio", 4096)))


def attention() -> Plan:
    return plan(programs.attention(64, {axis: HEADS[axis] for axis in "bhqx"}))


def clocks(found: Plan, sizes: dict[str, int], in_turns: bool) -> float:
    """That ends take of a launch."""
    times = [time.timing(found, machine, sizes, Made(in_turns)).time_us for machine in (LASTING, WITHOUT)]
    return float(times[0] - times[1]) * LASTING.clock / 1e6


def test_ends_are_of_the_rates_that_last() -> None:
    assert not H100.counts_ends
    assert LASTING.counts_ends


def test_pieces_beside_others() -> None:
    """Without scores all warpgroups are behind their products at a time; with scores, as `alone` says, of pieces that
    follow no other, and of those whose warpgroups wait together for what they hold. A last, smaller step is begun and
    ended like a piece, but that nothing is computed behind it."""
    none, scores = Piece(2, 4 * 600, 0, 4, 0, 70, has_scores=False), Piece(2, 4 * 600, 4 * 400, 4, 0.5, 70)
    assert (none.alone(), none.ends(), none.ragged()) == (0, 70, 0)
    assert scores.ends() == scores.alone() == scores.ragged() + 70
    assert exposed(product(), H100, none, True) == 0
    assert exposed(product(), LASTING, none, True) == 70
    holds = attention()
    assert exposed(holds, H100, scores, True) == 0
    assert exposed(holds, LASTING, scores, True) == exposed(holds, H100, scores, False) == scores.alone()
    assert exposed(holds, LASTING, scores, True, twice=True) == 0
    holds_nothing = replace(holds, tiles=tuple(tile for tile in holds.tiles if tile.role != "shared"))
    assert exposed(holds_nothing, LASTING, scores, True) == 0


def test_what_pieces_hold_comes_from_device_memory_for_all_at_a_time() -> None:
    """Queries of heads of 64: by the port of a processor it would take less than what hides it."""
    found, piece = attention(), Piece(3, 20 * 600, 20 * 800, 20, 0.5, 300)
    assert waits_for_tiles(found, H100, piece, True) == 0
    of_one = LASTING.bytes_per_clock("device") / LASTING.sms
    assert of_one < 64
    assert waits_for_tiles(found, LASTING, piece, True) == pytest.approx(found.groups[-1].size * 64 * 2 / of_one)
    assert waits_for_tiles(found, LASTING, piece, True, twice=True) == 0
    assert waits_for_tiles(product(), LASTING, piece, True) == 0


def test_turns_that_take_no_powers_first_have_no_products_beside_them() -> None:
    """Those of tiles that conditions cut: a causal kernel has one of them for each piece that has whole ones, too."""
    causal = plan(programs.attention(64, {axis: HEADS[axis] for axis in "bhqx"}, example="attention_causal"))
    piece = Piece(3, 20 * 600, 20 * 800, 20, 0.5, 300)
    loops = mean_drains(causal, HEADS) + has_rest(causal, HEADS)
    assert loops > 0.9
    lost = exposed_loops(causal, LASTING, HEADS, piece, 50, powers_first=True)
    assert lost == pytest.approx(loops * (piece.ragged() + 50 + slots_of_tests(causal)))
    begun = exposed_loops(causal, LASTING, HEADS, piece, 50, powers_first=True, tested_first=True)
    assert lost - begun == pytest.approx(mean_drains(causal, HEADS) * (piece.ragged() + 50))
    assert exposed_loops(causal, LASTING, HEADS, piece, 50, powers_first=False) == 0
    assert exposed_loops(causal, H100, HEADS, piece, 50, powers_first=True) == 0


def test_products_run_on_where_powers_come_first() -> None:
    """Only at the rates that last: sizes are chosen as before."""
    found = attention()
    first, last = Made(True), Made(True, powers_first=False)
    for machine, least in ((H100, 0), (LASTING, 0.02)):
        times = [float(time.timing(found, machine, HEADS, made).time_us) for made in (first, last)]
        assert times[1] > times[0] * (1 + least)


def test_tiles_come_and_results_leave_through_the_port() -> None:
    """Of a product of 128 x 256, in steps of 64: beside the latency of what describes the tensors."""
    found = product()
    assert {pieces.axis: pieces.size for pieces in (*found.groups, *found.streams)} == {"m": 128, "n": 256, "k": 64}
    tiles = 2 * (128 * 64 + 128 * 256)
    assert clocks_of_ends(found, LASTING) == LASTING.levels["device"].latency + tiles / 64


def test_what_blocks_hold_comes_for_all_of_them_at_a_time() -> None:
    """128 rows of 64: at a processor's part of what device memory passes on, not as fast as the port of one."""
    found = attention()
    rows = {pieces.axis: pieces.size for pieces in found.groups}["q"]
    (keys,) = (pieces.size for pieces in found.streams)
    port = 2 * 64 * (keys + rows) / 64
    part = LASTING.levels["device"].bandwidth / LASTING.clock / LASTING.sms
    assert part < 64
    held = 2 * 64 * rows / part
    assert clocks_of_ends(found, LASTING) == pytest.approx(LASTING.levels["device"].latency + port + held)


def test_a_block_that_is_alone_on_an_sm_pays_for_each_piece() -> None:
    """512 pieces, four for each SM: the last that is begun ends when all have; a block that takes them in turns begins
    and ends once."""
    found = product()
    once, each_time = clocks(found, SQUARE, True), clocks(found, SQUARE, False)
    behind = LASTING.levels["device"].latency + 2 * (128 * 64 + 128 * 256) / 64
    assert behind <= once < behind + 4 * 300
    assert each_time >= 4 * behind


def test_an_epilogue_hides_behind_no_product() -> None:
    """SiLU takes a power of an element and a quarter of a reciprocal: 128 x 256 x 1.25 / 16 clocks of each of four
    pieces, also where a block takes them in turns."""
    sizes = dict.fromkeys("tio", 4096)
    of_piece = (clocks(layer(), sizes, True) - clocks(product(), SQUARE, True)) / 4
    assert of_piece == pytest.approx(128 * 256 * 1.25 / 16, rel=0.1)


@pytest.mark.parametrize("rest", [0, 1])
def test_a_last_step_that_is_smaller_is_a_loop_of_its_own(rest: int) -> None:
    found = attention()
    step = found.streams[-1].size
    sizes = {**HEADS, "x": 8 * step + rest}
    assert has_rest(found, sizes) == rest
    assert slots_of_tests(found) == TESTED * found.groups[-1].size * step / 128
    assert slots_of_tests(product()) == 0


def test_what_is_smaller_takes_longer() -> None:
    found = attention()
    step = found.streams[-1].size
    even, rest = (clocks(found, {**HEADS, "x": 9 * step - less}, False) for less in (0, 1))
    assert rest > even + slots_of_tests(found)
