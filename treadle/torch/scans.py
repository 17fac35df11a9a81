# pyright: standard
"""Cumulative sums: `torch.cumsum`, and backwards as PyTorch writes it, `flip(cumsum(flip(x)))`."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.language.array import Array
from treadle.torch.elementwise import to_copy
from treadle.torch.made import made_of
from treadle.torch.registry import FORMATS, aten, typed
from treadle.torch.symbols import likely
from treadle.torch.tensors import Body, Tensor, Unsupported

FEW_ROWS, LONG = 256, 2048
"""One warp has a row: fewer ones that are longer PyTorch shares out among more."""


@torch.library.custom_op("treadle::cumsum_backwards", mutates_args=())
def cumsum_backwards(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The sums of all elements from each on."""
    return tensor.flip(dim).cumsum(dim).flip(dim)


@cumsum_backwards.register_fake
def _(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(tensor)


@typed(aten.cumsum.default)
def cumsum(body: Body, tensor: Tensor, dim: int, dtype: Any = None, *, made: torch.dtype) -> Tensor:
    return _scanned(body, to_copy(body, tensor, dtype) if dtype in FORMATS else tensor, dim, made, reverse=False)


@typed(torch.ops.treadle.cumsum_backwards.default)
def backwards(body: Body, tensor: Tensor, dim: int, *, made: torch.dtype) -> Tensor:
    return _scanned(body, tensor, dim, made, reverse=True)


def _scanned(body: Body, tensor: Tensor, dim: int, made: torch.dtype, reverse: bool) -> Tensor:
    if not made.is_floating_point:
        raise Unsupported("a cumulative sum of integers, which may need 64 bits")
    place = tensor.place(dim)
    sizes = [likely(size) for size in tensor.shape]
    rows = prod(size for i, size in enumerate(sizes) if i != place)
    if place is not None and rows < FEW_ROWS and sizes[place] > LONG:
        raise Unsupported("a cumulative sum of few long rows")
    return body.along(tensor, dim, lambda array, over: _along(array, over, reverse))


def _along(array: Array, over: list[str], reverse: bool, exclusive: bool = False) -> Array:
    """Along several axes as along one long one: what whole rows before add, and what the own one does."""
    if not over:
        return array * 0.0 if exclusive else array
    *outer, inner = over
    own = array.scanned(inner, reverse, exclusive)
    return own if not outer else own + _along(array.sum(inner), outer, reverse, exclusive=True)


def scan_backwards(graph: Graph) -> None:
    """Ask for the sums from each element on, instead of those up to each of what was turned, and turned back."""
    for node in graph.find_nodes(op="call_function", target=aten.flip.default):
        sums: Any = node.args[0]
        dims: Any = node.args[1]
        if not isinstance(sums, Node) or sums.target is not aten.cumsum.default or len(sums.users) > 1:
            continue
        turned: Any = sums.args[0]
        dim: Any = sums.args[1]
        if not isinstance(turned, Node) or turned.target is not aten.flip.default or len(sums.args) > 2 or sums.kwargs:
            continue
        first: Any = turned.args[1]
        rank = len(turned.meta["val"].shape)
        if len({each % rank for each in (*first, *dims, dim)}) != 1:
            continue
        with graph.inserting_before(node):
            target = torch.ops.treadle.cumsum_backwards.default
            made = made_of(graph, node, target, (turned.args[0], dim))
        node.replace_all_uses_with(made)
        for each in (node, sums, turned):
            if not each.users:
                graph.erase_node(each)


__all__ = ["scan_backwards"]
