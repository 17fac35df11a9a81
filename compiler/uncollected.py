"""When Python looks for objects that only refer to each other."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Let Python look for none meanwhile. A program's IR is full of cycles that live until a derivation ends; to look
    for others in it takes a tenth of its time. Where somebody else has turned the search off, it stays off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


__all__ = ["uncollected"]
