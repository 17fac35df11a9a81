# pyright: standard
"""Integers of 64 bits that masks compare with positions, as 32 bits hold them: the length of a cache, which is a tensor
on the device while the cache's own size is fixed. Programs read 32 bits.

What is given is clamped to 2^30 first, so that every number within that is itself, and of any other it is known that it
is at least as large, with its sign. With what is added to it, or subtracted, the bound shrinks by as much; a comparison
with what is certainly smaller is the same for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.conditions import COMPARED, SAID, masks_of
from treadle.torch.made import made_of, shape_of
from treadle.torch.program import is_free
from treadle.torch.registry import SOURCES, aten
from treadle.torch.symbols import Size, most

BOUND = 2**30
"""Sums of two such numbers are integers of 32 bits."""

SUMS = {aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar}

LIKE = {aten.full.default, aten.scalar_tensor.default}
"""What is one number everywhere."""


class Unbounded(Exception):
    """Nothing says that 32 bits are enough."""


@dataclass(frozen=True)
class Narrow:
    """An integer, or a tensor of them in 32 bits."""

    operand: Any
    bound: float
    """No number is larger, nor smaller than the negative of it; of what is `clamped`, those that are not are what they
    would be, and others at least as large, with their sign."""
    clamped: bool = False


def narrow(graph: Graph) -> None:
    """In the masks of softmaxes, and of choices that put an infinity in the place of what they leave out, compare what
    is given in 64 bits in 32."""
    for mask in masks_of(graph):
        for comparison in _comparisons(mask):
            _narrow(graph, comparison)
    graph.eliminate_dead_code()


def _comparisons(mask: Any) -> Iterator[Node]:
    """Of integers, that the mask is made of."""
    todo, seen = [mask], set[Node]()
    while todo:
        node = todo.pop()
        if not isinstance(node, Node) or node in seen:
            continue
        seen.add(node)
        if node.target in COMPARED:
            yield node
        elif node.target in SAID or (is_free(node) and node.target not in SOURCES):
            todo.extend(node.all_input_nodes)


def _narrow(graph: Graph, comparison: Node) -> None:
    if not any(_is_wide(each) for each in comparison.args):
        return
    with graph.inserting_before(comparison):
        try:
            operands = [_narrowed(graph, each, comparison) for each in comparison.args]
        except Unbounded:
            return
    if sum(each.clamped for each in operands) == 1:
        (clamped,), (other,) = ([each for each in operands if each.clamped is wanted] for wanted in (True, False))
        if other.bound < clamped.bound:
            comparison.args = tuple(each.operand for each in operands)


def _narrowed(graph: Graph, node: Any, comparison: Node) -> Narrow:
    """(Unbounded)"""
    if not _is_wide(node):
        return Narrow(node, _most(node))
    if node.target in SUMS and not node.kwargs:
        return _sum(graph, node, *(_narrowed(graph, each, comparison) for each in node.args))
    if node.target in SOURCES:
        return _source(graph, node)
    if is_free(node):
        if len(node.all_input_nodes) != 1:  # sizes that are symbols among them
            raise Unbounded
        inner = _narrowed(graph, node.all_input_nodes[0], comparison)
        return Narrow(_copied(graph, node, (inner.operand, *node.args[1:])), inner.bound, inner.clamped)
    return _clamped(graph, node, comparison)


def _sum(graph: Graph, node: Node, left: Narrow, right: Narrow) -> Narrow:
    copied = _copied(graph, node, (left.operand, right.operand))
    if not left.clamped and not right.clamped:
        return _bounded(Narrow(copied, left.bound + right.bound))
    clamped, other = (left, right) if left.clamped else (right, left)
    if other.clamped or other.bound >= clamped.bound:
        raise Unbounded
    return Narrow(copied, clamped.bound - other.bound, clamped=True)


def _source(graph: Graph, node: Node) -> Narrow:
    if node.target is aten.arange.start_step:
        bound = max(map(_most, node.args[:2]))
    elif node.target in LIKE:
        bound = _most(node.args[-1])
    else:
        raise Unbounded
    return _bounded(Narrow(_copied(graph, node, node.args, node.kwargs | {"dtype": torch.int32}), bound))


def _most(number: Any) -> float:
    """As far from zero as a number, or a size, may be (Unbounded)."""
    number = number.meta["val"] if isinstance(number, Node) else number
    if not isinstance(number, int | Size):
        raise Unbounded
    return most(number)


def _clamped(graph: Graph, node: Node, comparison: Node) -> Narrow:
    """What is repeated in the mask, which is smaller: a mask that is given, element by element, costs less to read."""
    if _rank(node) >= _rank(comparison):
        raise Unbounded
    clamped = made_of(graph, node, aten.clamp.default, (node, -BOUND, BOUND))
    return Narrow(
        made_of(graph, node, aten._to_copy.default, (clamped,), {"dtype": torch.int32}, dtype=torch.int32), BOUND, True
    )


def _copied(graph: Graph, node: Node, args: Any, kwargs: Any = None) -> Node:
    """In 32 bits."""
    return made_of(graph, node, node.target, args, node.kwargs if kwargs is None else kwargs, dtype=torch.int32)


def _bounded(narrow: Narrow) -> Narrow:
    if narrow.bound >= BOUND:
        raise Unbounded
    return narrow


def _is_wide(operand: Any) -> bool:
    return isinstance(operand, Node) and getattr(operand.meta.get("val"), "dtype", None) == torch.int64


def _rank(node: Node) -> int:
    """The number of its dimensions that have more than one element."""
    return sum(size != 1 for size in shape_of(node))


__all__ = ["narrow"]
