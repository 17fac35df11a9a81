"""Copies in another order of axes: lanes read words of a tile and turn them in registers, and whole lines move."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_coalescing import check

from roads import array, compiled
from treadle.compiler.layouts import choose_rows, fragment_access
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import layout_of

COPY = """
func.func @turn(%A: {a}) -> {b} attributes {{sizes = #diagram.sizes<x = 4096, e = 4096>}} {{
  %B = diagram.map (%x = %A : {a}) -> {b} {{
    diagram.yield %x : {format}
  }}
  func.return %B : {b}
}}
"""


def copy(format: str, **sizes: int | None) -> str:
    a, b = array(format, **sizes), array(format, **dict(reversed(sizes.items())))
    return COPY.format(a=a, b=b, format=format)


@pytest.mark.parametrize("machine", ["l40s", "h100"])
@pytest.mark.parametrize("format", ["f8E4M3FN", "i8"])
def test_a_copy_moves_the_fewest_sectors(format: str, machine: str) -> None:
    """Whole lines of both arrays, whatever the alignment of their rows."""
    arch = {"l40s": "sm_89", "h100": "sm_90a"}[machine]
    for shape in ((256, 384), (130, 77), (5, 300)):
        bits = np.random.default_rng(0).integers(0, 100, shape, np.uint8)
        given = bits.view(ml_dtypes.float8_e4m3fn if format == "f8E4M3FN" else np.int8)
        (moved,) = check(copy(format, x=None, e=None), [given], arch=arch)
        assert all(each.is_fewest for each in moved)


def test_lanes_of_a_copy_read_words_and_turn_them() -> None:
    """16 rows of a word each, which four stores of 16 bytes take; no bank is asked twice at a time."""
    road = compiled(copy("f8E4M3FN", x=None, e=None), machine="h100")
    (load,) = (op for op in road.module.walk() if isinstance(op, cuda.LoadOp))
    layout = layout_of(load.result.type)
    assert [*layout.register] == [Mode("x", 16, 1), Mode("e", 4, 1)]
    words = fragment_access(layout, "e", 4)
    choice = choose_rows(("x", "e"), (128, 128), 1, words)
    assert choice.conflicts == 0
    given = np.arange(96, dtype=np.uint8).reshape(8, 12)
    (turned,) = road.run([given.view(ml_dtypes.float8_e4m3fn)])
    assert np.array_equal(turned.view(np.uint8), given.T)


def test_neighbours_last() -> None:
    lanes = [Mode("x", 32, 16)]
    layout = LayoutAttr([Mode("e", 4, 1), Mode("x", 16, 1)], lanes, [])
    assert layout.neighbours_last("e") == LayoutAttr([Mode("x", 16, 1), Mode("e", 4, 1)], lanes, [])
    assert layout.neighbours_last("x") is None
    assert LayoutAttr([Mode("e", 4, 2), Mode("x", 16, 1)], lanes, []).neighbours_last("e") is None
