# pyright: standard
"""PyTorch's `flex_attention`, spelled out: scores, what its functions make of them, and of which the mask keeps some.

Its functions are graphs of one element at a time, given its four positions. Here they are given all at once, so that a
mask is a condition on positions, of which no kernel visits what it leaves out, and a table that is indexed by positions
is an array along these axes. The blocks of a `BlockMask` are not read, as in PyTorch's own form without a kernel: its
function says what is seen."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import inf, log
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from treadle.torch.at_blocks import at_blocks
from treadle.torch.heads import for_heads
from treadle.torch.masked import masked_softmax

aten: Any = torch.ops.aten

FLEX_ATTENTION: Any = torch.ops.higher_order.flex_attention

POSITIONS = 4
"""Of an element of the scores: batch, head, query, key."""


def flexible_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: Any,
    of_scores: Sequence[Any] = (),
    of_mask: Sequence[Any] = (),
) -> tuple[Any, Any, Any]:
    """What is attended to; the logarithm to base 2 of the sum of the powers of scores, and the largest score, of each
    row. Rows that see nothing have zeros, `-inf` and `-inf`."""
    key, value = (_for_all(each, query) for each in (key, value))
    scores = (query @ key.transpose(-2, -1)).to(torch.promote_types(query.dtype, torch.float32)) * scale
    places = _places(scores)
    scores = _Function(score_mod, places).run(scores, *places, *of_scores).to(scores.dtype)
    mask = block_mask[-1]
    seen = None if _is_always_true(mask) else _Function(mask, places).run(*places, *of_mask)
    shares = aten._safe_softmax(scores, -1) if seen is None else masked_softmax(scores, seen)
    kept = scores if seen is None else torch.where(seen, scores, -inf)
    largest = kept.amax(-1)
    none = largest == -inf
    total = torch.exp(kept - torch.where(none, 0.0, largest)[..., None]).sum(-1)
    return shares.to(value.dtype) @ value, torch.where(none, -inf, torch.log(total) + largest) / log(2), largest


def _for_all(shared: Any, query: Any) -> Any:
    """Keys or values of fewer heads, or of one sequence for all."""
    shared = for_heads(shared, query.size(1))
    return shared if shared.size(0) == query.size(0) else shared.expand(query.size(0), -1, -1, -1)


def _places(scores: Any) -> list[Any]:
    """The positions along each dimension, as they broadcast."""
    return [
        torch.arange(size, device=scores.device).reshape([-1 if i == dim else 1 for i in range(POSITIONS)])
        for dim, size in enumerate(scores.shape)
    ]


def _is_always_true(mask: GraphModule) -> bool:
    """Whether it is the mask of who gave none."""
    (output,) = mask.graph.find_nodes(op="output")
    made = output.args[0]
    return getattr(made, "op", "") == "call_method" and made.target == "new_ones"


class _Function(Interpreter):
    """One of the functions, of all elements."""

    def __init__(self, function: GraphModule, places: Sequence[Any]):
        super().__init__(function)
        self.places = places
        self.quotients: list[tuple[Any, int, int]] = []
        """What is made of positions by division: the dimension, and what is divided by."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is operator.getitem and (view := self._along(*args)) is not None:
            return view
        made = super().call_function(target, args, kwargs)
        if target is operator.floordiv and len(args) == 2 and isinstance(args[1], int) and args[1] > 1:
            self.quotients += [(made, dim, args[1]) for dim, place in enumerate(self.places) if place is args[0]]
        return made

    def _place(self, index: Any) -> tuple[int, int] | None:
        """The dimension whose positions an index has, and what divides them; None for any other."""
        quotients = ((dim, divisor) for made, dim, divisor in self.quotients if made is index)
        own = ((dim, 1) for dim, place in enumerate(self.places) if place is index)
        return next(iter((*own, *quotients)), None)

    def _along(self, table: Any, index: Any) -> Any:
        """A table that is indexed by positions or quotients of them, each along its own dimension: no element is looked
        up."""
        given = index if isinstance(index, tuple) else (index,)
        found = [self._place(each) for each in given]
        if not isinstance(table, torch.Tensor) or table.dim() != len(found) or None in found:
            return None
        dims, divisors = [each[0] for each in found if each], [each[1] for each in found if each]
        sizes = [self.places[dim].numel() for dim in dims]
        reached = zip(sizes, divisors, table.shape, strict=True)
        if len({*dims}) < len(dims) or any(size > there * divisor for size, divisor, there in reached):
            return None
        for dim, (size, divisor) in enumerate(zip(sizes, divisors, strict=True)):
            table = table.narrow(dim, 0, size) if divisor == 1 else table
        if any(divisor > 1 for divisor in divisors):
            if table.dtype != torch.int32:  # of which alone conditions on blocks are told
                return None
            table = at_blocks(table, divisors, sizes)
        order = sorted(range(len(dims)), key=dims.__getitem__)
        shape = [self.places[dim].numel() if dim in dims else 1 for dim in range(POSITIONS)]
        return table.permute(order).reshape(shape)


__all__ = ["FLEX_ATTENTION", "flexible_attention"]
