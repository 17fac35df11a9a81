# pyright: standard
"""Which nodes of a PyTorch graph become which program.

Every node that is known starts a program of its own, and joins those of its operands as long as the whole can be
written down and no value would leave the program and come back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import getitem

import torch
from torch.fx import Graph, Node

from treadle.torch.added import SUMS
from treadle.torch.extremes import MOST
from treadle.torch.lookups import LOOKUPS
from treadle.torch.mistakes import Mistakes
from treadle.torch.operations import REDUCTIONS
from treadle.torch.program import is_free, is_number, read_by, translatable
from treadle.torch.random import KEPT, PER_GRAPH, is_seed
from treadle.torch.registry import COMPUTED
from treadle.torch.symbols import Described

HINTS = {
    "aten.max_pool2d_with_indices.default": "kernels find the largest of windows without padding that read an element "
    "at most three times, and not where they are",
    "aten._transformer_encoder_layer_fwd.default": "it is PyTorch's fast path for inference; "
    "torch.backends.mha.set_fastpath_enabled(False) has it spelled out",
    "aten.topk.default": f"kernels find the first of an order, at most {MOST}, of floats of 16 or 32 bits",
}
"""What a user may do about operations that are only another way to say known ones, or sometimes are."""


ALONE = "one operation alone gains nothing"
"""Why it stays, unless it sums or multiplies."""


@dataclass
class Groups:
    """Nodes that go together, in order, and why the others stay with PyTorch."""

    taken: list[list[Node]] = field(default_factory=list[list[Node]])
    left: dict[Node, str] = field(default_factory=dict[Node, str])


def grouped(graph: Graph, mistakes: Mistakes) -> Groups:
    """Every computed node of the graph is in a group or left, with a reason."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    home: dict[Node, int] = {}
    members: dict[int, list[Node]] = {}
    found = Groups()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is getitem or is_free(node) or is_number(node):
            continue
        if (reason := _refused(node)) is not None:
            found.left[node] = reason
            continue
        joined = _joined(node, home, members, order, mistakes)
        if not joined and (reason := _alone(node, mistakes)) is not None:
            found.left[node] = reason
            continue
        key = order[node]
        members[key] = [*(each for old in joined for each in members.pop(old)), node]
        members[key].sort(key=order.__getitem__)
        home.update((each, key) for each in members[key])
    for key in sorted(members):
        if _is_worth_it(members[key]):
            found.taken.append(_looked_up_late(members[key], order))
        else:
            found.left.update(dict.fromkeys(members[key], ALONE))
    return found


def _looked_up_late(nodes: list[Node], order: dict[Node, int]) -> list[Node]:
    """The nodes with each lookup right before the first that uses it: whoever reads what is chosen reads it where it
    lies, so it goes with that wherever the nodes are cut."""
    place = dict(order)
    for node in reversed(nodes):
        if node.target in LOOKUPS:
            place[node] = min((place[user] for user in _users(node) if user in nodes), default=place[node])
    return sorted(nodes, key=lambda node: (place[node], node.target not in LOOKUPS, order[node]))


def _users(node: Node) -> Iterable[Node]:
    """Those that use it, or a free operation on it."""
    for user in node.users:
        yield from _users(user) if is_free(user) else (user,)


def _alone(node: Node, mistakes: Mistakes) -> str | None:
    """Why it is no program by itself, not even for the sizes that are there alone."""
    reason = translatable([node], mistakes)
    return reason and translatable([node], mistakes, of_one=True)


def _refused(node: Node) -> str | None:
    if is_seed(node):
        return PER_GRAPH
    if node.target not in COMPUTED:
        hint = HINTS.get(str(node.target))
        return "not known to the calculus" + (f" ({hint})" if hint else "")
    if not isinstance(node.meta.get("val"), torch.Tensor | Described):
        return "it gives no tensor"
    return None


def _is_worth_it(nodes: list[Node]) -> bool:
    return len(nodes) > 1 or nodes[0].target in {*REDUCTIONS, *SUMS, KEPT}


def _joined(
    node: Node, home: dict[Node, int], members: dict[int, list[Node]], order: dict[Node, int], mistakes: Mistakes
) -> list[int]:
    """The groups that the node joins: all of its operands', or the latest that it can."""
    near = sorted({home[each] for each in _operands(node) if each in home}, reverse=True)
    for chosen in (near, *([key] for key in near)) if len(near) > 1 else (near,):
        nodes = sorted([*(each for key in chosen for each in members[key]), node], key=order.__getitem__)
        if not chosen or (not _comes_back(nodes, home, members) and translatable(nodes, mistakes) is None):
            return list(chosen)
    return []


def _operands(node: Node) -> Iterable[Node]:
    """Computed nodes that it reads, through free ones."""
    todo = read_by(node)
    while todo:
        each = todo.pop()
        if is_free(each):
            todo.extend(read_by(each))
        else:
            yield each


def _comes_back(nodes: list[Node], home: dict[Node, int], members: dict[int, list[Node]]) -> bool:
    """Whether a value would leave these nodes and come back to them through others, whole groups at a time."""
    inside = set(nodes)
    keys = {home[node] for node in nodes if node in home}
    seen: set[Node] = set()
    todo = [user for node in nodes for user in node.users if user not in inside]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        group = home.get(node)
        whole = members[group] if group is not None and group not in keys else [node]
        for each in whole:
            seen.add(each)
            for user in each.users:
                if user in inside and not is_number(each) and not _reaches_freely(node, user, inside):
                    return True
                if user not in inside:
                    todo.append(user)
    return False


def _reaches_freely(node: Node, user: Node, inside: set[Node]) -> bool:
    """A free operation between two members is done inside: nothing leaves."""
    if not is_free(node):
        return False
    todo = read_by(node)
    while todo:
        each = todo.pop()
        if each in inside or each.op == "placeholder":
            continue
        if not is_free(each):
            return False
        todo.extend(read_by(each))
    return True
