"""Bounds of the first few of an order: none that a correct kernel may exceed, and none that says nothing because two
elements before are near each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import ReduceOp
from treadle.runtime.interpreter import run_with_bounds
from treadle.runtime.interpreter.arrays import Array, Numbers
from treadle.runtime.interpreter.bounds.orders import Order, order_error, order_of
from treadle.runtime.verify import verify

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = {"t": 40, "d": 2048, "e": 64}


def routed(k: int, largest: bool = True) -> Any:
    @treadle.kernel("t d, e d -> t r, t r")
    def function(X: Any, W: Any) -> Any:
        return tl.topk(tl.contract(X, W, over="d"), k, over="e", axis="r", largest=largest)

    return function


def traced(k: int, largest: bool = True) -> ModuleOp:
    return routed(k, largest).trace(["f16", "f16"], SIZES, SIZES)


def orders(module: ModuleOp) -> list[tuple[int, str, bool]]:
    found = [order_of(op) for op in module.walk() if isinstance(op, ReduceOp)]
    return [(order.rank, order.kind, order.is_place) for order in found if order is not None]


def test_what_is_an_order() -> None:
    assert orders(traced(4)) == [(rank, "max", is_place) for rank in (1, 2, 3) for is_place in (False, True)]
    assert orders(load_module(EXAMPLES / "routing.mlir")) == [(1, "max", False), (1, "max", True)]


EDITS = {
    "another test": ("%is_taken = arith.cmpi eq", "%is_taken = arith.cmpi sle"),
    "nothing that comes last": ("0xFF800000", "0xFF700000"),
    "another array": ("%rest = arith.select %is_taken, %nothing, %s", "%rest = arith.select %is_taken, %s, %nothing"),
    "a place that is not the first": ("%found = arith.ori %equal, %nan", "%found = arith.andi %equal, %nan"),
    "a place where something else holds, too": (
        "%found = arith.ori %equal, %nan",
        "%less = arith.cmpf olt, %s, %most : f32 %both = arith.andi %equal, %less : i1 %found = arith.ori %both, %nan",
    ),
    "a place elsewhere": ("%nowhere = arith.constant 2147483647", "%nowhere = arith.constant 2147483646"),
    "places of what is smaller": ("%equal = arith.cmpf oeq, %s, %most", "%equal = arith.cmpf olt, %s, %most"),
    "the last position": ("diagram.reduce min %at_first", "diagram.reduce max %at_first"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_no_order(edit: str) -> None:
    old, new = EDITS[edit]
    text = (EXAMPLES / "routing.mlir").read_text(encoding="utf-8")
    assert old in text
    assert orders(parse_module(text.replace(old, new))) == []


def test_a_place_that_may_be_taken_is_none() -> None:
    text = (EXAMPLES / "routing.mlir").read_text(encoding="utf-8")
    edited = text.replace("%is_left = arith.cmpi ne, %e, %taken", "%is_left = arith.cmpi ne, %e, %e")
    assert orders(parse_module(edited)) == [(1, "max", False)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from(["max", "min"]), st.floats(0.0, 3.0))
def test_no_element_is_beyond_its_bound(seed: int, rank: int, kind: str, spread: float) -> None:
    """Of numbers that are anywhere within theirs."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-6, 7, (5, 7)).astype(np.float64)
    numbers[0, :3] = np.inf if kind == "min" else -np.inf
    error = random.uniform(0, spread, numbers.shape) * (random.random(numbers.shape) < 0.7)
    error[np.isinf(numbers)] = 0
    sign = -1 if kind == "max" else 1
    places = np.argsort(sign * numbers, axis=1, kind="stable")[:, rank]
    values = np.take_along_axis(numbers, places[:, None], 1)[:, 0]
    array, unknown = Array(("i", "x"), Numbers(numbers, error)), np.full(5, np.inf)
    of_value, of_place = (
        order_error(Order(None, "x", kind, rank, is_place), array, ("i",), found, unknown)  # type: ignore[arg-type]
        for is_place, found in ((False, values), (True, places.astype(np.int32)))
    )
    for _ in range(30):
        moved = numbers + random.uniform(-1, 1, numbers.shape) * error
        found = np.argsort(sign * moved, axis=1, kind="stable")[:, rank]
        there = np.isfinite(values)
        apart = np.abs(np.take_along_axis(moved, found[:, None], 1)[there, 0] - values[there])
        assert (apart <= of_value[there] + 1e-12).all()
        assert ((found == places) | (of_place > 0)).all()


def test_what_follows_two_that_are_near_is_known() -> None:
    """As far as the elements themselves; and where it is, if no third is near."""
    X = np.eye(4, 64, dtype=np.float16) + np.float16(1)
    W = np.zeros((6, 64), np.float16)
    W[:, :] = np.array([3, 3, 2, 1, 0, -1], np.float16)[:, None]
    W[1, 5] += np.float16(0.002)
    module = routed(5).trace(["f16", "f16"], {"t": 4, "d": 64, "e": 6}, ["t", "d", "e"])
    values, places = run_with_bounds(module, [X, W])
    assert (values.error < 0.25).all()  # between two and the next are 65
    assert (places.error[:, :2] > 1e9).all()
    assert not places.error[:, 2:].any()


def test_a_row_with_a_nan_keeps_its_bound() -> None:
    X, W = np.ones((2, 8), np.float16), np.arange(48, dtype=np.float16).reshape(6, 8)
    X[1, 3] = np.nan
    module = routed(3).trace(["f16", "f16"], {"t": 2, "d": 8, "e": 6}, ["t", "d", "e"])
    values, places = run_with_bounds(module, [X, W])
    assert np.isfinite(values.error[0]).all()
    assert not places.error[0].any()
    assert np.isnan(values.value[1]).all()


@pytest.mark.parametrize("k", [2, 8])
def test_routers_of_wide_tokens_are_verified_and_a_wrong_expert_is_seen(k: int) -> None:
    random = np.random.default_rng(k)
    X = random.standard_normal((40, 2048)).astype(np.float16)
    W = (random.standard_normal((64, 2048)) / 32).astype(np.float16)
    module = traced(k)
    values, experts = (np.array(each.value) for each in run_with_bounds(module, [X, W]))
    experts = experts.astype(np.int32)
    assert all(verdict.ok for verdict in verify(module, [X, W], [values.astype(np.float16), experts], "here"))
    certain = np.argwhere(run_with_bounds(module, [X, W])[1].error == 0)
    row, rank = certain[len(certain) // 2]
    experts[row, rank] = (experts[row, rank] + 1) % 64
    assert verify(module, [X, W], [values.astype(np.float16), experts], "here")[1].wrong
