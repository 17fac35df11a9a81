"""Every example down the whole road, at its default sizes and at odd ones: the emulator against the float64 interpreter
and the interpreter against PyTorch; and on tensor cores wherever it contracts 16-bit operands."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from oracles import ORACLES
from roads import Road, compiled
from treadle.compiler.sizes import default_sizes
from treadle.dialects import cuda, diagram
from treadle.dialects.diagram.formats import NARROW
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function, run_function

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.mlir"))

ODD = (1, 2, 3, 5, 7, 13, 17, 31, 33, 63, 65, 97, 129, 200)
MOST_ELEMENTS = 60_000
"""Of the largest array, unless static sizes make it larger: the emulator watches every access."""


@cache
def road(name: str) -> Road:
    return compiled((FOLDER / f"{name}.mlir").read_text())


def odd_sizes(name: str, seed: int) -> dict[str, int]:
    """A size for each symbolic axis, none of which is any tile's; small enough for the emulator."""
    dice = Random(f"{name} {seed}")
    function = entry_function(road(name).algorithm)
    most = max(MOST_ELEMENTS, 4 * largest_array(name, dict.fromkeys(default_sizes(function), 1)))
    while True:
        sizes = {axis: dice.choice(ODD) for axis in default_sizes(function)}
        if largest_array(name, sizes) <= most:
            return sizes


def largest_array(name: str, sizes: dict[str, int]) -> int:
    function = entry_function(road(name).algorithm)
    whole = axis_sizes(function, sizes)
    values = [value for op in function.body.block.ops for value in (*op.operands, *op.results)]
    arrays = [[whole[axis] for axis in diagram.array.axes_of(value.type)] for value in values]
    return max(int(np.prod(array)) for array in arrays)


def wide(array: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.float64))


def check(name: str, sizes: dict[str, int], seed: int) -> None:
    inputs = road(name).inputs(sizes, seed)
    results = run_function(road(name).algorithm, inputs, sizes=sizes).results
    for ours, theirs in zip(results, ORACLES[name](*(wide(np.asarray(given)) for given in inputs)), strict=True):
        # Both compute in float64, but the constants of an example have nine or more digits.
        largest = float(theirs.abs().max()) if theirs.numel() else 0.0
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-6 * largest)
    for verdict in road(name).verdicts(inputs, sizes):
        assert verdict.ok, f"{name} at {sizes}: {verdict}"


def test_every_example_has_an_oracle():
    assert sorted(ORACLES) == EXAMPLES


@pytest.mark.sample(11)
@pytest.mark.parametrize("name", EXAMPLES)
def test_default_sizes(name: str):
    check(name, default_sizes(entry_function(road(name).algorithm)), seed=0)


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", EXAMPLES)
def test_odd_sizes(name: str):
    check(name, odd_sizes(name, 0), seed=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", EXAMPLES)
def test_more_odd_sizes(name: str, seed: int):
    check(name, odd_sizes(name, seed), seed)


@pytest.mark.sample(11)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_axis_of_size_zero(name: str):
    """Nothing is loaded that is not there, and what is reduced over nothing is the neutral element."""
    function = entry_function(road(name).algorithm)
    for axis in default_sizes(function):
        sizes = odd_sizes(name, 0) | {axis: 0}
        for verdict in road(name).verdicts(road(name).inputs(sizes), sizes):
            assert verdict.ok or "cannot be verified" in str(verdict), f"{name} at {sizes}: {verdict}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_products_run_on_tensor_cores(name: str):
    """One tensor-core product for each contraction of narrow operands, at least."""
    contractions = [op for op in road(name).algorithm.walk() if isinstance(op, diagram.ContractOp)]
    narrow = [op for op in contractions if str(diagram.array.format_of(op.lhs.type)) in NARROW]
    products = [op for op in road(name).module.walk() if isinstance(op, cuda.ProductOp)]
    on_tensor_cores = [op for op in products if op.instruction.data != "fma"]
    assert len(on_tensor_cores) >= len(narrow)
