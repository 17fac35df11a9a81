# pyright: standard
"""What is read and written at the places of the first of an order: the scores of the experts that a token is routed to,
weights among zeros.

An index that comes with the arguments is checked before a kernel reads with it. Places that a program found are places
of the dimension, so there is nothing to check; and what they choose is told by comparing them with positions, for they
are few: nothing is saved in between."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch.fx import Graph, Node
from xdsl.dialects.builtin import i32

from treadle.dialects.diagram.formats import INTEGERS
from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.functions import chosen, where
from treadle.torch.axes import Axis, leaves
from treadle.torch.extremes import EXTREME_PLACE, TOP_PLACES, side_by_side
from treadle.torch.made import made_of, shape_of
from treadle.torch.registry import aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported

# -- as operations of PyTorch ----------------------------------------------------------------------


@torch.library.custom_op("treadle::at_places", mutates_args=())
def at_places(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    """The elements at places along a dimension, all of which are there."""
    return x.gather(dim, places)


@torch.library.custom_op("treadle::among", mutates_args=())
def among(places: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    """Whether each position along a dimension of that size is one of the places."""
    return places.new_zeros(_shape(places, size, dim), dtype=torch.bool).scatter(dim, places, True)


@torch.library.custom_op("treadle::spread", mutates_args=())
def spread(x: torch.Tensor, places: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    """Elements at their places, which differ, along a dimension of that size, and zeros elsewhere."""
    return x.new_zeros(_shape(places, size, dim)).scatter(dim, places, x)


@at_places.register_fake
def _(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    return x.new_empty(places.shape)


@among.register_fake
def _(places: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    return places.new_empty(_shape(places, size, dim), dtype=torch.bool)


@spread.register_fake
def _(x: torch.Tensor, places: torch.Tensor, size: int, dim: int) -> torch.Tensor:
    return x.new_empty(_shape(places, size, dim))


def _shape(places: torch.Tensor, size: int, dim: int) -> list[int]:
    """That of places, with a dimension of the size along which they are."""
    return [size if i == dim % places.dim() else each for i, each in enumerate(places.shape)]


AT_PLACES, AMONG, SPREAD = (getattr(torch.ops.treadle, each).default for each in ("at_places", "among", "spread"))


# -- in a graph ------------------------------------------------------------------------------------


def use_places(graph: Graph) -> None:
    """Read and write at places that the graph finds by these operations."""
    for node in graph.find_nodes(op="call_function", target=aten.gather.default):
        x, dim, places = node.args[:3]
        if _are_places(places, x, dim):
            _instead(graph, node, AT_PLACES, (x, places, dim))
    for target in (aten.scatter.value, aten.scatter.src):
        for node in graph.find_nodes(op="call_function", target=target):
            x, dim, places, written = node.args
            if _are_places(places, x, dim) and not node.kwargs:
                _write(graph, node, x, places, dim, written)


def _are_places(places: Any, x: Any, dim: int) -> bool:
    """Whether these are places that were found along a dimension, one of another tensor that is as large."""
    if places.target not in (TOP_PLACES, EXTREME_PLACE):
        return False
    searched, at = places.args[0], len(shape_of(places))
    if at != len(shape_of(x)) or dim % at != places.args[2] % at:
        return False
    return [*shape_of(searched)] == [*shape_of(x)]


def _write(graph: Graph, node: Node, x: Node, places: Node, dim: int, written: Any) -> None:
    size = shape_of(x)[dim % len(shape_of(x))]
    if isinstance(written, Node) and [*shape_of(written)] != [*shape_of(places)]:
        return
    with graph.inserting_before(node):
        is_there = made_of(graph, node, AMONG, (places, size, dim), dtype=torch.bool)
        if isinstance(written, Node):
            written = made_of(graph, node, SPREAD, (written, places, size, dim))
        else:
            like = node.meta["val"]
            how = {"dtype": like.dtype, "device": like.device}
            written = made_of(graph, node, aten.full.default, ([], written), how, shape=())
    _instead(graph, node, aten.where.self, (is_there, written, x))


def _instead(graph: Graph, node: Node, target: Any, args: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        made = made_of(graph, node, target, args)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


# -- as programs -----------------------------------------------------------------------------------


@computed(AT_PLACES)
def read_in_program(body: Body, x: Tensor, places: Tensor, dim: int) -> Tensor:
    at = dim % len(x.dims)
    for i, (own, other) in enumerate(zip(x.dims, places.dims, strict=True)):
        if i != at:
            body.unify(own, other)
    if body.graph is None:
        return body.tensor(places.dims)
    axes = leaves(x.dims[at])
    array, positions, over = body.whole(x), _positions(body, axes), [body.names[axis] for axis in axes]
    nothing = 0 if array.format in INTEGERS else 0.0
    found = [where(positions.equals(place), array, nothing).sum(over) for place in places.parts]
    return body.tensor(places.dims, side_by_side(body, leaves(places.dims[at]), found))


@computed(AMONG)
def among_in_program(body: Body, places: Tensor, size: Any, dim: int) -> Tensor:
    at, along = dim % len(places.dims), body.positions(size)
    dims = (*places.dims[:at], along.dims[0], *places.dims[at + 1 :])
    if body.graph is None:
        return body.tensor(dims)
    positions = _positions(body, leaves(along.dims[0]))
    return body.tensor(dims, chosen(reduce(Condition.__or__, map(positions.equals, places.parts)), 1, 0, i32))


@computed(SPREAD)
def spread_in_program(body: Body, x: Tensor, places: Tensor, size: Any, dim: int) -> Tensor:
    at, along = dim % len(places.dims), body.positions(size)
    for own, other in zip(x.dims, places.dims, strict=True):
        body.unify(own, other)
    dims = (*places.dims[:at], along.dims[0], *places.dims[at + 1 :])
    if body.graph is None:
        return body.tensor(dims)
    positions, ranks = _positions(body, leaves(along.dims[0])), [body.names[axis] for axis in leaves(places.dims[at])]
    array = body.whole(x)
    nothing = 0 if array.format in INTEGERS else 0.0
    return body.tensor(dims, where(positions.equals(body.whole(places)), array, nothing).sum(ranks))


def _positions(body: Body, axes: Sequence[Axis]) -> Array:
    positions, _ = body.place_along(axes)
    if not isinstance(positions, Array):
        raise Unsupported("a position among one")
    return positions


__all__ = ["use_places"]
