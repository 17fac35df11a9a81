# pyright: standard
"""Views of tensors: the same memory under other dimensions."""

from __future__ import annotations

from typing import Any

from torch.fx import Node


def is_view(node: Node) -> bool:
    return bool(getattr(node.target, "is_view", False))


def owner(node: Node) -> Node:
    """Whose memory it is."""
    while node.all_input_nodes and node.op == "call_function" and is_view(node):
        node = node.all_input_nodes[0]
    return node


def place(node: Node) -> tuple[Node, Any]:
    """Whose memory it is, and at which element of that it begins; where only a launch would tell, its own."""
    value = node.meta["val"]
    begin = value.storage_offset() if hasattr(value, "storage_offset") else None
    return (owner(node), begin) if type(begin) is int else (node, None)
