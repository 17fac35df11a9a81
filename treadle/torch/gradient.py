# pyright: standard
"""The derived gradient of an operator, as an operator of its own: `backward()` without a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from treadle.compiler.errors import TreadleError
from treadle.language.function import NamedKernel
from treadle.language.gradient import GradientKernel


def gradient_operator(name: str, kernel: NamedKernel) -> Any:
    """Register the gradient of a kernel as the operator `<name>_gradient`: it takes the list of the arguments, the
    results and the cotangents of those that hold floats, and gives the list of the gradients of what holds floats.

    A gradient of that is refused (TreadleError)."""
    derived: dict[tuple[bool, ...], GradientKernel] = {}
    count, results = len(kernel.names), len(kernel.signature.outputs)

    def forward(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        floats = tuple(map(_counts, given[count : count + results]))
        made = derived.get(floats) or derived.setdefault(floats, GradientKernel(kernel, floats))
        with torch.no_grad():
            found = made(*given)
        return list(found) if isinstance(found, tuple) else [found]

    def fake(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            torch.empty_like(each, memory_format=torch.contiguous_format) for each in given[:count] if _counts(each)
        ]

    def again(context: Any, *gradients: Any) -> Any:
        raise TreadleError(f"the gradient of {name} is derived, and has none of its own: {ADVICE}")

    made = torch.library.custom_op(f"{name}_gradient", forward, mutates_args=(), schema="(Tensor[] given) -> Tensor[]")
    made.register_fake(fake)
    made.register_autograd(again)
    return made


ADVICE = "register it with formula=, the same function in PyTorch"


def backward_of(operator: Any, context: Any, gradients: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """The gradients of an operator's arguments, from what `keep_all` kept."""
    results = len(gradients)
    saved = context.saved_tensors
    arguments, made = saved[:-results], saved[-results:]
    pairs = [pair for pair in zip(made, gradients, strict=True) if _counts(pair[0])]
    cotangents = [torch.zeros_like(result) if each is None else each.to(result.dtype) for result, each in pairs]
    found = iter(operator([*arguments, *made, *cotangents]))
    return tuple(next(found) if _counts(each) else None for each in arguments)


def keep_all(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    context.save_for_backward(*inputs, *(output if isinstance(output, tuple | list) else (output,)))


def _counts(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


__all__ = ["ADVICE", "backward_of", "gradient_operator", "keep_all"]
