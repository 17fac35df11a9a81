# pyright: standard
"""Which of torch's tensors a kernel by itself takes: those whose values are all in their memory.

PyTorch would take the result for a constant: a derivative would be left out in silence. This is asked at every launch,
so one question comes before those about each tensor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from treadle.compiler.errors import TreadleError

REGISTER = "register it with treadle.torch.operator(name, kernel, formula=...)"


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


__all__ = ["check_tensors"]
