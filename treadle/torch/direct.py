# pyright: standard
"""Operators whose kernel is called before PyTorch's dispatcher is asked, or from where that asks how they are
differentiated: its rounds take longer than all else, and most calls leave it nothing to decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from treadle.language.function import NamedKernel
from treadle.runtime.torch_dispatch import PASSED
from treadle.untraced import is_watched

_KEY = torch._C.DispatchKey
_BELOW = torch._C._dispatch_keyset_full_after(_KEY.AutogradFunctionality)
_PLACES = (_KEY.CPU, _KEY.CUDA)


def _not_known() -> bool:
    """Of a version of PyTorch that cannot be asked."""
    return True


_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = getattr(torch._C, "_is_torch_function_mode_enabled", _not_known)
_is_profiled = getattr(torch.autograd, "_profiler_enabled", _not_known)
_is_traced = torch.compiler.is_dynamo_compiling


class DirectOperator(CustomOpDef):
    """An operator that a kernel answers by itself where tensors are as those of a call before, and nothing but its
    derivative and its kernel would be asked: no mode, no transform, no autocast, no profiler, no compiler."""

    kernel: NamedKernel | None = None

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        if (
            not named
            and not _is_traced()
            and not is_watched()
            and not _dispatch_modes()
            and not _function_modes()
            and not _is_profiled()
            and (kernel := self.kernel) is not None
            and (replays := kernel.replays) is not None
            and (known := replays.straight(tensors)) is not None
        ):
            return known
        return self._opoverload(*tensors, **named)


def make_direct(made: Any, kernel: NamedKernel) -> None:
    """Of an operator that has all its rules. What PyTorch registered must stay the one object that it knows."""
    if type(made) is CustomOpDef:
        made.__class__ = DirectOperator
        made.__dict__["kernel"] = kernel


def at_once(kernel: NamedKernel, tensors: Sequence[Any]) -> Any:
    """The result, or a tuple of them, of tensors that are as those of a call before; None where more is to be asked, or
    a mode of PyTorch is to see the operator (TreadleError)."""
    if _dispatch_modes():
        return None
    if is_watched():
        return kernel.at_once(tensors)
    return None if (replays := kernel.replays) is None else replays.at_once(tensors)  # the same, without other calls


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
    for key in PASSED:
        keys = keys.remove(getattr(_KEY, key))
    return keys.highestPriorityTypeId() in _PLACES


__all__ = ["DirectOperator", "at_once", "called", "make_direct"]
