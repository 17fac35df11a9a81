# pyright: standard
"""Softmax over what a mask lets through, as an operation of PyTorch: in a graph, the mask can still be read as a
condition on positions, and tiles that it excludes are never visited."""

from __future__ import annotations

from typing import Any

import torch

from treadle.torch.derivatives import differentiate


@torch.library.custom_op("treadle::masked_softmax", mutates_args=())
def masked_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax along the last dimension over the elements whose mask is true; a row without one is zeros."""
    return _formula(scores, mask)


def _formula(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._safe_softmax(torch.where(mask, scores, float("-inf")), -1)


@masked_softmax.register_fake
def _(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.new_empty(torch.broadcast_shapes(scores.shape, mask.shape))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(output)
    ctx.shape = inputs[0].shape


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, None]:
    (shares,) = ctx.saved_tensors
    weighted = gradient * shares
    return (weighted - shares * weighted.sum(-1, keepdim=True)).sum_to_size(ctx.shape), None


masked_softmax.register_autograd(_backward, setup_context=_keep)
differentiate("treadle::masked_softmax", _formula, _keep, _backward)

__all__ = ["masked_softmax"]
