"""Arrays with other dimensions: the same memory where strides allow it, else a copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from treadle.runtime.backend import Backend, Copies


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """In bytes, of an array in one piece, the last dimension innermost."""
    return tuple(itemsize * prod(shape[i + 1 :]) for i in range(len(shape)))


def merged_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of one dimension that stands for several; None where there are gaps between them. Of a dimension with
    one element the stride says nothing."""
    steps = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if 0 in shape or not steps:
        return strides[-1]
    (_, step), length = steps[-1], 1
    for size, stride in reversed(steps):
        if stride != step * length:
            return None
        length *= size
    return step


def regrouped(backend: Backend, array: Any, first: int, count: int, shape: tuple[int, ...]) -> Any:
    """The array in another shape: `count` dimensions from `first` on become one, or, where the shape has more
    dimensions than the array, one becomes `count`."""
    after = first + count
    if len(shape) > len(array.shape):
        inner = contiguous_strides(shape[first:after], array.strides[first])
        return backend.view(array, 0, shape, (*array.strides[:first], *inner, *array.strides[first + 1 :]))
    stride = merged_stride(array.shape[first:after], array.strides[first:after])
    if stride is not None:
        return backend.view(array, 0, shape, (*array.strides[:first], stride, *array.strides[after:]))
    packed = copied(backend, array)
    return backend.view(packed, 0, shape, contiguous_strides(shape, packed.dtype.itemsize))


def copied(backend: Backend, array: Any) -> Any:
    """A copy without gaps, by way of the memory of the host where the backend has no other."""
    if isinstance(backend, Copies):
        return backend.copy(array)
    return backend.upload(np.ascontiguousarray(backend.download(array)))
