# pyright: standard
"""Tensors of one element that are computed from sizes alone, as PyTorch computes them.

A graph with symbolic sizes has such chains, in float64, for what would be a number in one without (the scale of
attention, a power of the width). Where the sizes are known, so is the number."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from treadle.torch.registry import aten
from treadle.torch.symbols import Described

FOLDED = {
    *(aten.scalar_tensor.default, torch.ops.prims.convert_element_type.default, aten._to_copy.default),
    *(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.sqrt.default, aten.rsqrt.default),
    *(aten.reciprocal.default, aten.neg.default, aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
}
"""Functions of numbers, which give the same whenever they are called."""


def fold_numbers(graph: Graph) -> None:
    """Put the number in the place of each such tensor that others than such read."""
    known: dict[Node, torch.Tensor] = {}
    for node in graph.nodes:
        if _is_number(node) and (made := _made(node, known)) is not None:
            known[node] = made
    for node, made in reversed(known.items()):
        if any(user not in known for user in node.users):
            _put_in(graph, node, made)
        elif not node.users:
            graph.erase_node(node)


def _is_number(node: Node) -> bool:
    return node.target in FOLDED and isinstance(node.meta["val"], Described) and not node.meta["val"].shape


def _made(node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    """Its value on the CPU; None where not all of its operands are known."""
    operands = node.all_input_nodes
    if any(each not in known and not isinstance(each.meta["val"], int | float) for each in operands):
        return None
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: known.get(each, each.meta["val"]))
    target: Any = node.target
    return target(*args, **{name: each for name, each in kwargs.items() if name not in ("device", "pin_memory")})


def _put_in(graph: Graph, node: Node, made: torch.Tensor) -> None:
    described = node.meta["val"]
    with graph.inserting_before(node):
        number = graph.call_function(
            aten.full.default, ([], made.item()), {"dtype": described.dtype, "device": described.device}
        )
    number.meta.update(node.meta)
    node.replace_all_uses_with(number)
    graph.erase_node(node)


__all__ = ["fold_numbers"]
