"""Rows that lie where data say, and begin anywhere: every element once, in the fewest sectors, as the algebra has it
and as the emulator counts it, for pages, rows of a table and weights of experts, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_box_order import VIEWS, shifted, wider
from test_tensor_gathers import paged

from roads import Road, compiled
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.layouts.box_order import is_ordered
from treadle.compiler.layouts.run_order import CHUNK, RunOrder, runs_of
from treadle.dialects import cuda
from treadle.runtime.backend import has_host_compiler

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EMBEDDING, EXPERTS = ((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8") for name in ("embedding", "experts"))
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


# -- as the algebra has it -----------------------------------------------------------------------------


def orders(bytes: int, width: int) -> Iterator[RunOrder]:
    """Runs of one row and of several, rows that touch, nearly touch, and lie apart, that end early; and turned."""
    for rows, columns, early in product((1, 4, 16), (32 // bytes, 40, 128 // bytes), (0, 8)):
        for beyond in (0, 4, 8, 16, 1000, 1001 if width == 1 else 1004):
            inside, stride = columns - early, columns - early + beyond
            if stride % width == 0 and inside % width == 0 and inside > 0:
                yield RunOrder(rows, columns, (rows, inside), stride, 1, width, bytes)
            if width == 1 and rows > 1:
                yield RunOrder(rows, columns, (rows, inside), 1, rows + beyond, width, bytes)
                yield RunOrder(rows, columns, (rows - 1, columns), 1, rows - 1 + beyond, width, bytes)


STARTS = [(0,), (0, 1), (1, 2, 4, 3), (4, 0, 8), tuple(range(CHUNK + 9))]
FEW, MANY = (), pytest.mark.full
"""More runs than lanes, element by element, take a minute: on an ordinary day there are fewer, or vectors."""
CASES = [
    pytest.param(starts, width, bytes, marks=MANY if width == 1 and len(starts) > CHUNK else FEW)
    for bytes in (1, 2, 4)
    for width in sorted({16 // bytes, 8 // bytes, 4 // bytes, 1})
    for starts in STARTS
]


@pytest.mark.parametrize(("starts", "width", "bytes"), CASES)
def test_no_way_has_fewer_sectors(starts: tuple[int, ...], width: int, bytes: int) -> None:
    for order in orders(bytes, width):
        least = min(order.inside[0], max(order.rows - 1, 1))
        runs = [((i << 20) + start * width, (order.inside[0], least)[i % 2]) for i, start in enumerate(starts)]
        dealt = list(order.requests(runs))
        wanted = sorted(
            start + row * order.row_stride + column * order.column_stride
            for start, rows in runs
            for row, column in product(range(rows), range(order.inside[1]))
        )
        assert sorted(at + i for request in dealt for at in request for i in range(width)) == wanted
        asked = sum(len({at * bytes // 32 for at in request}) for request in dealt)
        assert asked == len({at * bytes // 32 for at in wanted}), order
        assert all(len(request) <= 32 for request in dealt)


# -- as the emulator counts it -------------------------------------------------------------------------

LOADS = ("load_global", "copy_async")
View = Callable[[Any], Any]
OTHERS: dict[str, View] = {
    "16 bytes": lambda array: wider(shifted(array, 8), 8),
    "rows that touch, 16 bytes": partial(shifted, by=8),
    "two axes further": lambda array: wider(
        shifted(np.pad(array, [(0, 0), (0, 1)] + [(0, 0)] * (array.ndim - 2)), 3), 3
    )[:, : array.shape[1]],
}


def check(road: Road, inputs: tuple[Any, ...], sizes: dict[str, int]) -> None:
    """Right, and all that is loaded in the fewest sectors; each warp asks for entries itself, once a tile."""
    road.backend().reports.clear()
    for verdict in road.verdicts(inputs, sizes):
        assert verdict.ok, verdict
    operations = [each for each in traffic_of(road.text, road.backend().reports) if each.kind in LOADS]
    entries = [each for each in operations if each.text.startswith("const int ")]
    assert all(each.sectors <= 5 * each.requests for each in entries)
    assert not [each for each in operations if each not in entries and each.sectors > each.fewest_sectors]


def apart(entries: Any) -> Any:
    """Other entries, none the same, and none that follow each other: whether runs share sectors is for data to say."""
    return (2 * np.random.default_rng(0).permutation(entries.size)).astype(np.int32).reshape(entries.shape)


EVERY = {**VIEWS, **OTHERS}
AS_ROWS = [name for name in EVERY if "transposed" not in name]
"""Of which the elements of a row are neighbours, whatever the axis before the last."""


@needs_compiler
@pytest.mark.sample(6)
@pytest.mark.parametrize("view", AS_ROWS)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("page", "h"), [(16, 1), (16, 2), (4, 1), (1, 2)])
def test_pages(page: int, h: int, machine: str, view: str) -> None:
    """Of one head, whose rows nearly touch, and of several."""
    road, m = made(paged(page), machine), 100 // page
    sizes = {"b": 2, "q": 19, "h": h, "g": 2, "p": 4 * m, "m": m}
    query, keys, values, table, length, past = road.inputs(sizes)
    check(road, (query, EVERY[view](keys), EVERY[view](values), apart(table), length, past), sizes)


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_columns_of_a_page_that_are_neighbours(machine: str) -> None:
    """Positions of a page lie together: lines are columns, as many as a page has are neighbours."""
    sizes = {"b": 2, "q": 9, "h": 1, "g": 1, "p": 28, "m": 7}
    road = made(paged(order="p h d s"), machine)
    for way in (np.asarray, partial(shifted, by=1), partial(wider, by=3)):
        query, keys, values, table, length, past = road.inputs(sizes)
        check(road, (query, way(keys), way(values), apart(table), length, past), sizes)


@needs_compiler
@pytest.mark.parametrize("view", AS_ROWS)
def test_rows_of_a_table(view: str) -> None:
    road, sizes = made(EMBEDDING, "a100"), {"t": 41, "v": 90}
    table, token = road.inputs(sizes)
    check(road, (EVERY[view](table), apart(token)), sizes)


@needs_compiler
@pytest.mark.sample(8)
@pytest.mark.parametrize("view", EVERY)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("n", [40, 72])
def test_weights_of_experts(n: int, machine: str, view: str) -> None:
    """Of which the last tile is as wide as an array, whose rows touch, or wider."""
    road, sizes = made(EXPERTS, machine), {"g": 3, "r": 40, "k": 72, "n": n, "i": 4}
    rows, weights, expert = road.inputs(sizes)
    check(road, (EVERY[view](rows), EVERY[view](weights), expert), sizes)


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("by", [0, 1, 4, -63])
def test_an_axis_of_one_element_has_any_stride(by: int, machine: str) -> None:
    """Nobody asks whether such strides are multiples of a vector: of one expert, entries that lie past it begin between
    vectors; of one row, so do those of the tile that the array has not."""
    turned = EXPERTS.replace("[g, r, k]", "[g, k, r]")
    for text, axis, sizes in ((EXPERTS, 0, {"k": 40, "i": 1}), (turned, 1, {"k": 1, "i": 3})):
        road, sizes = made(text, machine), sizes | {"g": 3, "r": 64, "n": 72}
        given: tuple[Any, ...] = road.inputs(sizes)
        rows, weights, expert = given
        strides = [n + by * weights.itemsize * (i == axis) for i, n in enumerate(weights.strides)]
        memory = np.zeros(weights.size + 1000, weights.dtype)
        memory[: weights.size] = weights.ravel()
        weights = np.lib.stride_tricks.as_strided(memory, weights.shape, strides)
        for entries in (expert, expert + 1):
            for verdict in road.verdicts((rows, weights, entries), sizes):
                assert verdict.ok, verdict


@cache
def made(text: str, machine: str) -> Road:
    return compiled(text, machine=machine)


# -- which runs there are ------------------------------------------------------------------------------


def test_runs_of_tiles() -> None:
    pages = [runs_of(op, op.tile.type) for op in copies(made(paged(), "a100"))]
    assert {(runs.rows, runs.row, runs.column) for runs in pages if runs} == {(16, "x", "d"), (16, "x", "e")}
    weights = [runs_of(op, op.tile.type) for op in copies(made(EXPERTS, "a100"))]
    assert {(runs.total, runs.row, runs.column) for runs in weights if runs} == {(1, "k", "n")}
    assert all(map(is_ordered, copies(made(EXPERTS, "h100"), "_by_lanes")))
    assert not any(map(is_ordered, copies(made(paged(), "h100"), "_by_lanes")))


def copies(road: Road, name: str = "_kernel") -> list[cuda.CopyOp]:
    kernels = [kernel for kernel in road.kernels if kernel.sym_name.data.endswith(name)]
    return [op for kernel in kernels for op in kernel.walk() if isinstance(op, cuda.CopyOp) and op.place is not None]
