# pyright: standard
"""Graphs whose sizes are symbols: kernels are derived for a class of sizes, and serve all that come of it."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.node import map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from treadle.torch.compiled_graph import with_kernels
from treadle.torch.folded import fold_numbers
from treadle.torch.options import Options
from treadle.torch.report import GraphReport, Left
from treadle.torch.sources import Sources, sources_of, widths_of
from treadle.torch.symbols import Described, Symbols, constant

KEPT = 32
"""How many graphs with kernels are kept, each for a class of sizes (or for one combination)."""

KNOWN = 4096
"""For how many combinations of sizes it is kept which of them serves."""

WIDTHS = 4
"""How many sizes a width may have before it is taken for a length."""

IS_WIDTH = Left("a last dimension", "", f"a size of last dimensions alone is a width, of which {WIDTHS} are exact")

DEPENDS_ON_VALUES = (
    "the sizes of what it gives are known only once it has run, and with it those of the whole graph, which stays"
)


def is_symbolic(module: GraphModule) -> bool:
    return any(
        isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool) for node in module.graph.nodes
    )


@dataclass(frozen=True)
class Made:
    """A graph with kernels, and what its sizes are known to be; None where it is for one combination."""

    graph: GraphModule
    symbols: Symbols | None


NESTED = "it is of nested tensors, some of whose sizes are lists of numbers"


def is_nested(module: GraphModule) -> bool:
    """Whether a symbol stands for the sizes of what a jagged tensor holds."""
    values = (node.meta.get("val") for node in module.graph.nodes)
    return any(isinstance(each, torch.SymInt) and each.node.is_nested_int() for each in values)


class Specialised:
    """A graph with symbolic sizes, called with any.

    Its symbols stay symbols in the programs that are made of it; a call says what they are. Where its arguments do not
    tell them all, a graph is made for each combination of sizes."""

    def __init__(self, module: GraphModule, options: Options, report: GraphReport):
        self.module = module
        self.options = options
        self.report = report
        self._sources: Sources | None = sources_of(module)
        self._widths = {symbol: set[int]() for symbol in widths_of(module)}
        """What is a width has few sizes, and kernels that hold it whole: each of the first has kernels of its own."""
        self._made: list[Made] = []
        """What was needed last stands last."""
        self._known: OrderedDict[tuple[Any, ...], Made] = OrderedDict()
        self._lock = Lock()
        """PyTorch lets threads call what it compiled at once: one makes a graph, the others wait for it."""

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            made = self._for(arguments)
        return made.graph(*arguments)

    def _for(self, arguments: tuple[Any, ...]) -> Made:
        key = self._key(arguments)
        if (made := self._known.get(key)) is None:
            made = self._known[key] = self._serving(key) or self._new(key, arguments)
        self._known.move_to_end(key)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        self._made.remove(made)
        self._made.append(made)
        return made

    def _key(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of all symbols, or all that fake tensors know of the arguments."""
        if self._sources is None:
            return tuple(_described(each) for each in arguments)
        return tuple(source.of(arguments) for source in self._sources.values())

    def _serving(self, key: tuple[Any, ...]) -> Made | None:
        values = dict(zip(self._sources or (), key, strict=False))
        return next((made for made in reversed(self._made) if made.symbols and made.symbols.are_met(values)), None)

    def _new(self, key: tuple[Any, ...], arguments: tuple[Any, ...]) -> Made:
        if self._sources is None:
            made = Made(self._of_one(arguments), None)
        else:
            made = self._of_class(self._sources, dict(zip(self._sources, key, strict=True)))
        self._made.append(made)
        if len(self._made) > KEPT:
            gone = self._made.pop(0)
            self._known = OrderedDict((key, each) for key, each in self._known.items() if each is not gone)
        return made

    def _of_class(self, sources: Sources, values: dict[Any, int]) -> Made:
        """For all sizes of which what is asked of these is true."""
        for symbol, sizes in [*self._widths.items()]:
            sizes.add(values[symbol])
            if len(sizes) > WIDTHS:
                del self._widths[symbol]
        symbols = Symbols(values, self._widths)
        if self._widths and IS_WIDTH not in self.report.anew:
            self.report.anew.append(IS_WIDTH)
        module = GraphModule(self.module, deepcopy(self.module.graph))
        placeholders = module.graph.find_nodes(op="placeholder")
        given = {symbol: source.node(module.graph, placeholders) for symbol, source in sources.items()}
        for node in module.graph.nodes:
            node.meta = {**node.meta, "val": Described.of(symbols, node.meta.get("val")), "symbols": symbols}
        for symbol, node in given.items():
            node.meta["val"] = symbols.size(symbol)
        fold_numbers(module.graph)
        return Made(with_kernels(module, self.options, self.report, tuple(given.values())), symbols)

    def _of_one(self, arguments: tuple[Any, ...]) -> GraphModule:
        """For the sizes of these alone."""
        module = GraphModule(self.module, deepcopy(self.module.graph))
        mode = FakeTensorMode()
        fake = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in arguments]
        try:
            FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fake)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            self.report.left.append(Left(str(error.func).removeprefix("aten."), "", DEPENDS_ON_VALUES))
            return self.module
        for node in module.graph.nodes:
            node.args, node.kwargs = map_arg((node.args, node.kwargs), constant)
        module.graph.eliminate_dead_code()
        return with_kernels(module, self.options, self.report)


def _described(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return tuple(argument.shape), tuple(argument.stride()), argument.dtype, argument.device
    return argument
