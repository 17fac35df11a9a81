# pyright: standard
"""Which of PyTorch's operations have a word in the language of diagrams, and the functions that say it.

Each takes the `Body` and the arguments of the node, with a `Tensor` in place of every tensor; Unsupported says why one
stays with PyTorch. The list is ATen as `torch.compile` gives it after decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from treadle.torch.tensors import Tensor

aten: Any = torch.ops.aten

Handler: TypeAlias = Callable[..., Tensor]

FREE: dict[Any, Handler] = {}
"""The same elements under other dimensions: each user does them again, so that they join nothing."""

SOURCES: dict[Any, Handler] = {}
"""Tensors made of nothing."""

COMPUTED: dict[Any, Handler] = {}
"""Everything else."""

TYPED: set[Any] = set()
"""These take `made`, PyTorch's number format of the result, which their operands alone do not say."""

FORMATS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
"""What programs call the number formats."""

STORED = {torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2"}
"""And those that PyTorch only converts to and from."""


def handler_of(target: Any) -> Handler | None:
    return FREE.get(target) or SOURCES.get(target) or COMPUTED.get(target)


def computed(*targets: Any) -> Callable[[Handler], Handler]:
    return _into(COMPUTED, targets)


def free(*targets: Any) -> Callable[[Handler], Handler]:
    return _into(FREE, targets)


def source(*targets: Any) -> Callable[[Handler], Handler]:
    """Made of nothing, so told of the format of the result."""
    TYPED.update(targets)
    return _into(SOURCES, targets)


def typed(*targets: Any) -> Callable[[Handler], Handler]:
    """Computed, and told of the format of the result."""
    TYPED.update(targets)
    return _into(COMPUTED, targets)


def _into(table: dict[Any, Handler], targets: tuple[Any, ...]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        table.update(dict.fromkeys(targets, handler))
        return handler

    return register


__all__ = [
    "COMPUTED",
    "FORMATS",
    "FREE",
    "SOURCES",
    "STORED",
    "TYPED",
    "Handler",
    "aten",
    "computed",
    "free",
    "handler_of",
    "source",
    "typed",
]
