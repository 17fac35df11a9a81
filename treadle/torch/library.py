# pyright: standard
"""Kernels as PyTorch operators: `torch.export` and `torch.compile` see through, autograd goes through a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.language.function import NamedKernel

DTYPES = {name: getattr(torch, each.dtype) for name, each in NUMBER_FORMATS.items()}


def operator(name: str, kernel: NamedKernel, formula: Callable[..., Any] | None = None) -> Any:
    """Register a kernel over named axes as the operator `name` (`"mine::attention"`, then `torch.ops.mine.attention`).

    PyTorch knows the shapes of the results from the signature. Where a gradient is asked for, `formula`, the same
    function in PyTorch's operations, is differentiated; without one, asking is an error. TreadleError for a name
    without a namespace."""
    if name.count("::") != 1 or not all(part.isidentifier() for part in name.split("::")):
        raise TreadleError(f"'{name}' is no name of an operator: write namespace::name")
    signature = kernel.signature
    several = len(signature.outputs) > 1
    returned = ", ".join(["Tensor"] * len(signature.outputs))
    schema = f"({', '.join(f'Tensor {each}' for each in kernel.names)}) -> {f'({returned})' if several else returned}"

    def forward(*tensors: torch.Tensor) -> Any:
        with torch.no_grad():  # gradients are the formula's
            return kernel(*tensors)

    def fake(*tensors: torch.Tensor) -> Any:
        sizes = signature.sizes(kernel.names, [tuple(each.shape) for each in tensors])
        known = {axis: _number(size) for axis, size in sizes.items()}
        formats = kernel.result_formats(kernel.formats(tensors), known)
        made = [
            tensors[0].new_empty([sizes[axis] for axis in axes], dtype=DTYPES[format])
            for axes, format in zip(signature.outputs, formats, strict=True)
        ]
        return tuple(made) if several else made[0]

    made = torch.library.custom_op(name, forward, mutates_args=(), schema=schema)
    made.register_fake(fake)
    made.register_autograd(
        lambda context, *gradients: _backward(name, formula, context, gradients), setup_context=_keep
    )
    return made


def _number(size: int | torch.SymInt) -> int:
    """A size, or one like it where it is a symbol: number formats do not depend on it, and asking would fix it."""
    return size if isinstance(size, int) else getattr(size.node, "hint", None) or 2


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(name: str, formula: Callable[..., Any] | None, context: Any, gradients: tuple[Any, ...]) -> Any:
    if formula is None:
        raise TreadleError(f"{name} has no gradient: register it with formula=, the same function in PyTorch")
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_(each.dtype.is_floating_point) for each in context.saved_tensors]
        results = formula(*leaves)
    several = results if isinstance(results, tuple | list) else (results,)
    wanted = [each for each in leaves if each.requires_grad]
    pairs = zip(several, gradients, strict=True)
    differentiable = [(result, gradient) for result, gradient in pairs if result.requires_grad]  # integers are not
    given = [torch.zeros_like(result) if gradient is None else gradient for result, gradient in differentiable]
    if not differentiable:
        return (None,) * len(leaves)
    found = iter(torch.autograd.grad([result for result, _ in differentiable], wanted, given, allow_unused=True))
    return tuple(next(found) if each.requires_grad else None for each in leaves)


__all__ = ["operator"]
