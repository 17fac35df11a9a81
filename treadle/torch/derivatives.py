# pyright: standard
"""Derivatives of operators: a backward function for `backward()`, and a formula for everything else.

PyTorch drops the tangents of forward mode at an operator that says nothing of them, and the result counts as a
constant. Here the formula, the same function in PyTorch's operations, is run instead of the operator wherever the
transforms of `torch.func`, or forward mode, ask for a derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.forward_ad import unpack_dual
from torch.library import Library

from treadle.language.function import NamedKernel
from treadle.torch.direct import at_once, called

KEYS = ("AutogradCPU", "AutogradCUDA")
"""Where autograd asks an operator how it is differentiated; on other devices, `register_autograd` answers."""

Keep = Callable[[Any, "tuple[Any, ...]", Any], None]

_REGISTERED: dict[str, Library] = {}
"""What PyTorch forgets with its library."""


def differentiate(
    name: str,
    formula: Callable[..., Any],
    keep: Keep,
    backward: Callable[..., Any],
    kernel: NamedKernel | None = None,
) -> None:
    """Say how the operator `name` is differentiated: `keep(context, inputs, output)` and `backward(context,
    *gradients)` as `torch.library.register_autograd` takes them, and the formula. If it is that of a kernel, the kernel
    is called directly where it may be."""
    namespace, base = name.split("::")
    overload = getattr(getattr(torch.ops, namespace), base).default

    def run(tensors: Sequence[torch.Tensor]) -> Any:
        if kernel is not None and (made := called(kernel, tensors)) is not None:
            return made
        with torch._C._AutoDispatchBelowAutograd():
            return overload(*tensors)

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(*tensors: Any) -> Any:
            return run(tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            keep(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    def autograd(*tensors: torch.Tensor) -> Any:
        if kernel is not None and (known := at_once(kernel, tensors)) is not None:
            return known
        if _are_transformed(tensors):
            return formula(*tensors)
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return Differentiated.apply(*tensors)
        return run(tensors)

    _REGISTERED.pop(name, None)
    library = _REGISTERED[name] = Library(namespace, "FRAGMENT")
    for key in KEYS:
        library.impl(base, autograd, key)


def _are_transformed(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a transform of `torch.func` differentiates by one of these, or one has a tangent."""
    active = torch._C._are_functorch_transforms_active()
    if not active and forward_ad._current_level < 0:  # as `unpack_dual` would say of each
        return False
    level = 0 if active else None  # in a graph, transforms enter the one level without telling Python
    if any(unpack_dual(each, level=level).tangent is not None for each in tensors):
        return True
    return active and any(each.requires_grad for each in tensors)


__all__ = ["differentiate"]
