"""Tiles in boxes at their edges: what of a box lies beyond its array, and boxes as narrow as one step of a product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import treadle
import treadle.language as tl
from treadle.runtime.backend import has_host_compiler

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


@treadle.kernel("b q h d, b x h d, b x h e, h -> b q h e")
def with_sinks(Q: Any, K: Any, V: Any, sink: Any) -> Any:
    S = tl.keep(tl.contract(Q, K, over="d") * 0.18, "(q - x) % 2 == 0")
    m = tl.maximum(tl.max(S, over="x"), sink)
    E = tl.exp(S - m)
    return tl.contract(E / (tl.sum(E, over="x") + tl.exp(sink - m)), V, over="x")


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def test_what_leaves_of_a_box_that_reaches_further_than_its_array():
    """Heads of 40 leave in boxes of 64 columns: of the rest, which goes nowhere, nobody wrote anything."""
    Q, K, V = (drawn(2, n, 3, width).astype(np.float16) for n, width in ((1, 32), (129, 32), (129, 40)))
    sink = drawn(3).astype(np.float32)
    sizes = {"b": 4, "h": 3, "q": 1, "x": 1024, "d": 32, "e": 40}
    module = with_sinks.trace(with_sinks.formats([Q, K, V, sink]), sizes, "deh")
    kernel = treadle.compile(module, machine="h100")
    assert "tensor_store(" in kernel.cuda
    (verdict,) = kernel.verify(Q, K, V, sink, backend="emulator", checks=True)
    assert verdict.ok, str(verdict)


@treadle.kernel("b q d, b x d, b x e, b q x -> b q e")
def biased(Q: Any, K: Any, V: Any, bias: Any) -> Any:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.1 + bias, over="x"), V, over="x")


@pytest.mark.parametrize("format", [np.float16, bfloat16])
@pytest.mark.parametrize("step", [16, 32])
def test_a_bias_in_boxes_of_one_step(format: Any, step: int):
    """The accumulator of a warpgroup has the fragments of a single warp's left operand where it has 16 columns: they
    are read from boxes, not from rows."""
    arrays = [drawn(*shape).astype(format) for shape in ((2, 70, 128), (2, 136, 128), (2, 136, 128), (2, 70, 136))]
    module = biased.trace(biased.formats(arrays), {"b": 64, "q": 1024, "x": 1024, "d": 128, "e": 128}, "de")
    sizes = f'hierarchy-choose-sizes{{group="q=64" stream="x={step}"}}'
    kernel = treadle.compile(module, machine="h100", passes=[sizes])
    (verdict,) = kernel.verify(*arrays, backend="emulator", checks=True)
    assert verdict.ok, str(verdict)
