# pyright: standard
"""`treadle.explain`: what of a PyTorch module becomes kernels, what does not, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from treadle.torch.backend import make_backend
from treadle.torch.options import Options
from treadle.torch.report import Report


def explain(
    model: Callable[..., Any],
    inputs: Sequence[Any] | torch.Tensor = (),
    named: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Compile a module or function for these inputs (a tensor alone is one), and say which kernels it became (`str()`
    of the report reads well). The module runs twice, as it is and compiled: what it changes in place, it changes twice.
    With the option `training`, where results require a gradient, the backward runs once, and touches no `.grad`.
    `options` are those of `torch.compile`.

    TreadleError for an option that is not known."""
    import torch._dynamo as dynamo

    report = Report()
    options_known = Options.of(options)
    inputs = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    found = dynamo.explain(model)(*inputs, **(named or {}))
    report.breaks = [str(each.reason).splitlines()[0] for each in found.break_reasons]
    dynamo.reset()
    compiled: Any = torch.compile(model, backend=make_backend(options_known, report.graphs.append))
    results = compiled(*inputs, **(named or {}))
    if options_known.training:
        _differentiated(results)
    return report


def _differentiated(results: Any) -> None:
    """Run the backward, which PyTorch may compile only then."""
    of = [each for each in tree_leaves(results) if isinstance(each, torch.Tensor) and each.requires_grad]
    leaves = _leaves(of)
    if leaves:
        torch.autograd.grad(of, leaves, [torch.ones_like(each) for each in of], allow_unused=True)


def _leaves(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What tensors were computed from that a gradient would be accumulated in."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    todo: list[Any] = [each.grad_fn for each in results if each.grad_fn is not None]
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        if hasattr(function, "variable"):
            found[id(function.variable)] = function.variable
        todo.extend(each for each, _ in function.next_functions if each is not None)
    return [*found.values()]
