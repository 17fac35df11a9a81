# pyright: standard
"""Elements that are added up where an index says: gradients of rows that an index chose, `index_add`, `scatter_add`.

They are scattered (`diagram.scatter`) to zeros, and what else the tensor has is added to that. PyTorch checks the index
at each call, as that of a lookup."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from treadle.language.array import Array
from treadle.torch.axes import Dims, leaves
from treadle.torch.lookups import Index, positions
from treadle.torch.registry import aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported


@computed(aten.index_put.default)
def index_put(body: Body, x: Tensor, given: Sequence[Index | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if not accumulate:
        raise Unsupported("it writes at positions that data say, of which the last of several stays")
    at = [dim for dim, each in enumerate(given) if each is not None]
    if len(at) != 1:
        raise Unsupported("an index along several dimensions, at which it adds")
    (dim,) = at
    index = given[dim]
    assert index is not None
    found = positions(x, dim, index, "index")
    return _added(body, x, dim, found, values, (*x.dims[:dim], *found.dims, *x.dims[dim + 1 :]))


@computed(aten.scatter_add.default)
def scatter_add(body: Body, x: Tensor, dim: int, index: Index, values: Tensor) -> Tensor:
    """The index has the other dimensions of the tensor, all of them."""
    if not x.dims:
        raise Unsupported("a sum in a tensor without dimensions")
    at = dim % len(x.dims)
    found = positions(x, at, index, "gather")
    for i, (own, other) in enumerate(zip(x.dims, found.dims, strict=True)):
        if i != at:
            body.unify(own, other)
    return _added(body, x, at, found, values, found.dims)


def _added(body: Body, x: Tensor, at: int, found: Tensor, values: Tensor, dims: Dims) -> Tensor:
    """A tensor with elements of these dimensions added at positions along one of its own."""
    if torch.are_deterministic_algorithms_enabled():
        raise Unsupported("sums in no fixed order, where PyTorch is to use deterministic algorithms")
    body.keep_whole(x.dims[at])
    if len(values.dims) > len(dims):
        raise Unsupported("what is added has more dimensions than there are positions")
    for own, other in zip(reversed(dims), reversed(values.dims), strict=False):
        if leaves(other):
            body.unify(own, other)
    if body.graph is None:
        return body.tensor(x.dims)
    array = body.whole(values, [axis for axes in dims for axis in axes])
    along = body.names[leaves(x.dims[at])[0]]
    axes = [body.names[axis] for own in x.dims for axis in leaves(own)]
    place = ", ".join((found.text or "") if name == along else name for name in axes)
    named = {name: each.value for name, each in found.named.items()}
    sums = Array(body.graph, body.graph.scatter(array.value, place, axes, named))
    return body.tensor(x.dims, sums if _is_nothing(x) else body.whole(x) + sums)


def _is_nothing(x: Tensor) -> bool:
    """Whether it is zeros, made for the sums."""
    return not isinstance(x.array, Array) and x.array == 0


def embedding_dense_backward(
    gradient: torch.Tensor, index: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    """The sum of the gradients of each row, none for that of the padding."""
    if by_frequency:
        return NotImplemented
    sums = gradient.new_zeros((rows, *gradient.shape[index.dim() :]), dtype=torch.float32)
    sums = sums.index_put([index], gradient.to(torch.float32), accumulate=True).to(gradient.dtype)
    if padding < 0:
        return sums
    is_padding = torch.arange(rows, device=sums.device) == padding
    return torch.where(is_padding.view(-1, *[1] * (sums.dim() - 1)), 0, sums)


SUMS = frozenset((aten.index_put.default, aten.scatter_add.default))
"""What adds elements where an index says: more than one operation of PyTorch's does."""


__all__ = ["SUMS", "embedding_dense_backward"]
