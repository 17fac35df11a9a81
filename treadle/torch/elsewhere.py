# pyright: standard
"""The elements of a tensor at other places: turned around, padded, the diagonals of matrices, overlapping windows, and
tensors that are written into a part of others. As `treadle.torch.operations`.

Each is a read at affine positions (`diagram.read`), so that nothing is copied first. (`treadle.torch.ways` has those
that are one of several such reads.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects.builtin import f32, i32

from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.functions import chosen
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.elementwise import in_format, to_copy
from treadle.torch.registry import FORMATS, aten, computed, free, typed
from treadle.torch.tensors import Body, Tensor, Unsupported
from treadle.torch.windows import Place


@computed(aten.flip.default)
def flip(body: Body, tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Backwards along some dimensions; one that has a single element is as it was."""
    turned = {tensor.place(dim) for dim in dims if tensor.along(dim)}
    if not turned:
        return body.tensor(tensor.dims, tensor.array)
    made = iter(body.new_dims([tensor.shape[i] for i in range(len(tensor.dims)) if i in turned]))
    result = tuple(next(made) if i in turned else axes for i, axes in enumerate(tensor.dims))
    places = {i: Place(known(tensor.shape[i]) - 1, ((result[i], -1),)) for i in turned if i is not None}
    return read_at(body, tensor, places, result)


@typed(aten.constant_pad_nd.default)
def padded(body: Body, tensor: Tensor, widths: Sequence[int], value: Any = 0, *, made: torch.dtype) -> Tensor:
    """By so many elements of that value before and after the last dimensions, the last one first; by less than none
    elements are cut off."""
    rank = len(tensor.dims)
    pairs = [(known(a), known(b)) for a, b in zip(widths[::2], widths[1::2], strict=True)]
    around = {rank - 1 - i: _Around(before, after) for i, (before, after) in enumerate(pairs) if before or after}
    sizes = {i: each.length(known(tensor.shape[i])) for i, each in around.items()}
    new = iter(body.new_dims([sizes[i] for i in sorted(sizes)]))
    result = tuple(next(new) if i in around else axes for i, axes in enumerate(tensor.dims))
    number = in_format(value, made) if made in FORMATS else float(value) if made.is_floating_point else int(value)
    places = {i: Place(-each.before, ((result[i], 1),)) for i, each in around.items() if leaves(tensor.dims[i])}
    read = read_at(body, tensor, places, result)
    if body.graph is None:
        return read
    for i, each in around.items():
        if number != 0 or not is_along(body, tensor, i):
            kept = _within(body, leaves(result[i]), each.before, known(tensor.shape[i]))
            read = body.tensor(result, _kept(kept, read.array, number, made))
    return read


def is_along(body: Body, tensor: Tensor, dim: int) -> bool:
    """Whether the array has the axis of a dimension, so that a read finds zeros outside."""
    return isinstance(tensor.array, Array) and any(body.names[axis] in tensor.array.axes for axis in tensor.along(dim))


@dataclass(frozen=True)
class _Around:
    """How many elements are added before a dimension and after it; less than none are cut off."""

    before: int
    after: int

    def length(self, size: int) -> int:
        if (length := size + self.before + self.after) <= 0:
            raise Unsupported("it has no elements")
        return length


@computed(aten.copy.default)
def copy(body: Body, tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """What a tensor becomes that another one is written into: that one, in its format and its dimensions."""
    made = to_copy(body, source, tensor.dtype) if source.dtype != tensor.dtype else source
    dims = body.broadcast([tensor, made])
    return body.tensor(dims, made.array)


@typed(aten.slice_scatter.default)
def slice_scatter(
    body: Body,
    tensor: Tensor,
    part: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
    *,
    made: torch.dtype,
) -> Tensor:
    """A tensor with another one in the place of a slice."""
    at = dim % len(tensor.dims)
    if not all(each is None or isinstance(each, int) for each in (tensor.shape[at], start, end)):
        raise Unsupported("a slice of an axis whose size is not known")
    span = range(*slice(start, end, step).indices(tensor.shape[at]))
    if span.step != 1 or not span:
        raise Unsupported("a tensor in the place of a slice that has no elements, or leaves some out")
    for i, (own, other) in enumerate(zip(tensor.dims, part.dims, strict=True)):
        if i != at and (leaves(own) or leaves(other)):
            body.unify(own, other)
    if len(span) == tensor.shape[at]:
        return body.tensor(tensor.dims, part.array)
    along = {at: Place(-span.start, ((tensor.dims[at], 1),))} if part.along(at) else {}
    read = read_at(body, part, along, tensor.dims)
    if body.graph is None:
        return read
    return body.tensor(
        tensor.dims,
        _kept(_within(body, leaves(tensor.dims[at]), span.start, len(span)), read.array, tensor.array, made),
    )


@free(aten.diagonal.default)
def diagonal(body: Body, tensor: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements of matrices whose column is `offset` behind their row, as the last dimension."""
    row, column = (dim % len(tensor.dims) for dim in (dim1, dim2))
    begins = max(-known(offset), 0), max(known(offset), 0)
    length = min(known(tensor.shape[i]) - begin for i, begin in zip((row, column), begins, strict=True))
    if length <= 0:
        raise Unsupported("it has no elements")
    (along,) = body.new_dims([length])
    places = {i: Place(begin, ((along, 1),)) for i, begin in zip((row, column), begins, strict=True)}
    left = [axes for i, axes in enumerate(tensor.dims) if i not in (row, column)]
    return read_at(body, tensor, places, (*left, along))


@free(aten.unfold.default)
def unfold(body: Body, tensor: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of so many elements, so far from each other: which window in the place of the dimension, and where in
    it as the last one."""
    if not tensor.dims:
        raise Unsupported("windows of a tensor without dimensions")
    at = dim % len(tensor.dims)
    number = (known(tensor.shape[at]) - size) // step + 1
    which, inside = body.new_dims([number, size])
    result = (*tensor.dims[:at], which, *tensor.dims[at + 1 :], inside)
    if not tensor.along(at):
        return body.rearranged(tensor, result)
    return read_at(body, tensor, {at: Place(0, ((which, step), (inside, 1)))}, result)


# -- help --------------------------------------------------------------------------------------------


def read_at(body: Body, tensor: Tensor, places: Mapping[int, Place], dims: Dims) -> Tensor:
    """The tensor at these places of some dimensions; the result has these dimensions. Outside of it are zeros, and
    what was 16 bits is read as them (Unsupported)."""
    for dim in places:
        body.keep_whole(tensor.dims[dim])
    array = tensor.array
    if body.graph is None or not isinstance(array, Array):
        return body.tensor(dims, array)
    along = {body.names[leaves(tensor.dims[dim])[0]]: place for dim, place in places.items()}
    if along.keys().isdisjoint(array.axes):
        return body.tensor(dims, array)
    format = FORMATS.get(tensor.dtype) if tensor.dtype is not None else None
    given = array.to(format) if format in SIXTEEN_BIT else array
    at = [along[axis].said(body.names) if axis in along else axis for axis in given.axes]
    padded = any(_may_leave(along[axis], given.size(axis)) for axis in given.axes if axis in along)
    axes = dict.fromkeys(
        each for axis in given.axes for each in (_over(body, along[axis]) if axis in along else [axis])
    )
    read = Array(body.graph, body.graph.read(given.value, at, [*axes], padded))
    return body.tensor(dims, read if given.value is array.value else read.to("f32"))


def _may_leave(place: Place, size: int) -> bool:
    """Whether it leaves a dimension, or runs backwards, which only a padded read may."""
    return any(step < 0 for _, step in place.steps) or place.leaves_out(size)


def _over(body: Body, place: Place) -> list[str]:
    return [body.names[axis] for axes, _ in place.steps for axis in leaves(axes)]


def _within(body: Body, axes: Sequence[Axis], start: int, length: int) -> Condition:
    """Whether a position along a dimension is one of so many from a start on."""
    position, _ = body.place_along(axes)
    if not isinstance(position, Array):
        assert body.graph is not None
        position = body.fill(0, ())
    return (position >= start) & (position < start + length)


def _kept(condition: Condition, kept: Any, other: Any, made: torch.dtype) -> Array:
    return chosen(condition, kept, other, f32 if made.is_floating_point else i32)


def known(size: Any) -> int:
    """A number, for which alone a program is made where it may change."""
    return int(size)


__all__ = ["is_along", "known", "read_at"]
