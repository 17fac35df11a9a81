# pyright: standard
"""What is rolled, or turned around, before it is computed with, in place of after: operations that treat all positions
along a dimension alike give the same, and one kernel reads its argument at the other places, in place of two between
which everything is saved. (The law is that of `diagram-bubble-up-reads`; a read that may leave its array is none that
this pass moves.)"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.made import made_of, shape_of, strides_of
from treadle.torch.registry import COMPUTED, aten
from treadle.torch.symbols import same

MOVED = {aten.roll.default: 2, aten.flip.default: 1}
"""What has the same elements at other places, and as which of its arguments it takes the dimensions."""

ALONG = {aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default}
"""What treats positions along the other dimensions alike, which stay where they are if it keeps its own."""

OVER_ONE = {aten._softmax.default, aten._log_softmax.default}


def raise_places(graph: Graph) -> None:
    """Where one tensor at other places is all that it takes."""
    for target in MOVED:
        for node in graph.find_nodes(op="call_function", target=target):
            _raise(graph, node)


def _raise(graph: Graph, node: Node) -> None:
    operand: Any = node.args[0]
    dims: Any = node.args[MOVED[node.target]] if len(node.args) > MOVED[node.target] else ()
    rank = len(shape_of(node))
    moved = {dim % rank - rank for dim in dims} if rank else set[int]()
    if not moved or strides_of(operand) != strides_of(node):
        return
    inside = _alike(operand, node, moved)
    read = list(dict.fromkeys(each for member in inside for each in member.all_input_nodes if each not in inside))
    of_others = [each for each in read if _has_any(each, moved, shape_of(node))]
    if not inside or len(of_others) != 1 or not _has_all(of_others[0], moved, shape_of(node)):
        return
    (given,) = of_others
    with graph.inserting_before(min(each for each in inside if given in each.all_input_nodes)):
        by = [dim % rank - rank + len(shape_of(given)) for dim in dims]
        args = [given, *node.args[1:]]
        args[MOVED[node.target]] = by
        placed = made_of(graph, given, node.target, args)  # as PyTorch's own, whole in memory
    for member in inside:
        member.replace_input_with(given, placed)
    node.replace_all_uses_with(operand)
    graph.erase_node(node)


def _alike(operand: Node, node: Node, moved: set[int]) -> set[Node]:
    """What the operand is made of by operations that treat all positions along these dimensions alike, and that nobody
    else sees."""
    found: set[Node] = set()
    rank = len(shape_of(node))
    for each in sorted(_before(operand), reverse=True):
        if all(user is node or user in found for user in each.users) and _is_alike(each, moved, rank):
            found.add(each)
    return found


def _before(operand: Node) -> set[Node]:
    found, todo = set[Node](), [operand]
    while todo:
        each = todo.pop()
        if each in found or each.op != "call_function" or each.target not in COMPUTED:
            continue
        found.add(each)
        todo.extend(each.all_input_nodes)
    return found


def _is_alike(node: Node, moved: set[int], rank: int) -> bool:
    target: Any = node.target
    own = len(shape_of(node))
    if torch.Tag.pointwise in target.tags or target is aten._to_copy.default:
        return True
    if target in OVER_ONE:
        over: Any = [node.args[1]]
    elif target in ALONG and len(node.args) > 2 and node.args[1] and node.args[2]:
        over = node.args[1]
    else:
        return False
    return own == rank and not moved & {dim % own - own for dim in over}


def _has_any(node: Node, moved: set[int], shape: Any) -> bool:
    """Whether the elements of a tensor that is broadcast differ along one of these dimensions."""
    return any(_has(node, dim, shape) for dim in moved)


def _has_all(node: Node, moved: set[int], shape: Any) -> bool:
    return all(_has(node, dim, shape) for dim in moved)


def _has(node: Node, dim: int, shape: Any) -> bool:
    value: Any = node.meta.get("val")
    if not hasattr(value, "shape") or len(value.shape) < -dim:
        return False
    own: Any = value.shape[dim]
    return not same(own, 1) or same(shape[dim], 1)


__all__ = ["raise_places"]
