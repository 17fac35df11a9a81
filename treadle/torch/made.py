# pyright: standard
"""Operations that are put into a graph, with what the graph knows of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from treadle.torch.symbols import Described


def made_of(
    graph: Graph,
    like: Node,
    target: Any,
    args: Any,
    kwargs: Any = None,
    shape: Sequence[Any] | None = None,
    dtype: torch.dtype | None = None,
    strides: Sequence[Any] | None = None,
) -> Node:
    """An operation whose result is like that of another, of this shape and format, and as it lies in memory if that is
    said."""
    made = graph.call_function(target, tuple(args), dict(kwargs or {}))
    made.meta.update(like.meta)
    made.meta["val"] = _described(like.meta["val"], shape, dtype, strides)
    return made


def shape_of(node: Node) -> Sequence[Any]:
    return tuple(node.meta["val"].shape)


def strides_of(node: Node) -> Sequence[Any]:
    return tuple(node.meta["val"].stride())


def is_contiguous(node: Node) -> bool:
    """Whether elements lie in memory in the order of their dimensions, without gaps."""
    expected: Any = 1
    for size, stride in zip(reversed(shape_of(node)), reversed(node.meta["val"].stride()), strict=True):
        if size != 1 and stride != expected:
            return False
        expected = expected * size
    return True


def _described(
    value: Any, shape: Sequence[Any] | None, dtype: torch.dtype | None, strides: Sequence[Any] | None
) -> Any:
    """What a graph knows of a tensor like another, whole in memory if nothing else is said."""
    shape = tuple(value.shape if shape is None else shape)
    kind = dtype or value.dtype
    if strides is None:
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    if isinstance(value, Described):
        return replace(value, shape=shape, strides=tuple(strides), dtype=kind)
    with unset_fake_temporarily():  # of its own mode, whatever PyTorch traces meanwhile
        return value.new_empty_strided(shape, tuple(strides), dtype=kind)


__all__ = ["is_contiguous", "made_of", "shape_of", "strides_of"]
