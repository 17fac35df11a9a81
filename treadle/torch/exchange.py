# pyright: standard
"""Exchange of sums in a graph of PyTorch: a row of a product's gradient, weighed by what was multiplied, is a row of
the product.

The gradient of `O = A V` for `A` is `D = G V^T`, where `G` is that for `O`. What a normalisation along the rows of `A`
asks of it, `sum_x A[q, x] D[q, x]`, is `sum_x A (sum_e G V) = sum_e G (sum_x A V) = sum_e G[q, e] O[q, e]`: finite sums
change places. Softmax asks that, so that attention keeps `O` for its gradient, which it gives anyway, and walks the
scores once less. The same law as in derived gradients (`passes/gradients/exchange.py`), on PyTorch's graph.
Where dropout lies between `A` and its product, it lies between `D` and what is summed, too, with the same mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from treadle.torch.registry import aten

FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}

IN_ORDER = {aten.view.default, aten.reshape.default, aten.alias.default, aten.clone.default, aten._to_copy.default}
"""The same elements, counted row by row, as their operand has; rounded, maybe."""

TRANSPOSED = {aten.mm.default: [1, 0], aten.bmm.default: [0, 2, 1]}


@dataclass(frozen=True)
class _Exchanged:
    """`G` and `O`, as many rows each."""

    gradient: Node
    product: Node


def exchange_sums(graph: Graph) -> None:
    """Rewrite each such sum where the rows of `O` are not longer than those of `A`."""
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        if (found := _exchanged(node)) is not None:
            _rewrite(graph, node, found)


def _exchanged(node: Node) -> _Exchanged | None:
    if sum(not isinstance(size, int) for size in _shape(node)) > 1:
        return None  # a view of the rows may leave one size open
    operand, dims, *_ = node.args
    if not isinstance(operand, Node) or operand.target is not aten.mul.Tensor or not _is_float(node):
        return None
    factors = [each for each in operand.args if isinstance(each, Node)]
    rank = _shape(operand)
    if len(factors) != 2 or list(dims) not in ([-1], [len(rank) - 1]):  # type: ignore[call-overload]
        return None
    if any(not _same(_shape(each), rank) or not _is_float(each) for each in factors):
        return None
    for weights, gradient in (factors, factors[::-1]):
        if (found := _product(weights, gradient)) is not None:
            return found
    return None


def _product(weights: Node, gradient: Node) -> _Exchanged | None:
    """The product of the weights, if the other is the gradient of one by them."""
    made, dropped = _dropped(_origin(gradient))
    if made.target not in TRANSPOSED:
        return None
    of_product, turned = made.args
    if not isinstance(turned, Node) or turned.target is not aten.permute.default:
        return None
    values, order = turned.args
    if not isinstance(values, Node) or list(order) != TRANSPOSED[made.target]:  # type: ignore[call-overload]
        return None
    length = _shape(weights)[-1]
    inner = _shape(of_product)[-1]
    if not statically_known_true(_shape(made)[-1] == length) or statically_known_true(inner > length):
        return None
    for user in values.users:
        if user.target is not made.target or user.args[1] is not values:
            continue
        if not _same(_shape(user.args[0]), _shape(made)):
            continue
        if _dropped(_origin(user.args[0])) != (_origin(weights), dropped):
            continue
        if isinstance(of_product, Node) and _same(_shape(user), _shape(of_product)):
            return _Exchanged(of_product, user)
    return None


def _dropped(node: Node) -> tuple[Node, tuple[Any, Any] | None]:
    """What elements are left of where a mask is true, times a number, the others zero, and these two: in a sum of
    products the mask may choose of either factor."""
    if node.target is not aten.where.self or not _is_zero(node.args[2]):
        return node, None
    mask, scaled, _ = node.args
    if not isinstance(scaled, Node) or scaled.target is not aten.mul.Tensor or not isinstance(scaled.args[1], float):
        return node, None
    given: Any = scaled.args[0]
    if not _is_float(given) or not _same(_shape(given), _shape(node)):
        return node, None
    return _origin(given), (mask, scaled.args[1])


def _is_zero(value: Any) -> bool:
    return (
        value == 0 if not isinstance(value, Node) else value.target is aten.scalar_tensor.default and not value.args[0]
    )


def _origin(node: Any) -> Node:
    """What it is, row by row, under other dimensions or rounded. Every format on the way is one of `FLOATS`: what
    saturates is another number."""
    while isinstance(node, Node) and _keeps_order(node) and _is_float(node.args[0]):
        node = node.args[0]
    return node


def _keeps_order(node: Node) -> bool:
    if node.target is aten.expand.default:
        return _same(_shape(node.args[0]), _shape(node))
    return node.target in IN_ORDER


def _is_float(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in FLOATS


def _shape(node: Any) -> Sequence[Any]:
    return node.meta["val"].shape


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def _rewrite(graph: Graph, node: Node, found: _Exchanged) -> None:
    dtype = node.meta["val"].dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    with graph.inserting_before(node):
        factors = [_wider(graph, node, each, wide) for each in (found.gradient, found.product)]
        terms = _made(graph, node, aten.mul.Tensor, *factors)
        rows = _wider(graph, node, _made(graph, node, aten.sum.dim_IntList, terms, [-1]), dtype)
        shape = [size if isinstance(size, int) else -1 for size in _shape(node)]
        made = _made(graph, node, aten.view.default, rows, shape)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _wider(graph: Graph, like: Node, node: Node, dtype: torch.dtype) -> Node:
    if node.meta["val"].dtype == dtype:
        return node
    return _made(graph, like, aten._to_copy.default, node, dtype=dtype)


def _made(graph: Graph, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node, of which is known what is known of another, and its value."""
    made = graph.call_function(target, args, kwargs)
    made.meta = dict(like.meta)
    values = [each.meta["val"] if isinstance(each, Node) else each for each in args]
    with like.meta["val"].fake_mode:
        made.meta["val"] = target(*values, **kwargs)
    made.meta.pop("tensor_meta", None)
    return made


__all__ = ["exchange_sums"]
