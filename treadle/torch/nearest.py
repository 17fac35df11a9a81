# pyright: standard
"""Images that are so many times as large, each element repeated (`F.interpolate` with `mode="nearest"`): a view of
elements that are repeated, where PyTorch would compute an index for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


def _repeated(x: Any, size: Sequence[int]) -> Any:
    """Each element so many times along each of the last dimensions."""
    rank = len(size)
    front, before = x.shape[:-rank], x.shape[-rank:]
    apart = x.reshape([*front, *(each for old in before for each in (old, 1))])
    grown = [each for old, new in zip(before, size, strict=True) for each in (old, new // old)]
    return apart.expand([*front, *grown]).reshape([*front, *size])


def _is_repeated(x: Any, size: Sequence[int], scales: Sequence[float | None]) -> bool:
    """Whether that is what PyTorch does, whose result is contiguous then, too."""
    if x.dim() != len(size) + 2 or not all(isinstance(each, int) and each for each in (*x.shape, *size)):
        return False
    if not x.is_contiguous():
        return False
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return False
    return all(_is_whole(*each) for each in zip(x.shape[2:], size, scales, strict=True))


def _is_whole(old: Any, new: Any, scale: float | None) -> bool:
    """Whether PyTorch, which has its positions in f32, finds `i // times` at each position `i` of the longer
    dimension."""
    if new % old:
        return False
    by = np.float32(1 / scale if scale else old / new)
    found = np.minimum((np.arange(new, dtype=np.float32) * by).astype(np.int64), old - 1)
    return bool((found == np.arange(new) // (new // old)).all())


def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    """`F.interpolate`, which repeats elements where that is what it asks for."""
    if mode == "nearest" and align_corners is None and not antialias and x.dim() > 2:
        sizes, scales = _sizes(x, size, scale_factor)
        if sizes is not None and _is_repeated(x, sizes, scales):
            return _repeated(x, sizes)
    return F.interpolate(x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


def _sizes(x: Any, size: Any, scale: Any) -> tuple[Sequence[int] | None, Sequence[Any]]:
    """Of the last dimensions of the result, and how many times as long they are if that is what was said."""
    rank = x.dim() - 2
    if size is not None:
        return (list(size) if isinstance(size, list | tuple) else [size] * rank), [None] * rank
    scales = list(scale) if isinstance(scale, list | tuple) else [scale] * rank
    if not all(isinstance(each, int | float) and each > 0 and each == int(each) for each in scales):
        return None, scales
    return [old * int(each) for old, each in zip(x.shape[2:], scales, strict=True)], scales


__all__ = ["interpolate"]
