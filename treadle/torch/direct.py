# pyright: standard
"""Operators whose kernel is called from where PyTorch asks how they are differentiated: another round through its
dispatcher takes longer than all else, and most calls leave it nothing to decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from treadle.language.function import NamedKernel

_KEY = torch._C.DispatchKey
_BELOW = torch._C._dispatch_keyset_full_after(_KEY.AutogradFunctionality)
_PASSED = (_KEY.BackendSelect, _KEY.ADInplaceOrView)
"""What PyTorch asks of every operator, and an operator that changes nothing in place does not answer."""
_PLACES = (_KEY.CPU, _KEY.CUDA)


def at_once(kernel: NamedKernel, tensors: Sequence[Any]) -> Any:
    """The result, or a tuple of them, of tensors that are as those of a call before; None where more is to be asked, or
    a mode of PyTorch is to see the operator (TreadleError)."""
    return None if torch._C._len_torch_dispatch_stack() else kernel.at_once(tensors)


def called(kernel: NamedKernel, tensors: Sequence[Any]) -> Any:
    """The same of any tensors; None, too, where results share memory, which PyTorch refuses (TreadleError)."""
    if not _is_next(tensors):
        return None
    made = kernel(*tensors)
    results = made if isinstance(made, tuple) else (made,)
    places, taken = ({each.untyped_storage().data_ptr() for each in some} for some in (results, tensors))
    return made if len(places) == len(results) and places.isdisjoint(taken) else None


def _is_next(tensors: Sequence[Any]) -> bool:
    """Whether below autograd the dispatcher would call the kernel: no mode watches, and each tensor is what it says."""
    keys = torch._C._dispatch_tls_local_include_set()
    for each in tensors:
        keys = keys | torch._C._dispatch_keys(each)
    keys = keys & _BELOW
    for key in _PASSED:
        keys = keys.remove(key)
    return keys.highestPriorityTypeId() in _PLACES


__all__ = ["at_once", "called"]
