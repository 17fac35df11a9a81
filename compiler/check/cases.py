"""Random cases for a law: sizes, numbers, the pieces of the axis, and the order in which parts are merged.

Hypothesis draws them, and makes a case that fails as small as it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute

from treadle.dialects.diagram import ExtentOp, LawOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, is_array, sizes_of
from treadle.runtime.interpreter.arrays import AnyArray, dtype_of

LONGEST = 7
"""Elements along the axis of a law."""

WIDEST = 2
"""Elements along every other symbolic axis."""

Tree: TypeAlias = "int | tuple[Tree, Tree]"
"""The order of merging: a part of the axis by its number, or two neighbours merged."""


@dataclass(frozen=True)
class Case:
    sizes: Mapping[str, int]
    inputs: tuple[AnyArray, ...]
    """Fractions in arrays of objects, integers in arrays of integers."""
    cuts: tuple[int, ...]
    """Where the axis is cut; two cuts at one place make an empty piece."""
    tree: Tree

    def pieces(self, axis: str) -> tuple[slice, ...]:
        edges = (0, *self.cuts, self.sizes[axis])
        return tuple(slice(a, b) for a, b in pairwise(edges))


NUMBERS = st.one_of(
    st.integers(-4, 4).map(Fraction),
    st.fractions(-3, 3, max_denominator=8),
    st.sampled_from([Fraction(1000), Fraction(-1000)]),
)
"""Small ones, so that mistakes show; a few large ones, for what overflows."""


@st.composite
def cases(draw: st.DrawFn, law: LawOp, shortest: int = 0) -> Case:
    """Cases of a law over one axis, of which there are at least `shortest` elements."""
    axis = law.over_axes[0]
    sizes = {axis: draw(st.integers(shortest, LONGEST))}
    made = (result.type for op in law.walk() for result in op.results if is_array(result.type))
    for type in (*law.inputs, *made):
        for name, size in sizes_of(type).items():
            if name not in sizes:
                sizes[name] = draw(st.integers(1, WIDEST)) if size == DYNAMIC else size
    for name in (op.axis.data for op in law.walk() if isinstance(op, ExtentOp)):
        sizes.setdefault(name, draw(st.integers(1, WIDEST)))
    inputs = tuple(draw(_arrays(type, sizes)) for type in law.inputs)
    cuts = tuple(sorted(draw(st.lists(st.integers(0, sizes[axis]), max_size=4))))
    return Case(sizes, inputs, cuts, draw(_trees(0, len(cuts) + 1)))


def _arrays(type: Attribute, sizes: Mapping[str, int]) -> st.SearchStrategy[AnyArray]:
    shape = tuple(sizes[axis] for axis in axes_of(type))
    count, format = prod(shape), format_of(type)
    if isinstance(format, IntegerType):
        numbers = st.lists(st.integers(0, 3), min_size=count, max_size=count)
        return numbers.map(lambda values: np.array(values, dtype_of(format)).reshape(shape))
    return st.lists(NUMBERS, min_size=count, max_size=count).map(lambda values: _objects(values, shape))


def _objects(values: list[Fraction], shape: tuple[int, ...]) -> AnyArray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


@st.composite
def _trees(draw: st.DrawFn, first: int, count: int) -> Tree:
    """The parts from `first` on, merged in some order."""
    if count == 1:
        return first
    left = draw(st.integers(1, count - 1))
    return draw(_trees(first, left)), draw(_trees(first + left, count - left))
