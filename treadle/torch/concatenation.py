# pyright: standard
"""Tensors one after another along a dimension, which is then two axes: which part, and where in it.

Each element is chosen by its part, so the parts must be of one size: halves that are rotated, or tensors that are
stacked. What several users read so is never written down as a whole.

Parts of other sizes stay with PyTorch: each read from where it begins, and chosen by position, they make kernels that
are slower than its copy and the kernel after it (a class token, positions and a layer norm over 32 x 197 x 768 in f16:
54 us for 19 and the copy of 20 MB on an A100, by the model)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects.builtin import f32, i32

from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.functions import chosen
from treadle.torch.axes import leaves
from treadle.torch.registry import aten, typed
from treadle.torch.tensors import Body, Tensor, Unsupported

MOST_PARTS = 8
"""Each element asks of all parts but one whether it lies there."""


@typed(aten.cat.default)
def cat(body: Body, tensors: Sequence[Tensor], dim: int = 0, *, made: torch.dtype) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    if len(tensors) > MOST_PARTS:
        raise Unsupported(f"{len(tensors)} parts, of which each element would be chosen")
    if len({tensor.shape for tensor in tensors}) > 1:
        raise Unsupported("parts of different sizes, which are no axis of parts")
    parts = body.positions(len(tensors))
    dims = body.broadcast(tensors)
    at = dim % len(dims)
    whole = (*dims[:at], (*parts.dims[0], *leaves(dims[at])), *dims[at + 1 :])
    if body.graph is None:
        return body.tensor(whole)
    format = f32 if made.is_floating_point else i32
    *arrays, rest = (tensor.array for tensor in tensors)
    for i, array in reversed(list(enumerate(arrays))):
        rest = chosen(_is(parts.array, i), array, rest, format)
    return body.tensor(whole, rest)


def _is(parts: Any, number: int) -> Condition:
    assert isinstance(parts, Array)
    return parts.equals(number)


__all__ = ["cat"]
