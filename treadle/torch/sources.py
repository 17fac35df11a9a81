# pyright: standard
"""Where a call of a graph says how large its symbols are: among its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import Graph, GraphModule, Node

from treadle.torch.registry import FREE, aten


@dataclass(frozen=True)
class Source:
    """An argument that is the number, or a size or a stride of one that is a tensor."""

    argument: int
    dim: int | None = None
    is_stride: bool = False

    def of(self, arguments: Sequence[Any]) -> int:
        given = arguments[self.argument]
        if self.dim is None:
            return int(given)
        return int(given.stride(self.dim) if self.is_stride else given.shape[self.dim])

    def node(self, graph: Graph, placeholders: Sequence[Node]) -> Node:
        """What gives it in a graph, behind all placeholders."""
        argument = placeholders[self.argument]
        if self.dim is None:
            return argument
        asked = aten.sym_stride.int if self.is_stride else aten.sym_size.int
        with graph.inserting_after(placeholders[-1]):
            return graph.call_function(asked, (argument, self.dim))


Sources: TypeAlias = Mapping[sympy.Symbol, Source]


def sources_of(module: GraphModule) -> Sources | None:
    """Of every symbol that a graph has; None if its arguments do not say one."""
    found: dict[sympy.Symbol, Source] = {}
    for number, node in enumerate(module.graph.find_nodes(op="placeholder")):
        for formula, source in _given(number, node.meta.get("val")):
            if formula.is_Symbol:
                found.setdefault(formula, source)
    values = (node.meta.get("val") for node in module.graph.nodes)
    needed = (formula.free_symbols for value in values for formula in _formulas(value))
    return found if all(each <= found.keys() for each in needed) else None


def widths_of(module: GraphModule) -> list[sympy.Symbol]:
    """Symbols that are only sizes of last dimensions, wherever tensors are given or computed: those of features, which
    a product sums over. A graph that was asked to take any sizes has symbols for these, too."""
    last: dict[sympy.Symbol, None] = {}
    other: set[sympy.Symbol] = set()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.dim() or node.target in FREE:
            continue
        *first, width = value.shape
        other.update(symbol for formula in _formulas(first) for symbol in formula.free_symbols)
        if value.is_floating_point():
            last |= dict.fromkeys(symbol for formula in _formulas([width]) for symbol in formula.free_symbols)
    return [symbol for symbol in last if symbol not in other]


def _given(number: int, value: Any) -> Iterator[tuple[Any, Source]]:
    if isinstance(value, torch.SymInt):
        yield value.node.expr, Source(number)
    if not isinstance(value, torch.Tensor):
        return
    for is_stride, given in ((False, value.shape), (True, value.stride())):
        for dim, size in enumerate(given):
            if isinstance(size, torch.SymInt):
                yield size.node.expr, Source(number, dim, is_stride)


def _formulas(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _formulas(each)
    if isinstance(value, torch.Tensor):
        yield from _formulas([*value.shape, *value.stride()])
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        yield value.node.expr


__all__ = ["Source", "Sources", "sources_of", "widths_of"]
