# pyright: standard
"""The largest and the smallest elements along a dimension, the first few of an order, and where they are.

PyTorch gives both in one operation; kernels join what is asked for one by one. Of equal elements a kernel takes the
first, which PyTorch's own need not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from treadle.language.array import Array
from treadle.language.extremes import extreme, in_order
from treadle.language.stacked import chosen_by
from treadle.torch.axes import Axis, leaves
from treadle.torch.registry import FORMATS, aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported

MOST = 8
"""How many of an order kernels look for, where each is an extreme of what those before it leave: of more (the tokens
that one is drawn from) PyTorch's own are left."""


# -- as operations of PyTorch ----------------------------------------------------------------------


@torch.library.custom_op("treadle::top_values", mutates_args=())
def top_values(x: torch.Tensor, k: int, dim: int, largest: bool) -> torch.Tensor:
    """The first k elements of an order along a dimension, from the largest on or from the smallest."""
    return x.topk(k, dim, largest).values


@torch.library.custom_op("treadle::top_places", mutates_args=())
def top_places(x: torch.Tensor, values: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    """Where these, which are known before, are along the dimension, in int64."""
    return x.topk(values.shape[dim], dim, largest).indices


@torch.library.custom_op("treadle::extreme_place", mutates_args=())
def extreme_place(x: torch.Tensor, value: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    """Where the extreme, which is known before, is along the dimension, which stays; a NaN is one."""
    return x.argmax(dim, True) if largest else x.argmin(dim, True)


@top_values.register_fake
def _(x: torch.Tensor, k: int, dim: int, largest: bool) -> torch.Tensor:
    return x.new_empty([k if i == dim % x.dim() else size for i, size in enumerate(x.shape)])


@extreme_place.register_fake
@top_places.register_fake
def _(x: torch.Tensor, values: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    return x.new_empty(values.shape, dtype=torch.int64)


TOP_VALUES, TOP_PLACES, EXTREME_PLACE = (
    getattr(torch.ops.treadle, each).default for each in ("top_values", "top_places", "extreme_place")
)


# -- PyTorch's operations, in these ----------------------------------------------------------------


def topk(x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """PyTorch's own of many, and of what programs do not compute in."""
    if not isinstance(k, int) or not 1 <= k <= MOST or not _is_ours(x):
        return NotImplemented
    values = top_values(x, k, dim, largest)
    return values, top_places(x, values, dim, largest)


def largest_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _along(x, dim, keepdim, largest=True) if _is_ours(x) else NotImplemented


def smallest_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _along(x, dim, keepdim, largest=False) if _is_ours(x) else NotImplemented


def _along(x: Any, dim: int, keepdim: bool, largest: bool) -> tuple[Any, Any]:
    value = x.amax(dim, True) if largest else x.amin(dim, True)
    place = extreme_place(x, value, dim, largest)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _is_ours(x: Any) -> bool:
    return x.dtype in FORMATS and x.dim() > 0


# -- as programs -----------------------------------------------------------------------------------


@computed(TOP_VALUES)
def values_in_program(body: Body, x: Tensor, k: int, dim: int, largest: bool) -> Tensor:
    return _stacked(body, x, k, dim, largest, 0)


@computed(TOP_PLACES)
def places_in_program(body: Body, x: Tensor, values: Tensor, dim: int, largest: bool) -> Tensor:
    """Of the same order as the values, which a kernel makes once."""
    return _stacked(body, x, values.shape[dim], dim, largest, 1)


@computed(EXTREME_PLACE)
def place_in_program(body: Body, x: Tensor, value: Tensor, dim: int, largest: bool) -> Tensor:
    place = _place(body, x, dim, True, largest)
    return place if body.graph is None else replace(place, parts=(place.array,))


@computed(aten.argmax.default)
def argmax(body: Body, x: Tensor, dim: int | None = None, keep: bool = False) -> Tensor:
    return _place(body, x, dim, keep, largest=True)


@computed(aten.argmin.default)
def argmin(body: Body, x: Tensor, dim: int | None = None, keep: bool = False) -> Tensor:
    return _place(body, x, dim, keep, largest=False)


def _place(body: Body, x: Tensor, dim: int | None, keep: bool, largest: bool) -> Tensor:
    """Where the extreme is along a dimension; of all elements, as they follow each other, where none is named."""
    over = [*range(len(x.dims))] if dim is None else [x.place(dim)]

    def place(array: Array, axes: list[str]) -> Array:
        places, _ = body.place_along([axis for i in over if i is not None for axis in leaves(x.dims[i])])
        if not isinstance(places, Array):
            return body.fill(0, array.axes)
        _, found = extreme(array, axes, places, largest)
        return found

    return body.reduce(x, [i for i in over if i is not None], keep, place)


def _stacked(body: Body, x: Tensor, k: int, dim: int, largest: bool, which: int) -> Tensor:
    at = dim % len(x.dims)
    axes = leaves(x.dims[at])
    if not axes:
        raise Unsupported("the first of an order of one element")
    ranks = body.new_dims((k,))[0]
    dims = (*x.dims[:at], ranks, *x.dims[at + 1 :])
    if body.graph is None:
        return body.tensor(dims)
    places, _ = body.place_along(axes)
    assert isinstance(places, Array)
    found = [each[which] for each in in_order(body.whole(x), [body.names[axis] for axis in axes], places, k, largest)]
    return replace(body.tensor(dims, side_by_side(body, leaves(ranks), found)), parts=tuple(found))


def side_by_side(body: Body, axes: Sequence[Axis], arrays: Sequence[Array]) -> Array:
    """Arrays as one, along a dimension that is this axis; one alone needs none."""
    if len(arrays) == 1:
        return arrays[0]
    ranks, _ = body.place_along(axes)
    assert isinstance(ranks, Array)
    return chosen_by(ranks, arrays)


__all__ = [
    "EXTREME_PLACE",
    "MOST",
    "TOP_PLACES",
    "TOP_VALUES",
    "largest_along",
    "side_by_side",
    "smallest_along",
    "topk",
]
