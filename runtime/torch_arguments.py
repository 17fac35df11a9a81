# pyright: standard
"""Which of torch's tensors a kernel by itself takes: those whose values are all in their memory.

PyTorch would take the result for a constant: a derivative would be left out in silence. This is asked at every launch,
so what most are given is told at once (`are_plain`), and why others are refused afterwards (`check_tensors`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from treadle.compiler.errors import TreadleError

REGISTER = "register it with treadle.torch.operator(name, kernel, formula=...)"


def are_plain(arguments: Sequence[Any]) -> bool:
    """Whether these are numbers and tensors of torch, and nothing is to be asked of any: what most calls are given."""
    torch: Any = sys.modules["torch"]
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return False
    gradients, plain = torch.is_grad_enabled(), torch.Tensor
    for each in arguments:
        kind = type(each)
        if kind is plain or kind is torch.nn.Parameter:
            if (gradients and each.requires_grad) or each.is_neg():  # that one's memory has another sign
                return False
        elif kind not in (int, float, bool):
            return False
    return True


def check_tensors(tensors: Sequence[Any]) -> None:
    """(TreadleError)"""
    torch: Any = sys.modules["torch"]
    if any(each.requires_grad for each in tensors) and torch.is_grad_enabled():
        raise TreadleError(
            f"an argument requires a gradient, which a kernel by itself does not have: {REGISTER}, call it under "
            "torch.no_grad(), or detach the argument"
        )
    if torch._C._are_functorch_transforms_active() and any(
        map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)
    ):
        raise TreadleError(
            f"an argument is inside a transform of torch.func, into which a kernel by itself does not see: {REGISTER}"
        )
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and any(forward.unpack_dual(each).tangent is not None for each in tensors):
        raise TreadleError(
            f"an argument has a tangent of forward mode, which a kernel by itself would leave out: {REGISTER}"
        )
    if any(type(each) is not torch.Tensor and torch._subclasses.fake_tensor.is_fake(each) for each in tensors):
        raise TreadleError(
            "an argument is a fake tensor, of which only the shape is known: register the kernel with "
            "treadle.torch.operator(name, kernel), through which torch.compile and torch.export see"
        )


__all__ = ["are_plain", "check_tensors"]
