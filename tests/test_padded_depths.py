"""Sums whose length is no multiple of what a product of warpgroups takes: tiles reach further than their elements, with
zeros there, so that heads of 24, 40 and 72 are multiplied by warpgroups."""

from __future__ import annotations

import re
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from test_box_order import shifted, transposed, wider
from test_hopper_roles import execute
from test_tensor_copy_sectors import attention_of, check, half

import roads
from benchmarking import benchmark
from roads import Road, compiled
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import SPANS, boxes_layout, reach_of_row
from treadle.dialects.cuda.tiles import is_boxed, padded_axes
from treadle.runtime.backend import has_host_compiler

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

VIEWS: dict[str, Any] = {
    "as they are": np.asarray,
    "rows further apart": partial(wider, by=8),
    "from 16 bytes on": partial(shifted, by=8),
    "8 bytes": partial(wider, by=4),
    "4 bytes": partial(wider, by=2),
    "2 bytes": partial(wider, by=1),
    "across": transposed,
}


@cache
def attention(d: int, example: str = "attention") -> Road:
    text = (programs.EXAMPLES / f"{example}.mlir").read_text(encoding="utf-8")
    return compiled(re.sub("x(64|128)(?=x)", f"x{d}", text), machine="h100")


def beside_others(array: Any) -> Any:
    """Rows between which there are no numbers."""
    apart = np.full((*array.shape[:-1], array.shape[-1] + 24), np.nan, array.dtype)
    apart[..., : array.shape[-1]] = array
    return apart[..., : array.shape[-1]]


@pytest.mark.parametrize("bytes", [1, 2])
def test_rows_take_the_fewest_boxes(bytes: int) -> None:
    for size in range(2, 513):
        reach = reach_of_row(size, bytes)
        boxes = boxes_layout((64, reach), bytes)
        assert boxes is not None
        assert size <= reach
        if size * bytes % 32 == 0:
            assert reach == size
            continue
        assert boxes.count == -(-size * bytes // 128)
        assert not any(span < boxes.span.data * bytes and span * boxes.count >= size * bytes for span in SPANS)


@pytest.mark.parametrize(
    ("d", "extents"), [(24, (32, 32)), (40, (64, 64)), (56, (64, 64)), (72, (128, 64)), (104, (128, 64))]
)
def test_products_are_those_of_warpgroups(d: int, extents: tuple[int, int]) -> None:
    road = attention(d)
    assert "wgmma_m64" in road.text
    assert "mma_m16n8" not in road.text
    for kernel in road.kernels:
        tiles = [op.result.type for op in kernel.body.walk() if isinstance(op, cuda.SharedOp)]
        padded = [type for type in tiles if is_boxed(type) and padded_axes(type)]
        assert [padded_axes(type) for type in padded[:3]] == [("d",), ("d",), ("e",)]


@needs_compiler
@pytest.mark.sample(20)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("q", "x"), [(70, 333), (201, 97), (1, 1)])
@pytest.mark.parametrize("d", [24, 36, 40, 56, 72, 88, 104, 120])
def test_heads_of_any_width(d: int, q: int, x: int, view: str) -> None:
    road, sizes = attention(d), {"b": 1, "h": 2, "q": q, "x": x}
    for verdict in road.verdicts([VIEWS[view](each) for each in road.inputs(sizes)], sizes):
        assert verdict.ok, verdict


@needs_compiler
@pytest.mark.sample(12)
@pytest.mark.parametrize("d", [24, 40, 72])
@pytest.mark.parametrize(
    "example",
    [
        "attention_bf16",
        "attention_causal",
        "attention_window",
        "attention_bias",
        "attention_gqa",
        "attention_backward",
        "attention_lengths",
        "attention_segments",
        "attention_paged",
        "attention_f8",
        "attention_mixed",
    ],
)
def test_other_attention(example: str, d: int) -> None:
    road = attention(d, example)
    assert "wgmma_m64" in road.text
    road.check({})


@needs_compiler
@pytest.mark.parametrize("d", [24, 40])
@pytest.mark.parametrize("x", [300, 97])
def test_twenty_orders_of_completion_give_no_report(d: int, x: int) -> None:
    for seed in range(20):
        launched, ok = execute(programs.attention(d), {"b": 1, "h": 1, "q": 101, "x": x}, seed)
        assert ok
        assert [name.removesuffix("_aligned_16") for name in launched] == ["attention_kernel_specialised"]


@needs_compiler
@pytest.mark.parametrize("d", [20, 36, 40, 72])
@pytest.mark.parametrize("apart", [True, False])
def test_what_is_behind_a_row_counts_for_nothing(d: int, apart: bool) -> None:
    """What lies behind a row of the array, in the tile of the turn before, or in another row: no number there is in a
    sum. 44 elements from row to row are no tensor map's: lanes bring zeros as well."""
    road, sizes = attention(d), {"b": 1, "h": 2, "q": 70, "x": 333}
    q, k, v = (np.array(each) for each in road.inputs(sizes))
    q[0, 0, 5], k[0, 1, 7] = np.inf, np.nan
    (out,) = road.run([beside_others(each) if apart else each for each in (q, k, v)])
    whole: Any = np.isfinite(np.asarray(out, np.float64)).all(axis=-1)
    assert not whole[0, 0, 5]
    assert not whole[0, 1].any()
    assert whole[0, 0].sum() == sizes["q"] - 1


@needs_compiler
@pytest.mark.parametrize("transposes", [*product((False, True), repeat=2)])
@pytest.mark.parametrize("k", [40, 200])
def test_operands_that_lie_across(transposes: tuple[bool, bool], k: int) -> None:
    """Sums along the rows of a tile and down them, of an axis that a group holds whole."""
    left, right = ("km" if transposes[0] else "mk"), ("kn" if transposes[1] else "nk")
    sizes: dict[str, int | None] = {"m": None, "n": None, "k": k}

    def type(axes: str, format: str = "f16") -> str:
        return roads.array(format, **{axis: sizes[axis] for axis in axes})

    road = compiled(
        f"""
func.func @scores(%A: {type(left)}, %B: {type(right)}) -> {type("m", "f32")}
    attributes {{sizes = #diagram.sizes<m = 4096, n = 4096>}} {{
  %C = diagram.contract %A, %B over [k] accumulate f32 : {type(left)}, {type(right)} -> {type("mn", "f32")}
  %M = diagram.reduce max %C over [n] : {type("mn", "f32")} -> {type("m", "f32")}
  func.return %M : {type("m", "f32")}
}}""",
        machine="h100",
    )
    assert "wgmma_m64" in road.text
    for m, n, view in ((70, 90, np.asarray), (129, 200, beside_others), (1, 8, transposed)):
        inputs = [view(each) for each in road.inputs({"m": m, "n": n})]
        for verdict in road.verdicts(inputs, {"m": m, "n": n}):
            assert verdict.ok, verdict


@needs_compiler
@pytest.mark.parametrize("d", [24, 40, 72, 120])
def test_no_copy_asks_for_what_only_pads_a_tile(d: int) -> None:
    (moved,) = check(attention_of(d), [half(1, 2, 100, d), half(1, 2, 200, d), half(1, 2, 200, d)])
    loaded = moved[cuda.TensorLoadOp]
    assert loaded.bytes % (2 * d) == 0
    assert loaded.is_fewest == (d < 64)  # of a row in two boxes both may ask for the sector in which it is cut
