# pyright: standard
"""Keys and values that several heads of queries share."""

from __future__ import annotations

from typing import Any


def for_heads(shared: Any, heads: int) -> Any:
    """Keys or values, of which each head serves several of the queries' `heads`."""
    if shared.size(-3) == heads:
        return shared
    groups = heads // shared.size(-3)
    return shared.unsqueeze(-3).expand(*shared.shape[:-2], groups, *shared.shape[-2:]).flatten(-4, -3)


__all__ = ["for_heads"]
