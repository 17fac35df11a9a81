# pyright: standard
"""Distances between positions that are compared with a number: `|q - x| <= 6` says `q - x <= 6` and `q - x >= -6`, for
which conditions have words."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

from treadle.torch.conditions import SAID
from treadle.torch.made import made_of
from treadle.torch.program import is_free
from treadle.torch.registry import SOURCES, aten

WITHIN: dict[Any, tuple[Any, Any, Any]] = {
    aten.le.Scalar: (aten.le.Scalar, aten.ge.Scalar, aten.bitwise_and.Tensor),
    aten.lt.Scalar: (aten.lt.Scalar, aten.gt.Scalar, aten.bitwise_and.Tensor),
    aten.eq.Scalar: (aten.eq.Scalar, aten.eq.Scalar, aten.bitwise_or.Tensor),
    aten.ge.Scalar: (aten.ge.Scalar, aten.le.Scalar, aten.bitwise_or.Tensor),
    aten.gt.Scalar: (aten.gt.Scalar, aten.lt.Scalar, aten.bitwise_or.Tensor),
}
"""What a comparison of a distance says of the difference and the number, of the difference and the number below zero,
and how both are joined."""


def compare_differences(graph: Graph) -> None:
    """Write such comparisons without distances. Of integers that are made of positions alone none is the least that
    there is, whose distance is below zero."""
    for compared, (above, below, join) in WITHIN.items():
        for node in graph.find_nodes(op="call_function", target=compared):
            distance, number = node.args
            if distance.target is not aten.abs.default or not isinstance(number, int):
                continue
            difference = distance.args[0]
            if not _is_of_positions(difference):
                continue
            with graph.inserting_before(node):
                high = made_of(graph, node, above, (difference, number))
                low = made_of(graph, node, below, (difference, -number))
                made = made_of(graph, node, join, (high, low))
            node.replace_all_uses_with(made)
            graph.erase_node(node)


def _is_of_positions(node: Node) -> bool:
    if node.meta["val"].dtype.is_floating_point:
        return False
    if node.target in SOURCES:
        return not node.all_input_nodes
    if node.target not in SAID and not is_free(node):
        return False
    return bool(node.all_input_nodes) and all(map(_is_of_positions, node.all_input_nodes))


__all__ = ["compare_differences"]
