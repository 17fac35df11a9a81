# pyright: standard
"""The softmax of tensors that are one after another, part by part."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import reduce
from math import inf, nan
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.made import made_of
from treadle.torch.registry import aten


class Shares:
    """In f32, as PyTorch's; of doubles, in theirs.

    A row whose counted parts are nothing but -inf has zeros beside another number; if that is -inf, too, or infinite,
    no number, as in the whole."""

    def __init__(self, graph: Graph, node: Node, dim: int, sizes: Sequence[Any], counted: Container[int]):
        self.graph = graph
        self.node = node
        """The softmax of the whole."""
        self.dim = dim
        self.sizes = sizes
        """Of the parts, along the dimension."""
        self.counted = counted
        """The parts whose largest element powers are relative to."""
        self.row = [*node.meta["val"].shape]
        self.row[dim] = 1
        self.wide = torch.float64 if node.meta["val"].dtype == torch.float64 else torch.float32

    def of(self, parts: Mapping[int, Node]) -> dict[int, Node]:
        """The shares of these parts of the whole's operand."""
        converted = {i: self._converted(part, i, self.wide) for i, part in parts.items()}
        counted = {i: part for i, part in converted.items() if i in self.counted}
        beside = [part for i, part in converted.items() if i not in self.counted]
        largest = self._fold(aten.maximum, (self._over(aten.amax.default, part) for part in counted.values()))
        powers = {i: self._power(part, largest, i) for i, part in counted.items()}
        if not beside:
            return self._divided(powers, self._sum(powers.values()))
        none = self._row(aten.eq.Scalar, largest, -inf, dtype=torch.bool)
        powers = {i: self._chosen(none, self._full(0.0), power, i) for i, power in powers.items()}
        most = self._fold(aten.maximum, beside)
        relative = self._chosen(none, most, largest)
        others = self._fold(aten.add, (self._power(each, relative) for each in beside), "Tensor")
        endless = self._row(aten.eq.Scalar, most, inf, dtype=torch.bool)
        total = self._row(aten.add.Tensor, self._sum(powers.values()), self._chosen(endless, self._full(nan), others))
        return self._divided(powers, total)

    def _divided(self, powers: dict[int, Node], total: Node) -> dict[int, Node]:
        wanted = self.node.meta["val"].dtype
        shares = {i: self._number(aten.div.Tensor, power, total, part=i) for i, power in powers.items()}
        if wanted == self.wide:
            return shares
        return {i: self._converted(share, i, wanted) for i, share in shares.items()}

    def _converted(self, given: Node, part: int, dtype: torch.dtype) -> Node:
        return made_of(self.graph, self.node, aten._to_copy.default, (given,), {"dtype": dtype}, self._of(part), dtype)

    def _power(self, part: Node, largest: Node, i: int | None = None) -> Node:
        return self._number(aten.exp.default, self._number(aten.sub.Tensor, part, largest, part=i), part=i)

    def _sum(self, powers: Iterable[Node]) -> Node:
        return self._fold(aten.add, (self._over(aten.sum.dim_IntList, power) for power in powers), "Tensor")

    def _over(self, target: Any, part: Node) -> Node:
        return self._row(target, part, [self.dim], True)

    def _fold(self, packet: Any, parts: Iterable[Node], overload: str = "default") -> Node:
        return reduce(lambda left, right: self._row(getattr(packet, overload), left, right), parts)

    def _chosen(self, condition: Node, yes: Node, no: Node, part: int | None = None) -> Node:
        return self._number(aten.where.self, condition, yes, no, part=part)

    def _full(self, value: float) -> Node:
        kwargs = {"dtype": self.wide, "device": self.node.meta["val"].device}
        return made_of(self.graph, self.node, aten.full.default, ([], value), kwargs, [], self.wide)

    def _row(self, target: Any, *args: Any, dtype: torch.dtype | None = None) -> Node:
        return made_of(self.graph, self.node, target, args, None, self.row, dtype or self.wide)

    def _number(self, target: Any, *args: Any, part: int | None = None) -> Node:
        """An operation on all elements of a part; on one of each row, if no part is named."""
        return made_of(self.graph, self.node, target, args, None, self._of(part), self.wide)

    def _of(self, part: int | None) -> list[Any]:
        shape = [*self.row]
        if part is not None:
            shape[self.dim] = self.sizes[part]
        return shape


__all__ = ["Shares"]
