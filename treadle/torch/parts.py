# pyright: standard
"""Parts of what a program computes: slices, and single places along a dimension.

They are reads at other positions (`diagram.read`). What is read so is rounded as PyTorch rounds it: where an array lies
in memory between kernels, it takes no more than PyTorch's would. A slice that divides its dimension (a half, a third)
is one place along a dimension of parts: halves that are combined have the same axes, and views may split them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.language.array import Array
from treadle.torch.axes import Axis, leaves
from treadle.torch.registry import FORMATS, aten, free
from treadle.torch.tensors import Body, Tensor, Unsupported
from treadle.torch.windows import Place

PARTS = {aten.slice.Tensor, aten.select.int}
"""What may leave elements out."""


@free(aten.slice.Tensor)
def slice_of(body: Body, tensor: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    size = tensor.shape[dim]
    if start in (None, 0) and (end is None or end >= size) and step == 1:
        return tensor
    first, count = _span(size, start, end, step)
    _check(tensor, tensor.along(dim))
    at, shape = dim % len(tensor.dims), [*tensor.shape]
    if step == 1 and size % count == 0 and first % count == 0:
        return _at(body, body.view(tensor, [*shape[:at], size // count, count, *shape[at + 1 :]]), at, first // count)
    body.keep_whole(tensor.dims[at])
    (part,) = body.new_dims([count])
    dims = (*tensor.dims[:at], part, *tensor.dims[at + 1 :])
    if body.graph is None:
        return body.tensor(dims)
    place = Place(first, ((part, step),)).said(body.names)
    return body.tensor(dims, _read(body, tensor, {leaves(tensor.dims[at])[0]: (place, leaves(part))}))


@free(aten.select.int)
def select(body: Body, tensor: Tensor, dim: int, index: Any) -> Tensor:
    at = dim % len(tensor.dims)
    if not tensor.along(dim):
        return body.rearranged(tensor, [axes for i, axes in enumerate(tensor.dims) if i != at])
    size = tensor.shape[dim]
    _check(tensor, tensor.along(dim))
    if not isinstance(size, int) or not isinstance(index, int):
        raise Unsupported("one place of an axis whose size is not known")
    return _at(body, tensor, at, index % size)


def _span(size: Any, start: Any, end: Any, step: int) -> tuple[int, int]:
    """The first position of a slice, and how many it has (Unsupported)."""
    if not all(each is None or isinstance(each, int) for each in (size, start, end)):
        raise Unsupported("a slice of an axis whose size is not known")
    span = range(*slice(start, end, step).indices(size))
    if not span:
        raise Unsupported("it has no elements")
    return span.start, len(span)


def _check(tensor: Tensor, along: Sequence[Axis]) -> None:
    """(Unsupported)"""
    if tensor.text is not None:
        raise Unsupported("a part of positions, of which conditions would know nothing")
    if any(not isinstance(axis.size, int) for axis in along):
        raise Unsupported("a part of an axis whose size is not known")


def _at(body: Body, tensor: Tensor, at: int, index: int) -> Tensor:
    """One place along a dimension, which is gone."""
    dims = tuple(axes for i, axes in enumerate(tensor.dims) if i != at)
    if body.graph is None:
        return body.tensor(dims)
    places: dict[Axis, tuple[str, Sequence[Axis]]] = {}
    for axis in reversed(leaves(tensor.dims[at])):
        places[axis] = str(index % axis.size), ()
        index //= axis.size
    return body.tensor(dims, _read(body, tensor, places))


def _read(body: Body, tensor: Tensor, places: Mapping[Axis, tuple[str, Sequence[Axis]]]) -> Array | float | None:
    """The array of a tensor at these places of some axes, each said over others."""
    array, graph = tensor.array, body.graph
    assert graph is not None
    told = {body.names[axis]: (place, [body.names[each] for each in over]) for axis, (place, over) in places.items()}
    if not isinstance(array, Array) or told.keys().isdisjoint(array.axes):
        return array
    format = FORMATS.get(tensor.dtype) if tensor.dtype is not None else None
    rounded = array.to(format) if format in SIXTEEN_BIT else array
    at = [told[axis][0] if axis in told else axis for axis in rounded.axes]
    axes = [each for axis in rounded.axes for each in (told[axis][1] if axis in told else [axis])]
    read = Array(graph, graph.read(rounded.value, at, axes, padded=False))
    return read if rounded.value is array.value else read.to("f32")  # what lies in memory stays as it lies there


__all__ = ["PARTS"]
