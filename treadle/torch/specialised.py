# pyright: standard
"""Graphs whose sizes are symbols: kernels are derived for the sizes that come."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from threading import Lock
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from treadle.torch.compiled_graph import with_kernels
from treadle.torch.options import Options
from treadle.torch.report import GraphReport, Left

KEPT = 32
"""For how many combinations of sizes a graph keeps its kernels."""

DEPENDS_ON_VALUES = (
    "the sizes of what it gives are known only once it has run, and with it those of the whole graph, which stays"
)


def is_symbolic(module: GraphModule) -> bool:
    return any(
        isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool) for node in module.graph.nodes
    )


class Specialised:
    """A graph with symbolic sizes, called with any."""

    def __init__(self, module: GraphModule, options: Options, report: GraphReport):
        self.module = module
        self.options = options
        self.report = report
        self._made: OrderedDict[tuple[Any, ...], GraphModule] = OrderedDict()
        self._lock = Lock()
        """PyTorch lets threads call what it compiled at once: one makes a graph, the others wait for it."""

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            made = self._known(arguments)
        return made(*arguments)

    def _known(self, arguments: tuple[Any, ...]) -> GraphModule:
        key = tuple(_key(each) for each in arguments)
        if key not in self._made:
            self._made[key] = self._for(arguments)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]

    def _for(self, arguments: tuple[Any, ...]) -> GraphModule:
        module = GraphModule(self.module, deepcopy(self.module.graph))
        mode = FakeTensorMode()
        fake = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in arguments]
        try:
            FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fake)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            self.report.left.append(Left(str(error.func).removeprefix("aten."), "", DEPENDS_ON_VALUES))
            return self.module
        for node in module.graph.nodes:
            node.args, node.kwargs = map_arg((node.args, node.kwargs), _constant)
        module.graph.eliminate_dead_code()
        return with_kernels(module, self.options, self.report)


def _constant(node: Node) -> Any:
    """A size is now a number."""
    value = node.meta.get("val")
    return value if isinstance(value, int | float | bool) else node


def _key(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return tuple(argument.shape), tuple(argument.stride()), argument.dtype, argument.device
    return argument
