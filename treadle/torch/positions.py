# pyright: standard
"""Indices that are positions of a dimension, in order: what they choose is the tensor itself, under other dimensions,
or a slice of it. So a mask of keys that a model looks up at 0, 1, 2, ... stays a mask that conditions can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from treadle.torch.made import is_contiguous, made_of, shape_of
from treadle.torch.registry import FREE, aten

SAME = {aten.clone.default, aten.alias.default, aten.expand.default}
"""These leave positions along a dimension, counted from the end, what they are."""


def read_in_order(graph: Graph) -> None:
    """Every lookup at all positions of neighbouring dimensions, or at some in a row, becomes a view."""
    for node in graph.find_nodes(op="call_function", target=aten.index.Tensor):
        with graph.inserting_before(node):
            seen = _seen(graph, node) if is_contiguous(node) else None
        if seen is not None:
            node.replace_all_uses_with(seen)
            graph.erase_node(node)


def _seen(graph: Graph, node: Node) -> Node | None:
    """What a lookup is another word for, if it is."""
    table: Any = node.args[0]
    given: Any = node.args[1]
    if (places := _places(table, given)) is not None:
        return _copied(graph, node, _rearranged(graph, node, table, places), table)
    at = [dim for dim, each in enumerate(given) if each is not None]
    if len(at) == 1 and (start := _start(given[at[0]], shape_of(table)[at[0]])) is not None:
        size = shape_of(given[at[0]])[0]
        part = made_of(graph, node, aten.slice.Tensor, (table, at[0], start, start + size))
        return _copied(graph, node, part, table)
    return None


def _start(index: Node, size: Any) -> int | None:
    """The first of positions in a row that the graph holds as a constant (a list that a model was written with)."""
    while index.target in (aten.lift_fresh_copy.default, aten.clone.default, aten.alias.default):
        (index,) = index.all_input_nodes
    if index.op != "get_attr" or not isinstance(size, int):
        return None
    held: Any = getattr(index.graph.owning_module, str(index.target), None)
    if type(held) is not torch.Tensor or held.dim() != 1 or held.dtype != torch.int64 or not held.numel():
        return None
    with unset_fake_temporarily():
        places = [place + size if place < 0 else place for place in held.tolist()]
    first, last = places[0], places[-1]
    return first if first >= 0 and last < size and places == [*range(first, last + 1)] else None


def _places(table: Node, given: Sequence[Node | None]) -> dict[int, int] | None:
    """For each dimension with an index, that of all indices together, counted from the end, along which it lies."""
    at = [dim for dim, each in enumerate(given) if each is not None]
    if not at or at != [*range(at[0], at[-1] + 1)]:
        return None
    found = {dim: along(each, shape_of(table)[dim]) for dim, each in enumerate(given) if each is not None}
    known = {dim: place for dim, place in found.items() if place is not None}
    return known if len({*known.values()}) == len(at) else None


def along(node: Node, size: Any) -> int | None:
    """The dimension, counted from the end, along which an integer tensor is 0, 1, 2, ... up to that size; None if
    there is none, or the tensor varies along others."""
    if node.target is aten.arange.start_step:
        return -1 if node.args[0] == 0 and node.args[2:] in ((), (1,)) and shape_of(node)[0] == size else None
    operand: Any = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(operand, Node):
        return None
    place = None
    if node.target in SAME or _changes_nothing(node, operand):
        place = along(operand, size)
    elif node.target is aten.unsqueeze.default and (below := along(operand, size)) is not None:
        rank, dim = len(shape_of(node)), cast(int, node.args[1])
        new, old = dim % rank, rank - 1 + below
        place = (old if old < new else old + 1) - rank
    return place


def _changes_nothing(node: Node, operand: Node) -> bool:
    if node.target is aten.slice.Tensor:
        return tuple(shape_of(node)) == tuple(shape_of(operand)) and node.args[4:] in ((), (1,))
    added: Any = node.args[1] if len(node.args) > 1 else None
    return node.target in (aten.add.Tensor, aten.add.Scalar) and isinstance(added, int) and added == 0


def _rearranged(graph: Graph, node: Node, table: Node, places: dict[int, int]) -> Node:
    """The table with its dimensions where the lookup has them."""
    rank, shape = len(shape_of(table)), shape_of(node)
    first, last = min(places), max(places)
    moved = sorted(places, key=places.__getitem__)
    order = [*range(first), *moved, *range(last + 1, rank)]
    looked = len(shape) - (rank - len(places))
    seen = table
    if order != [*range(rank)]:
        sizes = [shape_of(table)[dim] for dim in order]
        seen = made_of(graph, node, aten.permute.default, (seen, order), shape=sizes)
    for place in range(looked):
        if place - looked not in places.values():
            sizes = [*shape_of(seen)]
            sizes.insert(first + place, 1)
            seen = made_of(graph, node, aten.unsqueeze.default, (seen, first + place), shape=sizes)
    if tuple(shape_of(seen)) == tuple(shape):
        return seen
    return made_of(graph, node, aten.expand.default, (seen, [*shape]), shape=shape)


def _copied(graph: Graph, node: Node, seen: Node, table: Node) -> Node:
    """With the memory that a lookup has: its own, and in order, where somebody may see that."""
    in_order = seen.target is aten.unsqueeze.default and is_contiguous(table)
    if in_order and all(map(_asks_of_numbers, node.users)):
        return seen
    copy = made_of(graph, node, aten.clone.default, (seen,), {"memory_format": torch.contiguous_format})
    copy.meta["val"] = node.meta["val"]
    return copy


def _asks_of_numbers(user: Node) -> bool:
    """Whether an operation makes a tensor of its own, element by element: nobody sees whose memory it read."""
    target: Any = user.target
    return user.op == "call_function" and target not in FREE and torch.Tag.pointwise in target.tags


__all__ = ["along", "read_in_order"]
