# pyright: standard
"""What leaves a program: the members that others read, or, where PyTorch would copy one first, the copy.

`attention(...).transpose(1, 2).reshape(...)` copies the result into another order. The program stores it in that order
at once instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.fx import Node

from treadle.torch.parts import PARTS
from treadle.torch.program import is_free, meta
from treadle.torch.registry import aten


def outputs_of(members: Sequence[Node]) -> list[Node]:
    """Members, and free operations on them, in order."""
    inside = set(members)
    found = (_stored(node, user) for node, user in _readers(members, inside))
    return list(dict.fromkeys(found))


def members_read(members: Sequence[Node]) -> list[Node]:
    """The members alone, for where PyTorch's copy has dimensions that do not nest with theirs: it makes it then."""
    return list(dict.fromkeys(node for node, _ in _readers(members, set(members))))


def _readers(members: Sequence[Node], inside: set[Node]) -> Iterator[tuple[Node, Node]]:
    """Every member that leaves, with the one that it leaves to."""
    for node in members:
        for user in node.users:
            if user not in inside and (not is_free(user) or _is_read(user, inside)):
                yield node, user


def _stored(node: Node, user: Node) -> Node:
    copy = _copy_below(user)
    return node if copy is None else _last_of(copy)


def _is_read(node: Node, inside: set[Node]) -> bool:
    """Whether somebody outside reads a free operation, at last."""
    return any(user not in inside and (not is_free(user) or _is_read(user, inside)) for user in node.users)


def _copy_below(node: Node) -> Node | None:
    """The copy at the end of a chain of free operations that each have one user."""
    while is_free(node) and node.target is not aten.expand.default and not _is_part(node):
        if node.target is aten.clone.default:
            return node
        if len(node.users) != 1:
            return None
        (node,) = node.users
    return None


def _is_part(node: Node) -> bool:
    """Whether it leaves elements out: no program stores a part of an axis."""
    return node.target in PARTS and meta(node).numel() < meta(node.args[0]).numel()


def _last_of(node: Node) -> Node:
    """The end of a chain of views."""
    while len(node.users) == 1:
        (user,) = node.users
        if not is_free(user) or user.target is aten.expand.default or _is_part(user):
            break
        node = user
    return node


__all__ = ["members_read", "outputs_of"]
