# pyright: standard
"""What a graph asks for in more words than it needs: results that nobody reads, a maximum that is subtracted before a
softmax, complex numbers for pairs of real ones, tensors that are put together and taken apart again, or multiplied, or
beside nothing; indices and masks that say what positions do, and seeds that are drawn one by one."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.apart import CONVERSIONS, SOFTMAX, take_apart
from treadle.torch.complex_numbers import without_complex_numbers
from treadle.torch.conditions import ask_again
from treadle.torch.distances import compare_differences
from treadle.torch.joined import join
from treadle.torch.made import is_contiguous, made_of, shape_of
from treadle.torch.narrowed import narrow
from treadle.torch.placed import use_places
from treadle.torch.pools import ask_for_values_alone
from treadle.torch.positions import read_in_order
from treadle.torch.raised import raise_places
from treadle.torch.random import draw_at_once
from treadle.torch.registry import FORMATS, STORED, aten
from treadle.torch.scans import scan_backwards
from treadle.torch.written import write_at_once

EXTREMA: dict[Any, Any] = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}
"""What gives values and their places, and what gives the values."""


def simplify(graph: Graph) -> None:
    """Write a graph with fewer operations, which give the same."""
    without_complex_numbers(graph)
    _ask_for_extrema_alone(graph)
    ask_for_values_alone(graph)
    _subtract_once(graph)
    _leave_out_nothing(graph)
    write_at_once(graph)
    scan_backwards(graph)
    take_apart(graph)
    raise_places(graph)
    join(graph)
    read_in_order(graph)
    compare_differences(graph)
    narrow(graph)
    ask_again(graph)
    draw_at_once(graph)
    use_places(graph)


def _leave_out_nothing(graph: Graph) -> None:
    """Parts of a concatenation that have no elements, as those of a cache before its first step, are not asked for."""
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        tensors: Any = node.args[0]
        parts = [each for each in tensors if not any(isinstance(size, int) and size == 0 for size in shape_of(each))]
        if len(parts) in (0, len(tensors)) or any(_format(each) != _format(node) for each in parts):
            continue
        if len(parts) > 1:
            node.args = (parts, *node.args[1:])
        elif is_contiguous(node):
            with graph.inserting_before(node):
                made = made_of(graph, node, aten.clone.default, parts, {"memory_format": torch.contiguous_format})
            node.replace_all_uses_with(made)
            graph.erase_node(node)


def _format(node: Node) -> torch.dtype:
    return node.meta["val"].dtype


def _subtract_once(graph: Graph) -> None:
    """A softmax along a dimension subtracts the largest element itself, and does not change with what all elements
    share: one that was subtracted before is not needed. (It would be rounded once more.) A conversion between the two
    must hold every number that there is: of 1e5, which f16 does not hold, the difference may be one that it does."""
    for node in graph.find_nodes(op="call_function", target=SOFTMAX):
        shifted = converted = node.args[0]
        while shifted.target in CONVERSIONS and len(shifted.users) == 1 and _holds_all(shifted):
            converted, shifted = shifted, shifted.args[0]
        if shifted.target is not aten.sub.Tensor or shifted.kwargs or len(shifted.users) > 1:
            continue
        tensor, largest = shifted.args
        if not isinstance(largest, Node) or largest.target is not aten.amax.default:
            continue
        if largest.args == (tensor, [node.args[1]], True):
            (node if converted is shifted else converted).replace_input_with(shifted, tensor)
            graph.erase_node(shifted)
            if not largest.users:
                graph.erase_node(largest)


def _holds_all(conversion: Node) -> bool:
    """Whether a conversion leaves every number what it is."""
    given: Any = conversion.args[0]
    if STORED.keys() & {_format(given), _format(conversion)}:  # of which PyTorch promotes none
        return _format(conversion) in (FORMATS if _format(given) in STORED else ())
    return torch.promote_types(_format(given), _format(conversion)) == _format(conversion)


def _ask_for_extrema_alone(graph: Graph) -> None:
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
