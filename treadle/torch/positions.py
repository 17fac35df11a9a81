# pyright: standard
"""Indices that are positions of a dimension, in order: what they choose is the tensor itself, under other dimensions,
or a slice of it. So a mask of keys that a model looks up at 0, 1, 2, ... stays a mask that conditions can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from treadle.torch.made import is_contiguous, made_of, shape_of, strides_of
from treadle.torch.registry import FREE, aten
from treadle.torch.symbols import Described

MOVED = {aten.clone.default, aten.alias.default, aten.expand.default, aten.unsqueeze.default}
"""These leave positions what they are, and all but the last where they are, counted from the end."""


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
        return _copied(graph, node, _part(graph, node, table, at[0], start, given[at[0]]), table)
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


def _places(table: Node, given: Sequence[Node | None]) -> dict[int, tuple[int, Node]] | None:
    """For each dimension with an index, that of all indices together, counted from the end, along which it lies, and
    the positions; none of them is outside."""
    at = [dim for dim, each in enumerate(given) if each is not None]
    if not at or at != [*range(at[0], at[-1] + 1)]:
        return None
    found = {dim: positions for dim, each in enumerate(given) if each is not None and (positions := along(each))}
    if len({place for place, _ in found.values()}) < len(at):
        return None
    inside = all(shape_of(arange)[0] <= shape_of(table)[dim] for dim, (_, arange) in found.items())
    return found if inside else None


def along(node: Node) -> tuple[int, Node] | None:
    """The dimension, counted from the end, along which an integer tensor is 0, 1, 2, ..., and the operation that gives
    these; None if there is none, or the tensor varies along others."""
    if node.target is aten.arange.start_step:
        return (-1, node) if node.args[0] == 0 and node.args[2:] in ((), (1,)) else None
    operand: Any = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(operand, Node) or not (node.target in MOVED or _changes_nothing(node, operand)):
        return None
    found = along(operand)
    if found is None or node.target is not aten.unsqueeze.default:
        return found
    place, arange = found
    rank, dim = len(shape_of(node)), cast(int, node.args[1])
    new, old = dim % rank, rank - 1 + place
    return (old if old < new else old + 1) - rank, arange


def _changes_nothing(node: Node, operand: Node) -> bool:
    if node.target is aten.slice.Tensor:
        return tuple(shape_of(node)) == tuple(shape_of(operand)) and node.args[4:] in ((), (1,))
    added: Any = node.args[1] if len(node.args) > 1 else None
    return node.target in (aten.add.Tensor, aten.add.Scalar) and isinstance(added, int) and added == 0


def _rearranged(graph: Graph, node: Node, table: Node, found: dict[int, tuple[int, Node]]) -> Node:
    """The table with its dimensions where the lookup has them, as long as the positions are."""
    rank, shape = len(shape_of(table)), shape_of(node)
    first, last = min(found), max(found)
    places = {dim: place for dim, (place, _) in found.items()}
    seen = table
    for dim, (_, arange) in found.items():
        if not _are_one(shape_of(table)[dim], shape_of(arange)[0]):
            seen = _part(graph, node, seen, dim, 0, arange)
    order = [*range(first), *sorted(places, key=places.__getitem__), *range(last + 1, rank)]
    if order != [*range(rank)]:
        sizes, strides = ([each[dim] for dim in order] for each in (shape_of(seen), strides_of(seen)))
        seen = made_of(graph, node, aten.permute.default, (seen, order), shape=sizes, strides=strides)
    looked = len(shape) - (rank - len(places))
    for place in range(looked):
        if place - looked not in places.values():
            sizes, strides = [*shape_of(seen)], [*strides_of(seen)]
            sizes.insert(first + place, 1)
            strides.insert(first + place, 1)
            args = seen, first + place
            seen = made_of(graph, node, aten.unsqueeze.default, args, shape=sizes, strides=strides)
    if tuple(shape_of(seen)) == tuple(shape):
        return seen
    pairs = zip(shape, shape_of(seen), strides_of(seen), strict=True)
    strides = [stride if wanted == size else 0 for wanted, size, stride in pairs]
    return made_of(graph, node, aten.expand.default, (seen, [*shape]), shape=shape, strides=strides)


def _are_one(left: Any, right: Any) -> bool:
    """Whether sizes have one formula; others may be equal in this call."""
    return getattr(left, "formula", left) == getattr(right, "formula", right)


def _part(graph: Graph, node: Node, table: Node, dim: int, start: int, index: Node) -> Node:
    """As many elements along a dimension as an index has."""
    size = shape_of(index)[0]
    sizes = [*shape_of(table)]
    sizes[dim] = size
    end = index.args[1] if index.target is aten.arange.start_step else start + size
    args = table, dim, start, end
    return made_of(graph, node, aten.slice.Tensor, args, shape=sizes, strides=strides_of(table))


def _copied(graph: Graph, node: Node, seen: Node, table: Node) -> Node:
    """With the memory that a lookup has: its own, and in order, where somebody may see that."""
    if all(map(_asks_of_numbers, node.users)) and is_contiguous(table) and _is_in_order(seen, table):
        return seen
    copy = made_of(graph, node, aten.clone.default, (seen,), {"memory_format": torch.contiguous_format})
    copy.meta["val"] = node.meta["val"]
    return copy


def _is_in_order(node: Node, table: Node) -> bool:
    """Whether it has the elements of a table, or a part of them, in the order of the table's memory."""
    while node is not table:
        if node.target not in (aten.unsqueeze.default, aten.slice.Tensor):
            return False
        (node,) = (each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor | Described))
    return True


def _asks_of_numbers(user: Node) -> bool:
    """Whether an operation makes a tensor of its own, element by element: nobody sees whose memory it read."""
    target: Any = user.target
    return user.op == "call_function" and target not in FREE and torch.Tag.pointwise in target.tags


__all__ = ["along", "read_in_order"]
