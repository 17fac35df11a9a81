"""What device memory and processors take together where tiles go round between both: a closed line, counted with the
rates that last, and not when sizes are compared by them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import sympy
from test_overlap_pieces import decorated

from benchmarking import benchmark
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.choice.setting import Setting
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.memory import footprint
from treadle.compiler.cost.reading.sketch import Sketch, sketch_of
from treadle.compiler.cost.timing import time
from treadle.compiler.cost.timing.line import clocks_of_line
from treadle.compiler.cost.timing.rounds import begin_clocks
from treadle.compiler.cost.timing.tiles_in_flight import clocks_beside_memory, tiles_in_flight
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp

programs = benchmark("programs")
A100, H100 = load_machine("a100"), load_machine("h100")
LASTING = replace(H100.as_sustained().at_clock(1.3e9), loaded_clock=0.0)
"""At one clock, as under load, so that what differs is what tiles wait."""
WITHOUT = replace(LASTING, counts_queues=False)
SIZES = {"b": 32, "h": 16, "q": 512, "x": 512, "d": 128, "e": 128}
LONG = {**SIZES, "b": 1, "q": 16384, "x": 16384}
TURNS = Made(True)


TEXT = programs.attention(128, {axis: SIZES[axis] for axis in "bhqx"}, example="attention_causal")


@lru_cache(maxsize=1)
def short() -> Plan:
    return plan_of(decorated(TEXT))


def sketch() -> Sketch:
    module, specs = parse_module(TEXT), pipeline(Options("h100"))
    run_passes(module, specs[: [each.name for each in specs].index(CHOOSING_PASS)])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    return sketch_of(kernel, kernel.schedule)


@pytest.mark.parametrize("tiles", range(1, 6))
def test_a_line_of_two_stations_has_a_closed_form(tiles: int) -> None:
    """Which what each customer finds at a station adds up to, step by step."""
    a, b = sympy.symbols("a b", positive=True)
    closed = (a ** (tiles + 1) - b ** (tiles + 1)) / (a**tiles - b**tiles)
    assert sympy.simplify(clocks_beside_memory(a, b, tiles) - closed) == 0
    assert sympy.simplify(clocks_beside_memory(a, a, tiles) - a * (tiles + 1) / sympy.Integer(tiles)) == 0


def test_neither_hides_all_of_the_other() -> None:
    """One tile is at one of both at a time; many hide all but where both have as much to do."""
    assert clocks_beside_memory(700, 900, 1) == 1600
    times = [clocks_beside_memory(700, 900, tiles) for tiles in (1, 2, 4, 8, 64)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(900, rel=1e-6)
    assert clocks_beside_memory(900, 900, 64) == pytest.approx(900 * 65 / 64)
    assert clocks_beside_memory(100, 900, 8) == pytest.approx(900, rel=1e-6)
    assert clocks_beside_memory(700, 900, 0) == 0


def test_who_is_away_keeps_no_station_busy() -> None:
    assert clocks_of_line((3, 5), 1, away=100) == 108
    assert clocks_of_line((3, 5), 4, away=1e6) == pytest.approx(1e6, rel=1e-4)
    assert clocks_of_line((3, 5), 4) == 4 * clocks_beside_memory(3, 5, 4)


def test_many_lines_at_a_time_are_each_by_itself() -> None:
    processors, memory, tiles = np.array([700, 900, 100]), np.array([900, 900, 300]), np.array([4, 12, 0])
    each = [clocks_beside_memory(*line) for line in zip(processors, memory, tiles, strict=True)]
    assert clocks_beside_memory(processors, memory, tiles) == pytest.approx(each)


def test_tiles_are_the_places_that_a_producer_fills() -> None:
    """Two stages of keys and values; none where warps that compute copy, or nothing is streamed through shared
    memory."""
    needs = footprint(short(), H100)
    assert (needs.stages, needs.producers > 0) == (2, True)
    assert tiles_in_flight(short(), needs, 1) == 4
    assert tiles_in_flight(short(), needs, 3) == 12
    assert tiles_in_flight(short(), footprint(short(), A100), 1) == 0
    rows = plan_of(decorated(programs.example("softmax", {"row": 4096, "x": 4096})))
    assert tiles_in_flight(rows, footprint(rows, H100), 4) == 0


def in_line(made: Made) -> tuple[float, float, float]:
    """Clocks of a launch, of what processors do in it if no memory is waited for, and of what memory does."""
    found = time.timing(short(), LASTING, SIZES, made)
    alone = time.timing(short(), WITHOUT.with_endless("device"), SIZES, made)
    begin, per_us = begin_clocks(LASTING), LASTING.clock / 1e6
    memory = float(found.units_us["device memory"]) * per_us
    return float(found.time_us) * per_us - begin, float(alone.time_us) * per_us - begin, memory


def test_short_pieces_wait_for_memory_and_memory_for_them() -> None:
    """By as much as the line says of what each takes by itself; a long stream hides what it moves."""
    clocks, processors, memory = in_line(TURNS)
    assert 0.7 < processors / memory < 1.4
    assert clocks == pytest.approx(clocks_beside_memory(processors, memory, 4))
    times, long = (
        [float(time.timing(short(), machine, sizes, TURNS).time_us) for machine in (LASTING, WITHOUT)]
        for sizes in (SIZES, LONG)
    )
    assert times[0] > 1.1 * times[1]
    assert long[0] == pytest.approx(long[1], rel=1e-3)


def test_waits_are_no_work_of_a_processor() -> None:
    """Where what a piece holds has one place, a block waits for it: in the line that is memory's, and counts once."""
    once = replace(TURNS, twice=False)
    clocks, processors, memory = in_line(once)
    waiting = float(time.timing(short(), WITHOUT, SIZES, once).time_us) * LASTING.clock / 1e6 - begin_clocks(LASTING)
    assert processors < 0.95 * waiting
    assert clocks == pytest.approx(max(waiting, clocks_beside_memory(processors, memory, 4)))
    assert clocks < 0.95 * clocks_beside_memory(waiting, memory, 4)


def test_sizes_are_compared_without() -> None:
    """Smaller tiles are more, so that they would wait less."""
    assert (H100.counts_queues, LASTING.counts_queues) == (False, True)
    setting = Setting(sketch(), H100, SIZES, turns=1)
    lasting = H100.as_sustained()
    told, compared = (
        time.estimate(short(), machine, SIZES, TURNS) for machine in (lasting, replace(lasting, counts_queues=False))
    )
    assert told is not None
    assert compared is not None
    assert setting.lasting_time(short()) == compared.time_us < told.time_us
