# pyright: standard
"""Elements that are read in one of a few ways, by their position: what is rolled comes from before a position or from
behind it, and what is reflected from either edge or from between. As `treadle.torch.operations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute

from treadle.language.array import Array
from treadle.language.functions import chosen
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.elsewhere import is_along, known, read_at
from treadle.torch.registry import aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported
from treadle.torch.windows import Place

MOST_READS = 4
"""Of which each element is one: along two dimensions that are rolled, or one that is reflected. Of more, the model
finds PyTorch's copy faster (512 images of 128 x 128 in f16, reflected along both, on an H100: 53 us for 23)."""


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
    found = {i: _around(known(tensor.shape[i]), shift) for i, shift in by.items()}
    return _in_ways(body, tensor, found, result)


def _around(size: int, shift: int) -> list[Way]:
    return [Way(shift, size - shift, 1), Way(size, -shift, 1)]


def _shifts(tensor: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> dict[int, int]:
    """How far along each dimension, from 1 on and less than its size."""
    by: dict[int, int] = {}
    for shift, dim in zip(shifts, dims or [0], strict=True):
        if tensor.along(dim):
            at = dim % len(tensor.dims)
            by[at] = (by.get(at, 0) + known(shift)) % known(tensor.shape[at])
    return {at: shift for at, shift in by.items() if shift}


@computed(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflected(body: Body, tensor: Tensor, widths: Sequence[int]) -> Tensor:
    """With the elements before and after the last dimensions that are as far inside."""

    def ways(size: int, before: int, after: int) -> list[Way]:
        middle = Way(before + size, -before, 1)
        return [Way(before, before, -1), middle, Way(before + size + after, before + 2 * (size - 1), -1)]

    return _extended(body, tensor, widths, ways)


@computed(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def repeated(body: Body, tensor: Tensor, widths: Sequence[int]) -> Tensor:
    """With the first and the last element of the last dimensions before and after them."""

    def ways(size: int, before: int, after: int) -> list[Way]:
        middle = Way(before + size, -before, 1)
        return [Way(before, 0, 0), middle, Way(before + size + after, size - 1, 0)]

    return _extended(body, tensor, widths, ways)


def _extended(body: Body, tensor: Tensor, widths: Sequence[int], of: Callable[[int, int, int], list[Way]]) -> Tensor:
    """A tensor whose last dimensions, the last one first, are longer by so many elements before and after."""
    rank = len(tensor.dims)
    pairs = [(known(a), known(b)) for a, b in zip(widths[::2], widths[1::2], strict=True)]
    if any(width < 0 for pair in pairs for width in pair):
        raise Unsupported("elements are cut off, and not added")
    added = {rank - 1 - i: pair for i, pair in enumerate(pairs) if any(pair)}
    made = iter(body.new_dims([known(tensor.shape[i]) + sum(added[i]) for i in sorted(added)]))
    result = tuple(next(made) if i in added else axes for i, axes in enumerate(tensor.dims))
    found = {i: of(known(tensor.shape[i]), *pair) for i, pair in added.items() if tensor.along(i)}
    return _in_ways(body, tensor, found, result)


@dataclass(frozen=True)
class Way:
    """Up to a position along the result's dimension: where elements are read along the tensor's, from where on and by
    what step."""

    end: int
    start: int
    step: int


def _in_ways(body: Body, tensor: Tensor, ways: Mapping[int, Sequence[Way]], result: Dims) -> Tensor:
    """Each element of what is read in one of several ways along each dimension (Unsupported for too many)."""
    kept = {
        i: [each for each, end in zip(of, [0, *(each.end for each in of)], strict=False) if each.end > end]
        for i, of in ways.items()
    }
    numbers = (sum(each.step != 0 for each in of) for of in kept.values())  # an edge is read from near memory
    if (count := prod(numbers)) > MOST_READS:
        raise Unsupported(f"read in {count} ways, of which each element is one")
    return body.tensor(result, _chosen(body, tensor, sorted(kept.items()), {}, result))


def _chosen(
    body: Body, tensor: Tensor, ways: Sequence[tuple[int, Sequence[Way]]], places: Mapping[int, Place], dims: Dims
) -> Array | float | None:
    if not ways:
        return read_at(body, tensor, places, dims).array
    (at, those), *rest = ways
    found = [
        _chosen(body, tensor, rest, {**places, at: Place(each.start, _steps(dims[at], each.step))}, dims)
        for each in those
    ]
    chosen_yet = found[-1]
    if body.graph is None or not isinstance(chosen_yet, Array) or not is_along(body, tensor, at):
        return chosen_yet
    position, _ = body.place_along(leaves(dims[at]))
    assert isinstance(position, Array)
    for each, array in list(zip(those, found, strict=True))[-2::-1]:
        chosen_yet = chosen(position < each.end, array, chosen_yet, _format(chosen_yet))
    return chosen_yet


def _steps(axes: tuple[Axis, ...], step: int) -> tuple[tuple[tuple[Axis, ...], int], ...]:
    return ((axes, step),) if step else ()


def _format(array: Array) -> Attribute:
    return i32 if array.format == "i32" else f32
