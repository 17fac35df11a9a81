# pyright: standard
"""Kernels as PyTorch operators: `torch.export` and `torch.compile` see through, autograd goes through a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import format_of, shape_of
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.language.function import NamedKernel
from treadle.torch.derivatives import differentiate
from treadle.torch.direct import make_direct
from treadle.torch.gradient import ADVICE, backward_of, gradient_operator, keep_all

DTYPES = {name: getattr(torch, each.dtype) for name, each in NUMBER_FORMATS.items()}


def operator(name: str, kernel: NamedKernel, formula: Callable[..., Any] | None = None) -> Any:
    """Register a kernel over named axes as the operator `name` (`"mine::attention"`, then `torch.ops.mine.attention`).

    PyTorch knows the shapes of the results from the signature. Where a derivative is asked for, `formula`, the same
    function in PyTorch's operations, is differentiated: backward, once or several times, forward, and by the transforms
    of `torch.func`. Without one, `backward()` runs kernels of the derived gradient, and what else is asked for is an
    error. TreadleError for a name without a namespace, and for what cannot be differentiated."""
    if name.count("::") != 1 or not all(part.isidentifier() for part in name.split("::")):
        raise TreadleError(f"'{name}' is no name of an operator: write namespace::name")
    given: Any = kernel
    if not isinstance(given, NamedKernel):
        raise TreadleError(f"a kernel for {name} is a function under @treadle.kernel(..), not {given!r}")
    signature = kernel.signature
    several = len(signature.outputs) > 1
    returned = ", ".join(["Tensor"] * len(signature.outputs))
    schema = f"({', '.join(f'Tensor {each}' for each in kernel.names)}) -> {f'({returned})' if several else returned}"

    def forward(*tensors: torch.Tensor) -> Any:
        if not torch.is_grad_enabled() or not any(each.requires_grad for each in tensors):
            return kernel(*tensors)
        with torch.no_grad():  # gradients are the formula's
            return kernel(*tensors)

    def fake(*tensors: torch.Tensor) -> Any:
        if len(devices := dict.fromkeys(str(each.device) for each in tensors)) > 1:
            raise TreadleError(
                f"the arguments of {name} lie on several devices, {', '.join(devices)}: move them to one"
            )
        sizes = signature.sizes(kernel.names, [tuple(each.shape) for each in tensors])
        known = {axis: _number(size) for axis, size in sizes.items()}
        types = kernel.result_types(kernel.formats(tensors), known)
        made = [
            tensors[0].new_empty(
                # axes that the function makes have the sizes that it gives them
                [sizes.get(axis, size) for axis, size in zip(axes, shape_of(type), strict=True)],
                dtype=DTYPES[str(format_of(type))],
            )
            for axes, type in zip(signature.outputs, types, strict=True)
        ]
        return tuple(made) if several else made[0]

    made = torch.library.custom_op(name, forward, mutates_args=(), schema=schema)
    made.register_fake(fake)

    def stated(*tensors: torch.Tensor) -> Any:
        results = _stated(name, formula)(*tensors)
        return tuple(results) if several else results

    derived = gradient_operator(name, kernel) if formula is None else None

    def backward(context: Any, *gradients: Any) -> Any:
        if derived is not None:
            return backward_of(derived, context, gradients)
        return _backward(_stated(name, formula), context, gradients)

    keep = _keep if derived is None else keep_all
    made.register_autograd(backward, setup_context=keep)
    differentiate(name, stated, keep, backward, kernel)
    make_direct(made, kernel)
    return made


def _number(size: int | torch.SymInt) -> int:
    """A size, or one like it where it is a symbol: number formats do not depend on it, and asking would fix it."""
    return size if isinstance(size, int) else getattr(size.node, "hint", None) or 2


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _stated(name: str, formula: Callable[..., Any] | None) -> Callable[..., Any]:
    """(TreadleError)"""
    if formula is None:
        raise TreadleError(f"{name} has a gradient for backward() alone: for forward mode and torch.func, {ADVICE}")
    return formula


def _backward(formula: Callable[..., Any], context: Any, gradients: tuple[Any, ...]) -> Any:
    again = torch.is_grad_enabled()  # the gradients are themselves to be differentiated
    with torch.enable_grad():
        leaves = [_leaf(each, again) for each in context.saved_tensors]
        results = formula(*leaves)
        several = results if isinstance(results, tuple | list) else (results,)
        wanted = [each for each in leaves if each.requires_grad]
        pairs = zip(several, gradients, strict=True)
        differentiable = [(result, gradient) for result, gradient in pairs if result.requires_grad]  # integers are not
        given = [torch.zeros_like(result) if gradient is None else gradient for result, gradient in differentiable]
        if not differentiable:
            return (None,) * len(leaves)
        of = [result for result, _ in differentiable]
        found = iter(torch.autograd.grad(of, wanted, given, create_graph=again, allow_unused=True))
    return tuple(next(found) if each.requires_grad else None for each in leaves)


def _leaf(tensor: torch.Tensor, again: bool) -> torch.Tensor:
    """What the formula is differentiated by; connected with the tensor if its gradient will be differentiated."""
    if again and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_(tensor.dtype.is_floating_point)


__all__ = ["operator"]
