"""Which axis the rows of a product lie along, where several could be: one that fills a tile, wherever it lies in
memory. A few heads that share keys are side by side in what a projection makes (`q h g d`), and pad a tile."""

from __future__ import annotations

import re
from math import inf

import numpy as np
import pytest

import treadle
import treadle.language as tl

LAYOUTS = ("q h g d", "h q g d", "h g q d")


def attention(layout: str, machine: str, sizes: dict[str, int]) -> treadle.Kernel:
    @treadle.kernel(f"{layout}, x h d, x h e -> {layout.replace('d', 'e')}", machine=machine, static=sizes)
    def grouped(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        scores = tl.keep(tl.contract(Q, K, over="d") * 0.125, "x <= q")
        return tl.contract(tl.softmax(scores, over="x").to("f16"), V, over="x").to("f16")

    return grouped.compiled(*(array(axes, sizes) for axes in (layout, "x h d", "x h e")))


def array(axes: str, sizes: dict[str, int]) -> np.ndarray:
    return np.zeros([sizes[axis] for axis in axes.split()], np.float16)


def rows(kernel: treadle.Kernel) -> str:
    """The axis of which a block has more than one index."""
    (chosen,) = [step for step in kernel.derivation if step.rewrite == "choose sizes"]
    pieces = dict(re.findall(r"(\w+) = (\d+)", str(chosen.reason).split(" in ")[0]))
    return " ".join(axis for axis in "qhg" if int(pieces.get(axis, 1)) > 1)


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_rows_lie_along_the_axis_that_fills_a_tile(machine: str) -> None:
    sizes = {"q": 2048, "x": 2048, "h": 8, "g": 4, "d": 128, "e": 128}
    kernels = [attention(layout, machine, sizes) for layout in LAYOUTS]
    assert [rows(kernel) for kernel in kernels] == ["q", "q", "q"]
    times = [kernel.estimate.time_us or inf for kernel in kernels]
    assert max(times) == min(times)


def test_of_short_axes_it_is_the_longest() -> None:
    """One query for each of some, and heads that share keys: a step of generation."""
    sizes = {"q": 2, "x": 1024, "h": 2, "g": 16, "d": 64, "e": 64}
    assert rows(attention("h g q d", "h100", sizes)) == "g"
    assert rows(attention("q h g d", "h100", sizes)) == "g"


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("sizes", [{"q": 70, "g": 3}, {"q": 3, "g": 70}, {"q": 5, "g": 6}])
def test_they_are_right(machine: str, sizes: dict[str, int]) -> None:
    sizes = {"x": 90, "h": 2, "d": 64, "e": 64, **sizes}
    random = np.random.default_rng(5)
    for layout in LAYOUTS:
        shapes = (array(axes, sizes).shape for axes in (layout, "x h d", "x h e"))
        given = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
        (verdict,) = attention(layout, machine, sizes).verify(*given, backend="emulator")
        assert verdict.ok, (layout, verdict)
