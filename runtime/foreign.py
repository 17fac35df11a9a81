"""Operations of other dialects between kernels: what their owner says they compute, at every level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects import tensor
from xdsl.dialects.builtin import ShapedType
from xdsl.ir import Operation

from treadle.dialects.diagram.array import DYNAMIC, shape_of

Foreign: TypeAlias = Mapping[type[Operation], Callable[..., Any]]
"""For a class of operations a function of the operation and of its operands, arrays as numpy arrays; it gives the
result, or a tuple of several. The operation is given so that its attributes can be read."""


def compute(op: Operation, operands: Sequence[Any], foreign: Foreign) -> tuple[Any, ...]:
    """Results of an operation (KeyError if nobody says what it computes, ValueError if results have other shapes than
    their types)."""
    made = foreign[type(op)](op, *operands)
    results = cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)
    if len(results) != len(op.results):
        raise ValueError(f"what computes {op.name} gives {len(results)} results, it has {len(op.results)}")
    for value, result in zip(op.results, results, strict=True):
        shape = shape_of(value.type) if isinstance(value.type, ShapedType) else ()
        given = np.shape(result)
        if len(shape) != len(given) or any(a not in (DYNAMIC, b) for a, b in zip(shape, given, strict=True)):
            raise ValueError(f"what computes {op.name} gives an array of {list(given)}, its type is {value.type}")
    return results


def merged_shape(op: tensor.CollapseShapeOp, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape that an array of a shape has when its dimensions are merged."""
    return tuple(prod(shape[dim.value.data] for dim in group) for group in op.reassociation)
