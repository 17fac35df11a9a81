# pyright: standard
"""The elements of a tensor at other places: turned around, rolled, padded, the diagonals of matrices, overlapping
windows, and tensors that are written into a part of others. As `treadle.torch.operations`.

Each is a read at affine positions (`diagram.read`), so that nothing is copied first, or a choice between a few of
them: what is rolled comes from before a position or from behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute

from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.functions import chosen
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.elementwise import in_format, to_copy
from treadle.torch.registry import FORMATS, aten, computed, free, typed
from treadle.torch.tensors import Body, Tensor, Unsupported
from treadle.torch.windows import Place

MOST_READS = 4
"""Of which each element is one: along two dimensions that are rolled, or one that is reflected. Of more, the model
finds PyTorch's copy faster (512 images of 128 x 128 in f16, reflected along both, on an H100: 53 us for 23)."""


@computed(aten.flip.default)
def flip(body: Body, tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Backwards along some dimensions; one that has a single element is as it was."""
    turned = {tensor.place(dim) for dim in dims if tensor.along(dim)}
    if not turned:
        return body.tensor(tensor.dims, tensor.array)
    made = iter(body.new_dims([tensor.shape[i] for i in range(len(tensor.dims)) if i in turned]))
    result = tuple(next(made) if i in turned else axes for i, axes in enumerate(tensor.dims))
    places = {i: Place(_known(tensor.shape[i]) - 1, ((result[i], -1),)) for i in turned if i is not None}
    return read_at(body, tensor, places, result)


@computed(aten.roll.default)
def roll(body: Body, tensor: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Each element so many places on, the last ones where the first were."""
    if not dims and len(tensor.dims) > 1:
        raise Unsupported("rolled along all dimensions as one")
    by = _shifts(tensor, shifts, dims)
    if not by:
        return body.tensor(tensor.dims, tensor.array)
    made = iter(body.new_dims([tensor.shape[i] for i in sorted(by)]))
    result = tuple(next(made) if i in by else axes for i, axes in enumerate(tensor.dims))
    pieces = {i: _around(_known(tensor.shape[i]), shift) for i, shift in by.items()}
    return _in_pieces(body, tensor, pieces, result)


def _around(size: int, shift: int) -> list[Piece]:
    return [Piece(shift, size - shift, 1), Piece(size, -shift, 1)]


def _shifts(tensor: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> dict[int, int]:
    """How far along each dimension, from 1 on and less than its size."""
    by: dict[int, int] = {}
    for shift, dim in zip(shifts, dims or [0], strict=True):
        if tensor.along(dim):
            at = dim % len(tensor.dims)
            by[at] = (by.get(at, 0) + _known(shift)) % _known(tensor.shape[at])
    return {at: shift for at, shift in by.items() if shift}


@computed(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflected(body: Body, tensor: Tensor, widths: Sequence[int]) -> Tensor:
    """With the elements before and after the last dimensions that are as far inside."""

    def pieces(size: int, before: int, after: int) -> list[Piece]:
        middle = Piece(before + size, -before, 1)
        return [Piece(before, before, -1), middle, Piece(before + size + after, before + 2 * (size - 1), -1)]

    return _extended(body, tensor, widths, pieces)


@computed(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def repeated(body: Body, tensor: Tensor, widths: Sequence[int]) -> Tensor:
    """With the first and the last element of the last dimensions before and after them."""

    def pieces(size: int, before: int, after: int) -> list[Piece]:
        middle = Piece(before + size, -before, 1)
        return [Piece(before, 0, 0), middle, Piece(before + size + after, size - 1, 0)]

    return _extended(body, tensor, widths, pieces)


def _extended(body: Body, tensor: Tensor, widths: Sequence[int], of: Callable[[int, int, int], list[Piece]]) -> Tensor:
    """A tensor whose last dimensions, the last one first, are longer by so many elements before and after."""
    rank = len(tensor.dims)
    pairs = [(_known(a), _known(b)) for a, b in zip(widths[::2], widths[1::2], strict=True)]
    if any(width < 0 for pair in pairs for width in pair):
        raise Unsupported("elements are cut off, and not added")
    added = {rank - 1 - i: pair for i, pair in enumerate(pairs) if any(pair)}
    made = iter(body.new_dims([_known(tensor.shape[i]) + sum(added[i]) for i in sorted(added)]))
    result = tuple(next(made) if i in added else axes for i, axes in enumerate(tensor.dims))
    pieces = {i: of(_known(tensor.shape[i]), *pair) for i, pair in added.items() if tensor.along(i)}
    return _in_pieces(body, tensor, pieces, result)


@dataclass(frozen=True)
class Piece:
    """Up to a position along the result's dimension: where elements are read along the tensor's, from where on and by
    what step."""

    end: int
    start: int
    step: int


def _in_pieces(body: Body, tensor: Tensor, pieces: Mapping[int, Sequence[Piece]], result: Dims) -> Tensor:
    """Each element of what is read in one of several ways along each dimension (Unsupported for too many)."""
    ends = {i: [0, *(each.end for each in ways)] for i, ways in pieces.items()}
    kept = {i: [each for each, end in zip(ways, ends[i], strict=False) if each.end > end] for i, ways in pieces.items()}
    ways = (sum(each.step != 0 for each in found) for found in kept.values())  # an edge is read from near memory
    if (count := prod(ways)) > MOST_READS:
        raise Unsupported(f"read in {count} ways, of which each element is one")
    return body.tensor(result, _chosen(body, tensor, sorted(kept.items()), {}, result))


def _chosen(
    body: Body, tensor: Tensor, pieces: Sequence[tuple[int, Sequence[Piece]]], places: Mapping[int, Place], dims: Dims
) -> Array | float | None:
    if not pieces:
        return read_at(body, tensor, places, dims).array
    (at, ways), *rest = pieces
    found = [
        _chosen(body, tensor, rest, {**places, at: Place(each.start, _steps(dims[at], each.step))}, dims)
        for each in ways
    ]
    chosen_yet = found[-1]
    if body.graph is None or not isinstance(chosen_yet, Array) or not _is_along(body, tensor, at):
        return chosen_yet
    position, _ = body.place_along(leaves(dims[at]))
    assert isinstance(position, Array)
    for each, array in list(zip(ways, found, strict=True))[-2::-1]:
        chosen_yet = chosen(position < each.end, array, chosen_yet, _format(chosen_yet))
    return chosen_yet


def _steps(axes: tuple[Axis, ...], step: int) -> tuple[tuple[tuple[Axis, ...], int], ...]:
    return ((axes, step),) if step else ()


def _format(array: Array) -> Attribute:
    return i32 if array.format == "i32" else f32


@typed(aten.constant_pad_nd.default)
def padded(body: Body, tensor: Tensor, widths: Sequence[int], value: Any = 0, *, made: torch.dtype) -> Tensor:
    """By so many elements of that value before and after the last dimensions, the last one first; by less than none
    elements are cut off."""
    rank = len(tensor.dims)
    pairs = [(_known(a), _known(b)) for a, b in zip(widths[::2], widths[1::2], strict=True)]
    around = {rank - 1 - i: _Around(before, after) for i, (before, after) in enumerate(pairs) if before or after}
    sizes = {i: each.length(_known(tensor.shape[i])) for i, each in around.items()}
    new = iter(body.new_dims([sizes[i] for i in sorted(sizes)]))
    result = tuple(next(new) if i in around else axes for i, axes in enumerate(tensor.dims))
    number = in_format(value, made) if made in FORMATS else float(value) if made.is_floating_point else int(value)
    places = {i: Place(-each.before, ((result[i], 1),)) for i, each in around.items() if leaves(tensor.dims[i])}
    read = read_at(body, tensor, places, result)
    if body.graph is None:
        return read
    for i, each in around.items():
        if number != 0 or not _is_along(body, tensor, i):
            kept = _within(body, leaves(result[i]), each.before, _known(tensor.shape[i]))
            read = body.tensor(result, _kept(kept, read.array, number, made))
    return read


def _is_along(body: Body, tensor: Tensor, dim: int) -> bool:
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
    begins = max(-_known(offset), 0), max(_known(offset), 0)
    length = min(_known(tensor.shape[i]) - begin for i, begin in zip((row, column), begins, strict=True))
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
    number = (_known(tensor.shape[at]) - size) // step + 1
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


def _known(size: Any) -> int:
    """A number, for which alone a program is made where it may change."""
    return int(size)


__all__ = ["read_at"]
