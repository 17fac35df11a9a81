# pyright: standard
"""Tensors that are put one after another and taken apart again: what is done with the whole is done with each part.

A map of parts is the parts of the map; a sum or a maximum of parts is that of theirs; a slice of parts is some of them.
So a score that is put behind the others, has its share of the softmax and is cut off again (a sink) needs no copy of
the scores, and attention around it is one kernel. A tensor that something else reads as a whole stays one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from treadle.torch.made import made_of, shape_of
from treadle.torch.registry import COMPUTED, FREE, aten
from treadle.torch.shares import Shares
from treadle.torch.symbols import Described

FOLDS: dict[Any, Any] = {
    aten.amax.default: aten.maximum.default,
    aten.amin.default: aten.minimum.default,
    aten.sum.dim_IntList: aten.add.Tensor,
}
"""Reductions over dimensions, and how those of parts are put together."""

SOFTMAX = aten._softmax.default
CONVERSIONS = {aten._to_copy.default, torch.ops.prims.convert_element_type.default}


def take_apart(graph: Graph) -> None:
    """Every concatenation of which only parts are read, and what is reduced of them, is gone."""
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        apart = Apart(graph, node)
        if apart.is_legal():
            apart.rewrite()
            graph.eliminate_dead_code()  # parts that nobody reads


class Apart:
    """One concatenation, and what is made of it."""

    def __init__(self, graph: Graph, cat: Node):
        self.graph = graph
        self.cat = cat
        tensors: Any = cat.args[0]
        self.tensors: tuple[Node, ...] = tuple(tensors)
        rank = len(shape_of(cat))
        dim: Any = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        self.dim = dim % rank - rank
        """From the end, where what is broadcast agrees."""
        made = cat.meta["val"].dtype
        self.alike = all(len(shape_of(each)) == rank and each.meta["val"].dtype == made for each in self.tensors)
        self.sizes = [shape_of(tensor)[self.dim] for tensor in self.tensors] if self.alike else []
        self.parts: dict[Node, tuple[int, ...]] = {cat: tuple(range(len(self.tensors)))}
        """Which of the tensors each value has a part for."""
        self.made: dict[Node, dict[int, Node]] = {}

    # -- whether it can be ---------------------------------------------------------------------------

    def is_legal(self) -> bool:
        if len(self.tensors) < 2 or not self.alike or any(isinstance(size, int) and not size for size in self.sizes):
            return False
        for node in self.cat.graph.nodes:
            if not any(operand in self.parts for operand in node.all_input_nodes):
                continue
            if node.op != "call_function" or not self._is_known(node):
                return False
        return True

    def _is_known(self, node: Node) -> bool:
        operand: Any = node.args[0] if node.args else None
        if node.target is aten.slice.Tensor and operand in self.parts:
            return self._is_known_slice(node)
        if node.target in FOLDS and operand in self.parts:
            return self._is_reduced(node, self._dims(node))
        if node.target is SOFTMAX:
            self.parts[node] = self.parts[operand]
            return self._is_reduced(node, [node.args[1]])
        return self._is_map(node)

    def _is_reduced(self, node: Node, dims: Sequence[Any]) -> bool:
        """Whether these are dimensions of which the one is among."""
        rank = len(shape_of(node.all_input_nodes[0]))
        return self.dim in [dim if dim < 0 else dim - rank for dim in dims]

    def _dims(self, node: Node) -> Sequence[Any]:
        dims: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return dims or range(len(shape_of(node.all_input_nodes[0])))

    def _is_known_slice(self, node: Node) -> bool:
        operand: Any = node.args[0]
        found = self._chosen(node)
        if found is None:
            return False
        if len(found) > 1 or not self._is_along(node):
            self.parts[node] = found
            return bool(self.parts[operand])
        return not is_given(node)

    def _is_along(self, node: Node) -> bool:
        return self._is_reduced(node, [node.args[1] if len(node.args) > 1 else 0])

    def _chosen(self, node: Node) -> tuple[int, ...] | None:
        """The parts that a slice has, if it is cut where parts begin and end."""
        operand, _, begin, end, step = (*node.args, *(None,) * 5)[:5]
        parts = self.parts[operand]  # type: ignore[index]
        if not self._is_along(node):
            return parts
        places = [0]
        for i in parts:
            places.append(places[-1] + self.sizes[i])
        first, last = (_place(given, places) for given in (begin or 0, places[-1] if end is None else end))
        if first is None or last is None or first >= last or step not in (None, 1):
            return None
        return parts[first:last]

    def _is_map(self, node: Node) -> bool:
        """Whether it is done element by element, with what all parts share or has the same parts."""
        target: Any = node.target
        if target not in COMPUTED or not (target in CONVERSIONS or torch.Tag.pointwise in target.tags):
            return False
        inside = [operand for operand in node.all_input_nodes if operand in self.parts]
        shared = [operand for operand in node.all_input_nodes if operand not in self.parts]
        if len({self.parts[operand] for operand in inside}) != 1 or any(map(self._varies, shared)):
            return False
        self.parts[node] = self.parts[inside[0]]
        return len(shape_of(node)) == len(shape_of(self.cat))

    def _varies(self, operand: Node) -> bool:
        if not isinstance(operand.meta.get("val"), torch.Tensor | Described):
            return False
        shape = shape_of(operand)
        return len(shape) >= -self.dim and shape[self.dim] != 1

    # -- doing it ------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        self.made[self.cat] = dict(enumerate(self.tensors))
        users = [node for node in self.graph.nodes if any(each in self.parts for each in node.all_input_nodes)]
        for node in users:
            with self.graph.inserting_before(node):
                whole = self._rewrite(node)
            if whole is not None:
                node.replace_all_uses_with(whole)
        for node in reversed([self.cat, *users]):
            if not node.users:
                self.graph.erase_node(node)

    def _rewrite(self, node: Node) -> Node | None:
        """Make the parts of a value, or what it is if it has none."""
        operand: Any = node.args[0]
        if node.target is aten.slice.Tensor:
            return self._slice(node, operand)
        if node.target in FOLDS:
            return self._folded(node, [*self.made[operand].values()])
        if node.target is SOFTMAX:
            self.made[node] = self._shares(node, self.made[operand])
            return None
        self.made[node] = {
            i: self._of_part(node, i, lambda each, i=i: self.made[each][i] if each in self.parts else each)
            for i in self.parts[node]
        }
        return None

    def _shares(self, node: Node, parts: Mapping[int, Node]) -> dict[int, Node]:
        """Powers are relative to the largest of all that is longer than one element, if only the shares of these are
        read: then one stream makes them, whatever the others are."""
        long = {i for i in parts if self.sizes[i] != 1}
        counted = long if long and self.demanded(node) <= long else {*parts}
        return Shares(self.graph, node, self.dim, self.sizes, counted).of(parts)

    def _slice(self, node: Node, operand: Node) -> Node | None:
        chosen = self._chosen(node) or ()
        if not self._is_along(node):
            self.made[node] = {i: self._of_part(node, i, lambda each, i=i: self.made[each][i]) for i in chosen}
            return None
        if len(chosen) == 1:
            return self.made[operand][chosen[0]]
        self.made[node] = {i: self.made[operand][i] for i in chosen}
        return None

    def _folded(self, node: Node, parts: Iterable[Node]) -> Node:
        each = [made_of(self.graph, node, node.target, (part, *node.args[1:]), node.kwargs) for part in parts]
        return reduce(lambda left, right: made_of(self.graph, node, FOLDS[node.target], (left, right)), each)

    def _of_part(self, node: Node, part: int, change: Callable[[Node], Node]) -> Node:
        args = map_arg(node.args, change)
        shape = [*shape_of(node)]
        shape[self.dim] = self.sizes[part]
        return made_of(self.graph, node, node.target, args, map_arg(node.kwargs, change), shape)

    def demanded(self, node: Node) -> set[int]:
        """The parts of a value that something is made of, at last."""
        found: set[int] = set()
        for user in node.users:
            if user.target is aten.slice.Tensor and self._is_along(user):
                found |= self.demanded(user) if user in self.parts else set(self._chosen(user) or ())
            elif user.target in FOLDS:
                found |= {*self.parts[node]}
            else:
                found |= self.demanded(user)
        return found


def is_given(node: Node) -> bool:
    """Whether the graph gives a tensor, or a view of it: its strides, those of a part of a whole, are seen."""
    return any(user.op == "output" or (user.target in FREE and is_given(user)) for user in node.users)


def _place(given: Any, places: Sequence[Any]) -> int | None:
    """Which of the places, in order, an end of a slice is; None if it is between."""
    value = given.meta["val"] if isinstance(given, Node) else given
    if isinstance(value, int) and value < 0:
        value = places[-1] + value
    if isinstance(value, int) and isinstance(places[-1], int):
        value = min(value, places[-1])
    return next((i for i, place in enumerate(places) if value == place), None)


__all__ = ["is_given", "take_apart"]
