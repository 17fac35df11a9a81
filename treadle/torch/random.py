# pyright: standard
"""Dropout: of PyTorch's own generator a graph draws a seed at each call, and kernels make bits of it (`tl.dropout`).

What a seed and a position say is the same wherever, and however often, it is asked for: so a backward makes the bits
anew, and no kernel ends where something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node
from xdsl.dialects.builtin import i32

from treadle.dialects.diagram.random import BLOCK, KEY_STEP, MULTIPLIER, ROUNDS
from treadle.language.array import Array
from treadle.language.functions import chosen
from treadle.language.random import LEVELS, bits_at
from treadle.torch.axes import leaves
from treadle.torch.made import made_of
from treadle.torch.registry import FORMATS, aten, computed
from treadle.torch.tensors import Body, Tensor

LOW = 2**32 - 1
"""The bits of a word."""

SEED, PART = aten.randint.low, aten.slice.Tensor
"""What draws a seed, or several, of which each is a part."""

PER_GRAPH = "the seeds of what kernels draw, which PyTorch's generator gives at each call"
"""Why seeds stay."""


# -- as operations of PyTorch ----------------------------------------------------------------------


@torch.library.custom_op("treadle::kept", mutates_args=())
def kept(seed: torch.Tensor, shape: Sequence[int], dropped: int) -> torch.Tensor:
    """Where 16 random bits, which belong to a seed (one element, int32) and a position, are `dropped` or more. Two
    dimensions after another, the last two at last, make a key of a key; one that is left over is the first alone."""
    key = seed.long().reshape(()) & LOW
    places = [_along(key, shape, dim) for dim in range(len(shape))]
    places = [torch.zeros_like(key)] * (len(shape) % 2 or 2 * (not shape)) + places
    *others, row, column = places
    for pair in zip(others[::2], others[1::2], strict=True):
        key, _ = _words(key, *pair)
    first, second = _words(key, row | BLOCK, column | BLOCK)
    word = torch.where((row & BLOCK) != 0, second, first)
    bits = torch.where((column & BLOCK) != 0, word >> 16, word & (LEVELS - 1))
    return bits >= dropped


def _along(key: torch.Tensor, shape: Sequence[int], dim: int) -> torch.Tensor:
    """The positions along a dimension."""
    return torch.arange(shape[dim], device=key.device).view([-1, *[1] * (len(shape) - dim - 1)])


def _words(key: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Philox2x32 with seven rounds: both words of each counter, in int64, whose products wrap around."""
    for _ in range(ROUNDS):
        product = x * MULTIPLIER
        x, y = ((product >> 32) & LOW) ^ key ^ y, product & LOW
        key = (key + KEY_STEP) & LOW
    return x, y


@kept.register_fake
def _(seed: torch.Tensor, shape: Sequence[int], dropped: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bool, device=seed.device)


KEPT = torch.ops.treadle.kept.default


# -- PyTorch's operations, in these ----------------------------------------------------------------


def dropout(x: Any, rate: float, train: bool | None = None) -> Any:
    """What is kept, and where that is; PyTorch's own for what programs do not compute in."""
    if train is False or rate == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if not _is_ours(x):
        return NotImplemented
    dropped = levels(rate)
    if dropped == LEVELS:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = _drawn(x, dropped)
    return torch.where(mask, x * (LEVELS / (LEVELS - dropped)), 0.0), mask


def dropout_backward(slope: Any, mask: Any, scale: float) -> Any:
    """By the same number as forward, which is not quite the scale that PyTorch gives."""
    if not _is_ours(slope):
        return NotImplemented
    dropped = levels(1 - 1 / scale) if scale else LEVELS
    if dropped == LEVELS:
        return torch.zeros_like(slope)
    return torch.where(mask, slope * (LEVELS / (LEVELS - dropped)), 0.0)


def bernoulli(x: Any, rate: float = 0.5, generator: Any = None) -> Any:
    """Ones, as often as the rate says, else zeros, whatever the tensor has in it."""
    if generator is not None or not _is_ours(x) or not 0 <= rate <= 1:
        return NotImplemented
    return _drawn(x, LEVELS - levels(rate)).to(x.dtype)


def levels(rate: float) -> int:
    """The nearest rate that 16 bits can tell."""
    return round(rate * LEVELS)


def _is_ours(x: Any) -> bool:
    return x.dtype in FORMATS and x.device.type in ("cpu", "cuda") and 0 not in x.shape


def _drawn(x: Any, dropped: int) -> Any:
    """A mask for a tensor, which lies in memory as it does, with a seed of its own."""
    seed = torch.randint(-(2**31), 2**31, (1,), dtype=torch.int32, device=x.device)
    if x.is_contiguous():
        return kept(seed, x.shape, dropped)
    order = sorted(range(x.dim()), key=lambda i: -x.stride(i))
    return kept(seed, [x.shape[i] for i in order], dropped).permute(sorted(range(x.dim()), key=order.__getitem__))


# -- as programs -----------------------------------------------------------------------------------


@computed(KEPT)
def kept_in_program(body: Body, seed: Tensor, shape: Sequence[Any], dropped: int) -> Tensor:
    dims = body.new_dims(shape)
    made = body.tensor(dims)
    if body.graph is None:
        return made
    assert isinstance(seed.array, Array)
    places = [body.place_along(leaves(axes))[0] for axes in dims]
    positions = [place.value if isinstance(place, Array) else None for place in places]
    bits = bits_at(body.graph, 16, seed.array, positions)
    return replace(made, array=chosen(bits < dropped, 0, 1, i32))


# -- in a graph ------------------------------------------------------------------------------------


def is_seed(node: Node) -> bool:
    """Whether it is drawn for kernels alone, those of a backward that it is saved for among them."""
    users = _users(node) if node.target is SEED else []
    return any(user.target is KEPT for user in users) and all(user.target is KEPT or _is_output(user) for user in users)


def _users(seed: Node) -> list[Node]:
    return [each for user in seed.users for each in (user.users if user.target is PART else [user])]


def _is_output(node: Node) -> bool:
    return node.op == "output"


def draw_at_once(graph: Graph) -> None:
    """One operation of PyTorch for all seeds of a graph that lie on one device."""
    for device in {node.meta["val"].device: None for node in _seeds(graph)}:
        seeds = [node for node in _seeds(graph) if node.meta["val"].device == device]
        if len(seeds) < 2:
            continue
        low, high, _ = seeds[0].args
        with graph.inserting_before(seeds[0]):
            count = [len(seeds)]
            drawn = made_of(graph, seeds[0], SEED, (low, high, count), seeds[0].kwargs, shape=count)
            for i, node in enumerate(seeds):
                node.replace_all_uses_with(_part(graph, node, drawn, i))
        for node in seeds:
            graph.erase_node(node)


def _seeds(graph: Graph) -> list[Node]:
    """What `_drawn` asked for."""
    nodes = graph.find_nodes(op="call_function", target=SEED)
    return [node for node in nodes if is_seed(node) and node.args == (-(2**31), 2**31, [1])]


def _part(graph: Graph, like: Node, drawn: Node, place: int) -> Node:
    """One element. Where it lies is known of it: others of the same tensor are other arguments."""
    made = made_of(graph, like, PART, (drawn, 0, place, place + 1))
    value = drawn.meta["val"]
    if isinstance(value, torch.Tensor):
        with unset_fake_temporarily():
            made.meta["val"] = value[place : place + 1]
    return made


__all__ = ["KEPT", "PER_GRAPH", "bernoulli", "draw_at_once", "dropout", "dropout_backward", "is_seed", "kept"]
