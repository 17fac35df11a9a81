# pyright: standard
"""`torch.compile(model, backend="treadle")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from treadle.torch.compiled_graph import with_kernels
from treadle.torch.decompositions import decompositions, plain_attention
from treadle.torch.options import Options
from treadle.torch.report import GraphReport, Left
from treadle.torch.specialised import NESTED, Specialised, is_nested, is_symbolic
from treadle.torch.training import Partition


def backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """A compiler of graphs, as `torch.compile` asks for it; registered under the name `treadle`.

    Forward graphs get kernels, and with the option `training` backward graphs, too; PyTorch derives these."""
    return make_backend(Options.of(options), lambda report: None)(module, list(inputs))


def make_backend(
    options: Options, on_graph: Callable[[GraphReport], None]
) -> Callable[[GraphModule, list[Any]], Callable[..., Any]]:
    """The backend with these options, which says what became of each graph."""

    def compiled(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        partition = Partition(options)
        how = {"partition_fn": partition} if options.training else {}

        def forward(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            if not options.training:
                return _compiled(module, GraphReport())
            return _compiled(module, GraphReport(kind="forward", saved_bytes=partition.saved_bytes))

        def backward(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            if not options.training:
                return _boxed(module)
            return _boxed(_Later(lambda: _made(module, GraphReport(kind="backward"))))

        def inference(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            return _compiled(module, GraphReport())

        compile_graph: Any = aot_autograd(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=inference,
            **how,
            decompositions=decompositions(),
        )
        return compile_graph(plain_attention(module), inputs)

    def _compiled(module: GraphModule, report: GraphReport) -> Callable[..., Any]:
        return _boxed(_made(module, report))

    def _made(module: GraphModule, report: GraphReport) -> Callable[..., Any]:
        on_graph(report)
        if is_nested(module):
            report.left.append(Left("the whole graph", "", NESTED))
            return module
        return Specialised(module, options, report) if is_symbolic(module) else with_kernels(module, options, report)

    return compiled


class _Later:
    """A graph that is compiled when it is first called: not every module whose parameters require a gradient is
    trained."""

    def __init__(self, make: Callable[[], Callable[..., Any]]):
        self._make = make
        self._made: Callable[..., Any] | None = None
        self._lock = Lock()

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made(*arguments)


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
