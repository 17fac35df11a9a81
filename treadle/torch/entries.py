# pyright: standard
"""Positions that an index gives, as programs read them: 32 bits, none of them outside.

PyTorch looks them up in the array 0, 1, 2, ... as it would look up the elements: in one small kernel it counts negative
positions from the end where the operation does, and tells of one that is outside as it always does, by an exception on
a CPU and by an assertion on a device. So no program is asked what an index out of range means."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Literal, TypeAlias

import torch

How: TypeAlias = Literal["index", "index_select", "gather"]
"""The operation of PyTorch's that looks something up: they differ in what is outside, and in how they say so."""

MOST_ROWS = 2**22
"""Of an array that is looked up in: 0, 1, 2, ... takes 16 MiB then, once for a device."""

_LOOKED_UP: dict[How, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda places, index: places[index],
    "index_select": lambda places, index: places.index_select(0, index.reshape(-1)).view(index.shape),
    "gather": lambda places, index: places.gather(0, index.reshape(-1).long()).view(index.shape),
}

_PLACES: dict[torch.device, torch.Tensor] = {}
_LOCK = Lock()


def entries(index: torch.Tensor, size: int, how: How) -> torch.Tensor:
    """The positions that an index gives along a dimension of that size, from 0 on, contiguous (IndexError or
    RuntimeError, as PyTorch raises on a CPU, where one is outside)."""
    with torch.no_grad():
        return _LOOKED_UP[how](_places(size, index.device), index.detach()).contiguous()


def _places(size: int, device: torch.device) -> torch.Tensor:
    """0, 1, 2, ... The longest one is kept, and is there before another stream may ask for it."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.arange(size, dtype=torch.int32, device=device)  # memory of the graph's own
    with _LOCK:
        known = _PLACES.get(device)
        if known is None or len(known) < size:
            known = _PLACES[device] = torch.arange(size, dtype=torch.int32, device=device)
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
    return known[:size]


__all__ = ["MOST_ROWS", "How", "entries"]
