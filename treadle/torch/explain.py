# pyright: standard
"""`treadle.explain`: what of a PyTorch module becomes kernels, what does not, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

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
    compiled(*inputs, **(named or {}))
    return report
