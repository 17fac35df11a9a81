"""Whether the gradient that a law states is that of its meaning: held against central differences in float64.

A case is random sizes, numbers and cotangents. For each argument a step along a random direction says how much the
results move, weighed by their cotangents; the gradient says the same by a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.check.cases import LONGEST, WIDEST
from treadle.compiler.errors import at
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.passes.gradients.laws import gradient_of, is_float, why_no_gradient
from treadle.runtime.interpreter.arrays import AnyArray
from treadle.runtime.interpreter.law_run import LawRun

STEP = 1e-5
"""Of a difference: its error is the square of that times a third derivative, and rounding over it."""

TOLERANCE = 1e-5
"""Of the lengths of what is multiplied."""


@dataclass(frozen=True)
class Disagreement:
    """A case in which a gradient is not what differences say, and by which argument."""

    sizes: dict[str, int]
    argument: str
    differences: float
    gradient: float


@dataclass(frozen=True)
class GradientVerdict:
    law: str
    gradient: str
    tried: int
    found: Disagreement | None = None


def check_gradient(module: ModuleOp, law: LawOp, cases: int, seed: int) -> GradientVerdict:
    """Try the gradient that a law states (TreadleError where it cannot be one). Of the cases in which it fails, one
    with the fewest elements is told."""
    assert law.gradient is not None
    name = law.gradient.string_value()
    laws = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, LawOp)}
    gradient = gradient_of(law, laws)
    if gradient is None:
        raise at(law, f"its gradient @{name} is no law")
    if (problem := why_no_gradient(law, gradient)) is not None:
        raise at(gradient, problem)
    random = np.random.default_rng(seed)
    wrong: list[Disagreement] = []
    for _ in range(cases):
        wrong += _disagreements(module, law, gradient, random)
    smallest = min(wrong, key=lambda each: sum(each.sizes.values()), default=None)
    return GradientVerdict(law.sym_name.data, name, cases, smallest)


def _disagreements(
    module: ModuleOp, law: LawOp, gradient: LawOp, random: np.random.Generator
) -> Iterator[Disagreement]:
    sizes = _sizes(law, random)
    inputs = [_drawn(type, sizes, random) for type in law.inputs]
    results = LawRun(module, law, inputs, sizes).meaning()
    # What is no number moves with nothing.
    cotangents = [
        np.where(np.isfinite(result), random.standard_normal(result.shape), 0.0)
        for result, type in zip(results, law.outputs, strict=True)
        if is_float(type)
    ]
    made = iter(LawRun(module, gradient, [*inputs, *results, *cotangents], sizes).meaning())
    for i, (argument, type) in enumerate(zip(law.body.block.args, law.inputs, strict=True)):
        if not is_float(type):
            continue
        found = next(made)
        direction = random.standard_normal(np.shape(inputs[i]))
        moved = [_moved(inputs, i, direction, sign) for sign in (STEP, -STEP)]
        ahead, behind = (LawRun(module, law, each, sizes).meaning() for each in moved)
        pairs = [
            _difference(one, other)
            for one, other, type in zip(ahead, behind, law.outputs, strict=True)
            if is_float(type)
        ]
        said = sum(float(np.sum(c * d)) for c, d in zip(cotangents, pairs, strict=True))
        lengths = [_length(c) * _length(d) for c, d in zip(cotangents, pairs, strict=True)]
        product = float(np.sum(found * direction))
        # Written so that what is no number is wrong, too.
        if not abs(said - product) <= TOLERANCE * (1 + _length(found) + sum(lengths)):
            yield Disagreement(sizes, f"%{argument.name_hint or i}", said, product)


def _sizes(law: LawOp, random: np.random.Generator) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for type in law.inputs:
        for axis, size in sizes_of(type).items():
            most = LONGEST if axis in law.over_axes else WIDEST
            sizes.setdefault(axis, int(random.integers(1, most + 1)) if size == DYNAMIC else size)
    return sizes


def _drawn(type: Any, sizes: dict[str, int], random: np.random.Generator) -> AnyArray:
    shape = tuple(sizes[axis] for axis in axes_of(type))
    return np.asarray(
        random.standard_normal(shape) if is_float(type) else random.integers(0, 4, shape).astype(np.int32)
    )


def _moved(inputs: Sequence[AnyArray], i: int, direction: AnyArray, by: float) -> list[AnyArray]:
    return [each + by * direction if k == i else each for k, each in enumerate(inputs)]


def _difference(one: AnyArray, other: AnyArray) -> AnyArray:
    finite = np.isfinite(one) & np.isfinite(other)
    return np.subtract(one, other, where=finite, out=np.zeros(np.shape(one))) / (2 * STEP)


def _length(array: AnyArray) -> float:
    return float(np.sqrt(np.sum(np.square(array))))
