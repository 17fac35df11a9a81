# pyright: standard
"""Convolutions that are products: those whose windows do not overlap.

Where the stride is the size of the window, as for the patches of an image, or each window is one element, every element
is in one window: a view of the image, whose axes the product reduces. Others read windows (`treadle.torch.windows`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from treadle.torch.registry import FORMATS


def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """[batch, channels, size..] by [made, channels, window..], as one product; PyTorch's own where that is none."""
    window = weight.shape[2:]
    if transposed or groups != 1 or any(padding) or not _is_plain(x, weight):
        return NotImplemented
    if not _is_apart(x.shape[2:], window, stride, dilation):
        return NotImplemented
    batch, channels = x.shape[:2]
    made = [size // each for size, each in zip(x.shape[2:], window, strict=True)]
    depth = len(window)
    apart = x.reshape(batch, channels, *(each for pair in zip(made, window, strict=True) for each in pair))
    inside, outside = (range(first, 2 + 2 * depth, 2) for first in (3, 2))
    windows = apart.permute(0, 1, *inside, *outside).reshape(batch, channels * prod(window), prod(made))
    result = weight.reshape(1, weight.shape[0], -1).expand(batch, -1, -1) @ windows
    result = result if bias is None else result + bias[:, None]
    return result.reshape(batch, weight.shape[0], *made)


def _is_plain(x: Any, weight: Any) -> bool:
    """In a format of programs, and in the order of memory in which PyTorch's own result is contiguous, too."""
    return x.dtype in FORMATS and all(
        each.is_contiguous() and suggest_memory_format(each) == torch.contiguous_format for each in (x, weight)
    )


def _is_apart(sizes: Sequence[int], window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether the windows are all of the image, each element in one (one number may stand for all dimensions)."""
    strides, dilations = (list(each) * len(window) if len(each) == 1 else each for each in (stride, dilation))
    along = zip(sizes, window, strides, dilations, strict=True)
    return all(step == width and (width == 1 or gap == 1) and not size % width for size, width, step, gap in along)


__all__ = ["convolution"]
