"""The reference run piece by piece is the reference run whole."""

from __future__ import annotations

from itertools import cycle
from math import prod

import numpy as np
import pytest
from test_examples import EXAMPLES, FOLDER

from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module, parse_module
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import Bounded, entry_function, pieces, run_with_bounds
from treadle.runtime.interpreter.scope import Scope

ODD = (3, 13, 7, 2, 5)


def bounded(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Bounded, ...]:
    """Results in about so many pieces."""
    module = load_module(FOLDER / f"{name}.mlir")
    function = entry_function(module)
    sizes = dict(zip(default_sizes(function), cycle(ODD), strict=False))
    whole = Scope(axis_sizes(function, sizes))
    largest = max(prod(pieces._shape(value.type, whole).values()) for value in pieces._values(function.body.block))
    monkeypatch.setattr(pieces, "LARGE", -(-largest // count))
    return run_with_bounds(module, make_inputs(function, axis_sizes(function, sizes), 0), sizes=sizes)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", EXAMPLES)
def test_pieces_give_the_whole(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "REPEATED", 1e9)  # so that all axes are cut that may be
    whole, cut = bounded(name, 1, monkeypatch), bounded(name, 6, monkeypatch)
    for one, other in zip(whole, cut, strict=True):
        assert one.value.shape == other.value.shape
        # Sums over positions come in another order in products of other shapes.
        np.testing.assert_allclose(other.value, one.value, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(other.error, one.error, rtol=1e-9, atol=1e-13)


def cuts(name: str, large: int, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> dict[str, int]:
    monkeypatch.setattr(pieces, "LARGE", large)
    function = entry_function(load_module(FOLDER / f"{name}.mlir"))
    return pieces._cuts(function, Scope(axis_sizes(function, sizes)))


def test_outer_axes_are_cut_as_far_as_need_be(monkeypatch: pytest.MonkeyPatch):
    assert cuts("attention", 2**18, monkeypatch, b=2, h=3, q=1000, x=4096) == {"b": 1, "h": 1, "q": 125}
    assert cuts("attention", 2**18, monkeypatch, b=2, h=3, q=100, x=300) == {}
    # What is read along an axis, and what is summed over, stays whole.
    assert "t" not in cuts("conv1d", 8, monkeypatch)
    assert "x" not in cuts("softmax", 8, monkeypatch)


def test_a_function_with_operations_of_other_dialects_is_run_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "LARGE", 1)
    text = """
    func.func @f(%x: tensor<8x8xf32, #diagram.array<[i, j]>>) -> tensor<8x8xf32, #diagram.array<[i, j]>> {
      %y = "builtin.unrealized_conversion_cast"(%x) :
        (tensor<8x8xf32, #diagram.array<[i, j]>>) -> tensor<8x8xf32, #diagram.array<[i, j]>>
      func.return %y : tensor<8x8xf32, #diagram.array<[i, j]>>
    }
    """
    function = entry_function(parse_module(text))
    assert pieces._cuts(function, Scope({"i": 8, "j": 8})) == {}
