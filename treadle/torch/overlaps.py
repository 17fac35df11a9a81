# pyright: standard
"""Tensors of which one product reads all, and another a part: keys whose first columns are the values.

As views these are two arguments, of which no pass knows that one lies in the other. Read inside of the program the part
is a `diagram.read` of the same argument, so that `diagram-split-depths` may load it once for both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import Node

from treadle.torch.operations import PRODUCTS
from treadle.torch.registry import FORMATS, FREE, aten


def read_in_part(members: Iterable[Node]) -> frozenset[Node]:
    """The tensors that one product of these reads whole, and another one in part."""
    within = frozenset(members)
    found = [_read(operand, within) for node in within if node.target in PRODUCTS for operand in node.all_input_nodes]
    return frozenset(owner for owner, part in found if part and (owner, False) in found)


def _read(node: Node, within: frozenset[Node]) -> tuple[Node, bool]:
    """The tensor that a view is of, and whether it is a part of it."""
    is_part = False
    while node not in within and node.target in FREE and len(node.all_input_nodes) > 0:
        is_part = is_part or is_part_of(node)
        node = node.all_input_nodes[0]
    return node, is_part


def is_part_of(node: Node) -> bool:
    """Whether a view is a part along one dimension that a program can name: not one of several that are as long, which
    have a dimension of parts."""
    if node.target is not aten.slice.Tensor:
        return False
    (given, *rest) = node.args
    dim, start, _, step = (*rest, *(0, None, None, 1)[len(rest) :])
    assert isinstance(given, Node)
    value: Any = given.meta["val"]
    whole, size = (each.meta["val"].shape[dim] for each in (given, node))
    if value.dtype not in FORMATS or step != 1 or not all(type(each) is int for each in (whole, size, start or 0)):
        return False
    return 0 < size < whole and (whole % size != 0 or (start or 0) % size != 0)


__all__ = ["is_part_of", "read_in_part"]
