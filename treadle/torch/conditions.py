# pyright: standard
"""Masks of positions are made again for each softmax, or choice of -inf, under them: a kernel that holds the positions
need not read the mask, and does not visit tiles of which it leaves nothing. Models make a mask once, for all layers."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.program import ARGUMENTS, is_free, is_number
from treadle.torch.registry import SOURCES, aten

COMPARED = {
    *(aten.lt.Scalar, aten.lt.Tensor, aten.le.Scalar, aten.le.Tensor, aten.gt.Scalar, aten.gt.Tensor),
    *(aten.ge.Scalar, aten.ge.Tensor, aten.eq.Scalar, aten.eq.Tensor, aten.ne.Scalar, aten.ne.Tensor),
}

SAID = {
    *COMPARED,
    *(aten.add.Scalar, aten.add.Tensor, aten.sub.Scalar, aten.sub.Tensor),
    *(aten.floor_divide.default, aten.remainder.Scalar, aten.remainder.Tensor, aten.div.Tensor_mode),
    *(aten.logical_and.default, aten.logical_or.default, aten.logical_not.default),
    *(aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_not.default),
}
"""Operations that conditions have a word for."""


NUMBERS = {aten.full.default, aten.scalar_tensor.default}


def ask_again(graph: Graph) -> None:
    """Write what masks are made of positions before each softmax that is taken under one, and before each choice that
    puts an infinity in the place of what one leaves out."""
    for user, place in _under_masks(graph):
        operands: list[Any] = [*user.args]
        with graph.inserting_before(user):
            operands[place] = _again(graph, operands[place], {})
        user.args = tuple(operands)
    graph.eliminate_dead_code()


def masks_of(graph: Graph) -> list[Any]:
    """Those that are asked for again."""
    return [user.args[place] for user, place in _under_masks(graph)]


def _under_masks(graph: Graph) -> Iterator[tuple[Node, int]]:
    """What is done under a mask, and which of its operands that is."""
    for softmax in graph.find_nodes(op="call_function", target=torch.ops.treadle.masked_softmax.default):
        yield softmax, 1
    for choice in graph.find_nodes(op="call_function", target=aten.where.self):
        if any(map(_is_infinite, choice.args[1:])):
            yield choice, 0


def _is_infinite(node: Any) -> bool:
    """Whether it is one number that is infinite, as `masked_fill` becomes a choice between scores and -inf."""
    number: Any = node.args[-1] if isinstance(node, Node) and node.target in NUMBERS else None
    return isinstance(number, float) and isinf(number)


def _again(graph: Graph, node: Node, known: dict[Node, Node]) -> Node:
    """The same of operations of its own, as far as these ask for positions and masks that are there."""
    if node not in known:
        known[node] = node
        if is_said(node) or (is_free(node) and node.target not in SOURCES):
            made = {each: _again(graph, each, known) for each in node.all_input_nodes}
            if is_said(node) or any(made[each] is not each for each in made):
                known[node] = graph.node_copy(node, lambda each: made.get(each, each))
    return known[node]


def is_said(node: Node) -> bool:
    """Whether it is made of integers or truth values that a program reads, or has itself."""
    if node.target not in SAID or node.meta["val"].dtype.is_floating_point:
        return False
    return all(is_number(each) or _is_read(each) for each in node.all_input_nodes)


def _is_read(node: Node) -> bool:
    dtype: Any = node.meta["val"].dtype
    if dtype.is_floating_point:
        return False
    while is_free(node) and node.target not in SOURCES:
        (node,) = [each for each in node.all_input_nodes if not is_number(each)]
    return dtype in ARGUMENTS or node.target in SOURCES or is_said(node)


__all__ = ["COMPARED", "SAID", "ask_again", "is_said", "masks_of"]
