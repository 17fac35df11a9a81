"""Gradients held against central differences in float64, at the level of diagrams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from roads import fitting
from treadle.compiler.pipeline import run_passes
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.runtime.inputs import make_inputs
from treadle.runtime.interpreter import entry_function, run_function

STEP = 1e-6
"""Of a central difference: the error is its square times a third derivative, and the rounding of float64 over it."""

TOLERANCE = 1e-6
"""Of what a difference says, beside the length of the gradient: rounding 1e-16 / 1e-6 of sums of thousands, and the
square of the step."""

ODD = (5, 3, 7, 2, 11, 4, 9, 6)

Arrays = Sequence[NDArray[Any]]


def differentiated(module: ModuleOp, of: Sequence[str] = ()) -> ModuleOp:
    """The gradient of a program, verified."""
    gradient = module.clone()
    run_passes(gradient, [ArgSpec("diagram-differentiate", {"of": tuple(of)} if of else {})])
    return gradient


def odd_sizes(function: FuncOp) -> dict[str, int]:
    """Small sizes of its symbolic axes, all of them different, in which its reads fit."""
    types = [*function.function_type.inputs, *(v.type for op in function.body.walk() for v in op.results)]
    symbolic = list(dict.fromkeys(axis for type in types for axis, size in sizes_of(type).items() if size == DYNAMIC))
    sizes = {axis: ODD[i % len(ODD)] for i, axis in enumerate(symbolic)}
    given = {axis for type in function.function_type.inputs for axis in sizes_of(type)}
    if any(op.name == "diagram.read" for op in function.body.walk()):
        sizes |= {axis: 13 for axis in symbolic if axis in given}
    return {axis: size for axis, size in fitting(function, sizes).items() if axis in given}


def inputs_of(function: FuncOp, sizes: Mapping[str, int], seed: int = 0) -> list[NDArray[Any]]:
    """Random inputs in float64: no format rounds them."""
    random = np.random.default_rng(seed)
    drawn = make_inputs(function, sizes, seed)
    return [
        np.asarray(each) if np.asarray(each).dtype.kind in "iu" else random.standard_normal(np.shape(each))
        for each in drawn
    ]


def is_float(type: Any) -> bool:
    return str(format_of(type)).startswith(("f", "bf"))


def run(module: ModuleOp, arguments: Arrays) -> list[NDArray[Any]]:
    return list(run_function(module, arguments).results)


def check(module: ModuleOp, of: Sequence[str] = (), sizes: Mapping[str, int] | None = None) -> ModuleOp:
    """Compare the gradient of a program by each argument with what a step along a random direction does."""
    function = entry_function(module)
    inputs = inputs_of(function, odd_sizes(function) if sizes is None else sizes)
    results = run(module, inputs)
    random = np.random.default_rng(1)
    floats = [result for result, type in zip(results, function.function_type.outputs, strict=True) if is_float(type)]
    # What is infinite, as the logarithm of nothing is, moves with nothing.
    cotangents = [np.where(np.isfinite(result), random.standard_normal(result.shape), 0.0) for result in floats]
    gradient = differentiated(module, of)
    gradients = run(gradient, [*inputs, *results, *cotangents])
    names = [argument.name_hint for argument in function.body.block.args]
    wanted = [
        i for i, type in enumerate(function.function_type.inputs) if is_float(type) and (not of or names[i] in of)
    ]
    assert len(gradients) == len(wanted)
    for i, found in zip(wanted, gradients, strict=True):
        assert found.shape == inputs[i].shape
        direction = random.standard_normal(found.shape)
        ahead, behind = (run(module, _moved(inputs, i, direction, sign * STEP)) for sign in (1, -1))
        pairs = [
            _difference(one, other)
            for one, other, type in zip(ahead, behind, function.function_type.outputs, strict=True)
            if is_float(type)
        ]
        said = sum(float(np.sum(c * d)) for c, d in zip(cotangents, pairs, strict=True))
        made = float(np.sum(found * direction))
        # What sums of this size may lose: the length of the gradient, and of what the difference adds up.
        lengths = (np.linalg.norm(c) * np.linalg.norm(d) for c, d in zip(cotangents, pairs, strict=True))
        scale = np.linalg.norm(found) + sum(lengths)
        assert np.isfinite(made), f"gradient by %{names[i]} is no number"
        assert abs(said - made) <= TOLERANCE * (scale + 1), f"by %{names[i]}: differences say {said}, it is {made}"
    return gradient


def _difference(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    finite = np.isfinite(one) & np.isfinite(other)
    return np.subtract(one, other, where=finite, out=np.zeros(one.shape)) / (2 * STEP)


def _moved(inputs: Arrays, i: int, direction: NDArray[Any], by: float) -> list[NDArray[Any]]:
    return [each + by * direction if k == i else each for k, each in enumerate(inputs)]
