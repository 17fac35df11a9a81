# pyright: standard
"""Elements that an index chooses: rows of an embedding, pages of a cache, the weights of an expert.

They are a read at entries of the index (`diagram.read`): what is chosen is not written down, but read where it lies by
whoever uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from xdsl.ir import Operation, SSAValue

import treadle.language as tl
from treadle.dialects.diagram import ApplyOp, CastOp, ReadOp
from treadle.dialects.diagram.collapse import Regrouping
from treadle.language.array import Array
from treadle.torch.axes import Dims, leaves
from treadle.torch.entries import MOST_ROWS, How
from treadle.torch.registry import aten, computed
from treadle.torch.symbols import likely
from treadle.torch.tensors import Body, Tensor, Unsupported, told

Index: TypeAlias = Callable[[Any, How], Tensor]
"""The positions that an index gives along a dimension of some size, as an operation looks them up (Unsupported)."""

LOOKUPS: dict[Any, int] = {
    aten.embedding.default: 1,
    aten.index_select.default: 2,
    aten.index.Tensor: 1,
    aten.gather.default: 2,
}
"""Operations that choose elements by an `Index`, or several, and as which of their arguments they take it."""

INDEXED: dict[Any, int] = {**LOOKUPS, aten.index_put.default: 1, aten.scatter_add.default: 2}
"""The same, and those that add elements up there (`added.py`)."""


@computed(aten.embedding.default)
def embedding(body: Body, table: Tensor, index: Index, *_: Any, **__: Any) -> Tensor:
    return _rows(body, table, 0, [index], "index_select")


@computed(aten.index_select.default)
def index_select(body: Body, table: Tensor, dim: int, index: Index) -> Tensor:
    return _rows(body, table, dim % len(table.dims), [index], "index_select")


@computed(aten.index.Tensor)
def index(body: Body, table: Tensor, given: Sequence[Index | None]) -> Tensor:
    at = [dim for dim, each in enumerate(given) if each is not None]
    if not at or at != [*range(at[0], at[-1] + 1)]:
        raise Unsupported("an index along dimensions that are no neighbours, which changes their order")
    return _rows(body, table, at[0], [each for each in given if each is not None], "index")


@computed(aten.gather.default)
def gather(body: Body, table: Tensor, dim: int, index: Index, sparse_grad: bool = False) -> Tensor:
    """One element for each of the index, which has the other dimensions of the table."""
    if not table.dims:
        raise Unsupported("gather from a tensor without dimensions")
    at = dim % len(table.dims)
    found = positions(table, at, index, "gather")
    for i, (own, other) in enumerate(zip(table.dims, found.dims, strict=True)):
        if i != at:
            body.unify(own, other)
    chosen = _chosen(body, table, at, found)
    return _read(body, table, {at: found}, found.dims) if chosen is None else chosen


def _chosen(body: Body, table: Tensor, at: int, found: Tensor) -> Tensor | None:
    """One element of each row of what the program computes: a sum in which no other counts. A read would find them
    saved, all of them (the scores of a cross-entropy, of which each row is asked for one)."""
    axes, positions = leaves(table.dims[at]), _as_it_is(found)
    if body.graph is None or found.dims[at] or len(axes) != 1 or positions is None:
        return None
    array, axis = body.whole(table), body.names[axes[0]]
    if not _is_computed(array.value) or axis not in array.axes:
        return None
    return body.tensor(found.dims, _one_of(array, axis, positions))


def _one_of(array: Array, axis: str, positions: Array) -> Array:
    """Of what is made of scores element by element it is made of one score, so that all is one stream of these."""
    op, graph = array.value.owner, array.graph
    if isinstance(op, CastOp):
        return _one_of(Array(graph, op.operand), axis, positions).to(array.format)
    if isinstance(op, ApplyOp) and op.law.root_reference.data == "log_softmax" and op.over_axes == (axis,):
        scores = Array(graph, op.operands[0])
        largest = scores.to("f32").max(axis)
        return _one_of(scores, axis, positions) - largest - tl.log(tl.exp(scores - largest).sum(axis))
    return tl.sum(tl.where(tl.index(axis, array).equals(positions), array, 0.0), over=axis)


def _as_it_is(found: Tensor) -> Array | None:
    """The positions, if they are just an array of the program's arguments."""
    if len(found.named) != 1:
        return None
    ((name, array),) = found.named.items()
    return array if told(found, array, name, None).text == found.text else None


def _is_computed(value: SSAValue) -> bool:
    """Whether it is neither an argument nor a view of one."""
    while isinstance(value.owner, ReadOp | Regrouping):
        value = value.owner.operands[0]
    return isinstance(value.owner, Operation)


def _rows(body: Body, table: Tensor, first: int, given: Sequence[Index], how: How) -> Tensor:
    """The dimensions of the positions in place of those, one after another, that they are along."""
    found = [positions(table, at, index, how) for at, index in enumerate(given, first)]
    dims = body.broadcast(found)
    whole = (*table.dims[:first], *dims, *table.dims[first + len(given) :])
    return _read(body, table, dict(enumerate(found, first)), whole)


def positions(table: Tensor, dim: int, index: Index, how: How) -> Tensor:
    """Those that an index gives along a dimension of a tensor (Unsupported)."""
    size = table.shape[dim]
    if likely(size) > MOST_ROWS:
        raise Unsupported(f"an index along more than {MOST_ROWS} elements, which is not checked beforehand")
    found = index(size, how)
    if not found.axes:
        raise Unsupported("an index of one element, which PyTorch looks up at once")
    return found


def _read(body: Body, table: Tensor, at: Mapping[int, Tensor], dims: Dims) -> Tensor:
    for dim in at:
        body.keep_whole(table.dims[dim])
    if body.graph is None:
        return body.tensor(dims)
    array = body.whole(table)
    places = {body.names[leaves(table.dims[dim])[0]]: found.text or "" for dim, found in at.items()}
    named = {name: each.value for found in at.values() for name, each in found.named.items()}
    repeated = {body.names[axis] for axes in dims for axis in leaves(axes)} - _asked_for(array, at)
    names = [name for axes in dims for axis in leaves(axes) if (name := body.names[axis]) not in repeated]
    read = body.graph.read(array.value, [places.get(name, name) for name in array.axes], names, True, named)
    return body.tensor(dims, Array(body.graph, read))


def _asked_for(array: Array, at: Mapping[int, Tensor]) -> set[str]:
    """The axes along which elements differ: along others an index is repeated."""
    return {*array.axes} | {axis for found in at.values() for each in found.named.values() for axis in each.axes}


__all__ = ["INDEXED", "LOOKUPS", "Index", "positions"]
