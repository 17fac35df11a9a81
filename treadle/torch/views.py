# pyright: standard
"""Views of tensors: the same memory under other dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

aten: Any = torch.ops.aten

KEEPS_THE_FIRST = {
    *(aten.unsqueeze.default, aten.permute.default, aten.expand.default, aten.view.default, aten.t.default),
    *(aten.transpose.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.alias.default),
}
"""Views that begin where their tensor does."""


def is_view(node: Node) -> bool:
    return bool(getattr(node.target, "is_view", False))


def owner(node: Node) -> Node:
    """Whose memory it is."""
    while node.all_input_nodes and node.op == "call_function" and is_view(node):
        node = node.all_input_nodes[0]
    return node


def place(node: Node) -> tuple[Node, Any]:
    """Whose memory it is, and at which element of that it begins; where only a launch would tell, the last view that
    may begin elsewhere."""
    value = node.meta["val"]
    begin = value.storage_offset() if hasattr(value, "storage_offset") else None
    if type(begin) is int:
        return owner(node), begin
    while node.op == "call_function" and _begins_there(node):
        node = node.all_input_nodes[0]
    return node, None


def _begins_there(node: Node) -> bool:
    """Whether a view has the first element of what it is of."""
    if node.target is aten.slice.Tensor:
        start = node.args[2] if len(node.args) > 2 else None
        return start is None or (type(start) is int and start == 0)
    return node.target in KEEPS_THE_FIRST
