# pyright: standard
"""`torch.compile(model, backend="treadle")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from treadle.torch.compiled_graph import with_kernels
from treadle.torch.decompositions import decompositions, plain_attention
from treadle.torch.options import Options
from treadle.torch.report import GraphReport
from treadle.torch.specialised import Specialised, is_symbolic


def backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """A compiler of graphs, as `torch.compile` asks for it; registered under the name `treadle`.

    Forward graphs get kernels; a backward graph, derived by PyTorch, runs as PyTorch runs it."""
    return make_backend(Options.of(options), lambda report: None)(module, list(inputs))


def make_backend(
    options: Options, on_graph: Callable[[GraphReport], None]
) -> Callable[[GraphModule, list[Any]], Callable[..., Any]]:
    """The backend with these options, which says what became of each graph."""

    def forward(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        report = GraphReport()
        on_graph(report)
        made = Specialised(module, options, report) if is_symbolic(module) else with_kernels(module, options, report)
        return _boxed(made)

    def backward(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(module)

    compile_graph: Any = aot_autograd(fw_compiler=forward, bw_compiler=backward, decompositions=decompositions())

    def compiled(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return compile_graph(plain_attention(module), inputs)

    return compiled


def _boxed(module: Callable[..., Any]) -> Callable[..., Any]:
    """Called with the list of arguments, which it empties: PyTorch frees them early."""

    def call(arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        with torch.no_grad():
            return module(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


__all__ = ["backend", "make_backend"]
