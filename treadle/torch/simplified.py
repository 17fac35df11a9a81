# pyright: standard
"""Operations of PyTorch that a graph asks for more of than it uses."""

from __future__ import annotations

from operator import getitem
from typing import Any

from torch.fx import Graph, Node

from treadle.torch.registry import aten

EXTREMA: dict[Any, Any] = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}
"""What gives values and their places, and what gives the values."""


def simplify(graph: Graph) -> None:
    """The extrema along a dimension are asked for alone where nobody asks where they are."""
    for target, values in EXTREMA.items():
        for node in graph.find_nodes(op="call_function", target=target):
            users = [*node.users]
            if all(user.target is getitem and user.args[1] == 0 for user in users):
                _replace(graph, node, users, values)


def _replace(graph: Graph, node: Node, users: list[Node], values: Any) -> None:
    tensor, dim, *keep = node.args
    for user in users:
        with graph.inserting_before(user):
            made = graph.call_function(values, (tensor, [dim], *keep), node.kwargs)
        made.meta.update(user.meta)
        user.replace_all_uses_with(made)
        graph.erase_node(user)
    graph.erase_node(node)


__all__ = ["simplify"]
