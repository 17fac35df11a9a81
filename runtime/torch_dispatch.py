# pyright: standard
"""What PyTorch's dispatcher would do with an operator, as far as it can be told once for tensors and the modes of a
thread.

It follows the keys of the tensors, with those that a thread includes and without those that it excludes: autocast,
inference, the transforms of `torch.func` and traces are all told by them. The check of PyTorch's compiler
(`torch_geometry.py`) compares the same keys, so what is found here of some tensors holds of all that it takes for like
them. Modes in Python (`TorchDispatchMode`, `TorchFunctionMode`) it does not compare: these are asked of at each
call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

PASSED = ("BackendSelect", "ADInplaceOrView")
"""What PyTorch asks of every operator, and an operator that changes nothing in place does not answer."""
DIFFERENTIATED = ("AutogradCPU", "AutogradCUDA")
"""Where an operator is asked how it is differentiated."""
RUN = ("CPU", "CUDA")
"""Where it is run."""


def goes_straight(tensors: Sequence[Any], check: Callable[..., bool]) -> bool:
    """Whether an operator on these is asked for its derivative at most, and run, and likewise wherever the check holds
    of others. That it compares keys is tried, for it is PyTorch's own affair. False of a version that cannot be
    asked."""
    try:
        return _are_passed(tensors) and not _holds_elsewhere(check, tensors)
    except (AttributeError, TypeError):
        return False


def _are_passed(tensors: Sequence[Any]) -> bool:
    """Whether all keys before those where it is run are none that answer."""
    core: Any = sys.modules["torch"]._C
    keys = core._dispatch_tls_local_include_set()
    for each in tensors:
        keys = keys | core._dispatch_keys(each)
    keys = keys - core._dispatch_tls_local_exclude_set()
    for name in (*PASSED, *DIFFERENTIATED):
        keys = keys.remove(getattr(core.DispatchKey, name))
    return keys.highestPriorityTypeId() in [getattr(core.DispatchKey, name) for name in RUN]


def _holds_elsewhere(check: Callable[..., bool], tensors: Sequence[Any]) -> bool:
    """Whether the check holds in a thread with another key."""
    core: Any = sys.modules["torch"]._C
    with core._IncludeDispatchKeyGuard(core.DispatchKey.Functionalize):
        return check(*tensors)


__all__ = ["PASSED", "goes_straight"]
