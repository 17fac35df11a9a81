"""Copies by lanes to boxes, of rows that begin anywhere: every element once, in the fewest sectors, and the emulator
counts as many as the algebra, whatever sizes, strides and alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from test_coalescing import check

from benchmarking import benchmark
from roads import compiled
from treadle.compiler.layouts.box_order import BoxOrder, is_ordered
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.runtime.backend import has_host_compiler

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def orders(bytes: int, width: int, start: int) -> Iterator[BoxOrder]:
    """Boxes of one and of several, rows that touch, nearly touch, lie apart, and end early; and the same turned."""
    for rows, columns, early in product((8, 24, 64, 176), (128 // bytes, 256 // bytes), (0, 4, 40)):
        for beyond in (0, 4, 8, 16, 100, 1000, 1001 if width == 1 else 1004):
            inside, stride = (rows - early % 8, columns - early), columns - early + beyond
            if stride % width == 0 and inside[1] % width == 0:
                yield BoxOrder(rows, columns, inside, stride, 1, start, width, bytes)
            if width == 1:
                yield BoxOrder(rows, columns, inside, 1, inside[0] + beyond, start, width, bytes)


STARTED = [
    (start, bytes, width)
    for start in (0, 4, 8, 12, 3, 7)
    for bytes in (1, 2)
    for width in (16 // bytes, 8 // bytes, 4 // bytes, 1)
    if start % width == 0
]


@pytest.mark.parametrize(("start", "bytes", "width"), STARTED)
def test_no_way_has_fewer_sectors(start: int, bytes: int, width: int) -> None:
    for order in orders(bytes, width, start):
        dealt = list(order.requests())
        moved = [at + i for request in dealt for at in request for i in range(width)]
        every = product(*map(range, order.inside))
        wanted = sorted(row * order.row_stride + column * order.column_stride for row, column in every)
        assert sorted(moved) == wanted
        asked = sum(len({(start + at) * bytes // 32 for at in request}) for request in dealt)
        assert asked == len({(start + at) * bytes // 32 for at in wanted}), order
        assert all(len(request) <= 32 for request in dealt)


def shifted(array: Any, by: int) -> Any:
    """The same numbers, as many elements behind a multiple of a line."""
    flat = np.zeros(array.size + by + 64, array.dtype)
    begin = (-flat.ctypes.data // array.itemsize) % 64 + by
    flat[begin : begin + array.size] = array.ravel()
    return flat[begin : begin + array.size].reshape(array.shape)


def wider(array: Any, by: int) -> Any:
    """Rows so many elements further apart."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, by)])[..., : array.shape[-1]]


def transposed(array: Any) -> Any:
    """Columns that lie together."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)).swapaxes(-1, -2)


def transposed_apart(array: Any) -> Any:
    """The same from between two words on, columns an odd number of elements apart."""
    longer = np.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, 1), (0, 0)])
    return transposed(shifted(longer, 1))[..., :-1, :]


View = Callable[[Any], Any]
VIEWS: dict[str, View] = {
    "8 bytes": partial(wider, by=4),
    "4 bytes": partial(wider, by=2),
    "2 bytes": partial(wider, by=1),
    "rows far apart": partial(wider, by=1001),
    "rows that touch": partial(shifted, by=1),
    "rows that touch, 4 bytes": partial(shifted, by=2),
    "transposed": transposed,
    "transposed, odd": transposed_apart,
}


@needs_compiler
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("sizes", [(130, 257, 200), (128, 256, 128)])
def test_products_in_the_fewest_sectors(sizes: tuple[int, int, int], view: str) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n))]
    text = programs.matmul({"m": 4096, "n": 4096, "k": 4096})
    ((loaded, _),) = check(text, [VIEWS[view](each) for each in arrays], arch="sm_90a")
    assert loaded.is_fewest


@needs_compiler
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", [64, 100, 128])
def test_attention_in_the_fewest_sectors(d: int, view: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [(1, 2, 70, d), (1, 2, 333, d), (1, 2, 333, d)]
    arrays = [VIEWS[view](rng.standard_normal(shape).astype(np.float16)) for shape in shapes]
    ((loaded, _),) = check(programs.attention(d), arrays, arch="sm_90a")
    assert loaded.is_fewest


@needs_compiler
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", [40, 100, 128])
def test_results_are_right(d: int, view: str) -> None:
    """Heads whose rows end within a box, and nearly touch: what lies behind them in the tile is zeros."""
    road = compiled(programs.attention(d), machine="h100")
    sizes = {"b": 1, "h": 2, "q": 70, "x": 333}
    for verdict in road.verdicts([VIEWS[view](each) for each in road.inputs(sizes)], sizes):
        assert verdict.ok, verdict


ODD_VIEWS: dict[str, View] = {
    "rows backwards": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "columns backwards": lambda a: np.ascontiguousarray(a[:, ::-1])[:, ::-1],
    "one row again and again": lambda a: np.broadcast_to(a[:1], a.shape),
    "rows that overlap": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (3 * a.itemsize, a.itemsize)),
}


@needs_compiler
@pytest.mark.parametrize("view", ODD_VIEWS)
def test_lines_that_are_not_dealt_by_sectors(view: str) -> None:
    road = compiled(programs.matmul({"m": 4096, "n": 4096, "k": 4096}), machine="h100")
    sizes = {"m": 130, "n": 257, "k": 200}
    for verdict in road.verdicts([ODD_VIEWS[view](each) for each in road.inputs(sizes)], sizes):
        assert verdict.ok, verdict


@pytest.mark.parametrize(("name", "all_are"), [("attention_causal", True), ("attention_paged", False)])
def test_which_copies_are_dealt_so(name: str, all_are: bool) -> None:
    """All by lanes of a kernel with roles for arrays without tensor maps; those whose rows data choose are not."""
    module = parse_module((programs.EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    run_pipeline(module, Options(arch="sm_90a"))
    copies = [op for op in module.walk() if isinstance(op, cuda.CopyOp) and op.asynchronous is not None]
    assert copies
    assert all(map(is_ordered, copies)) == all_are
