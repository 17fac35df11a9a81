"""The banks that copies by sectors meet, every address of every lane: none twice where the law says so, and elsewhere
no fewer wavefronts than the bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from test_box_order import shifted, transposed, transposed_apart, wider

from benchmarking import benchmark
from roads import compiled
from treadle.compiler.gates.alignment import alignment_lines
from treadle.compiler.gates.banks import copies_of
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.layouts.copy_banks import Banked, meet, requests_of
from treadle.compiler.layouts.order import SectorOrder
from treadle.compiler.layouts.tiles import Tile
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import rows_layout
from treadle.dialects.diagram.array import sizes_of
from treadle.runtime.backend import has_host_compiler

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 128)


def met(order: SectorOrder) -> Banked:
    """What an order meets in the tile that products have."""
    tile = Tile(("q", "d"), rows_layout((order.rows, order.columns), 16 // order.element_bytes), order.element_bytes)
    return meet(requests_of(order, tile, "q", "d"), order.width * order.element_bytes)


def rows(columns: int, bytes: int) -> Iterator[SectorOrder]:
    """At every alignment and beginning: rows that touch, that share sectors, that lie apart, and backwards."""
    for width in (16 // bytes, 8 // bytes, 4 // bytes, 1):
        for start, beyond in product((0, 1, 2, 4, 8, 12), (0, 1, 2, 4, 8, 12, 16, 100, 1000)):
            stride = columns + beyond
            if any(number % width for number in (start, columns, stride)):
                continue
            yield SectorOrder(32, columns, stride, 1, start, width, bytes)
            yield SectorOrder(32, columns, -stride, 1, start, width, bytes)


@pytest.mark.parametrize("columns", [columns for columns in WIDTHS if columns % 16 == 8])
def test_rows_of_an_odd_number_of_chunks_meet_no_bank_twice(columns: int) -> None:
    for order in rows(columns, 2):
        if order.row_stride > 0:
            assert met(order).conflicts == 0, order


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("chunks", [8, 16])
def test_rows_apart_of_whole_lines_are_turned(chunks: int, bytes: int) -> None:
    """As many wavefronts as phases, and no lane idle."""
    columns = chunks * 16 // bytes
    for order in rows(columns, bytes):
        if abs(order.row_stride) < columns + 32 // bytes:
            continue
        assert len(order.slots()) == order.rows * columns // order.width
        assert met(order).conflicts == 0, order


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("bytes", [2, 4])
def test_columns_meet_the_fewest_banks(bytes: int, columns: int) -> None:
    """Of 16 bits each request takes two wavefronts, and no order takes fewer: a sector has two rows in each bank."""
    for start, beyond in product((0, 1, 3, 8), (16, 17, 100)):
        order = SectorOrder(64, columns, 1, 64 + beyond, start, 1, bytes)
        banks = met(order)
        assert banks.wavefronts == banks.phases * (2 if bytes == 2 else 1), order
        assert banks.fewest <= banks.wavefronts
        if start == 0 and beyond == 16:
            assert banks.is_fewest


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_order_is_below_the_bound(columns: int) -> None:
    for order in rows(columns, 2):
        banks = met(order)
        assert banks.fewest <= banks.wavefronts, order


VIEWS: dict[str, Callable[[Any], Any]] = {
    "rows that touch": np.asarray,
    "from 16 bytes on": partial(shifted, by=8),
    "4 bytes": partial(wider, by=2),
    "2 bytes, far apart": partial(wider, by=1001),
    "transposed": transposed,
    "transposed, odd": transposed_apart,
}


@needs_compiler
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", [40, 48, 64])
def test_the_emulator_counts_as_many(d: int, view: str) -> None:
    """Of one block that copies all queries: the conflicts of their copies."""
    road = compiled(programs.attention(d), machine="a100")
    (kernel,) = road.kernels
    rows = sizes_of(next(op for op in kernel.walk() if isinstance(op, cuda.CopyOp)).tile.type)["q"]
    sizes = {"b": 1, "h": 1, "q": rows, "x": 64}
    inputs = [VIEWS[view](each) for each in road.inputs(sizes)]
    for verdict in road.verdicts(inputs, sizes):
        assert verdict.ok, verdict
    counted = [
        each
        for each in traffic_of(road.text, road.backend().reports[-1:])
        if re.search(r"Q_shared\[", each.text) and each.kind in ("copy_async", "store_shared") and each.bytes
    ]
    down, along = (stride // 2 for stride in inputs[0].strides[2:])
    widths = {"copy_async": [8, 2], "store_shared": [1]}[counted[0].kind]
    width = next(each for each in widths if all(number % each == 0 for number in (down if along == 1 else 1, d)))
    found: set[int] = set()  # wherever the host has put the array
    for start in range(0, 16, width):
        order = SectorOrder(rows, d, down, along, start, width, 2)
        found.add(met(order).conflicts)
    assert sum(each.conflicts for each in counted) in found


@pytest.mark.parametrize(("d", "says"), [(40, False), (64, True)])
def test_what_is_reported(d: int, says: bool) -> None:
    (kernel,) = compiled(programs.attention(d), machine="a100").kernels
    lines = list(alignment_lines(kernel))
    assert any("copies take" in line for line in lines) == says
    assert "copies take" not in lines[0]
    for alignment in cuda.alignments(kernel):
        for _, banks in copies_of(kernel, alignment):
            assert banks.fewest <= banks.wavefronts
    bounds = [line for line in lines if "no order fewer than" in line and f"row to row of {d} elements" in line]
    assert bool(bounds) == says
