# pyright: standard
"""Products of rows that are sorted by what they are multiplied with: `torch._grouped_mm`, as experts whose tokens are
sorted use it. PyTorch says where each range of rows ends; a program, whose conditions name both ends, reads where it
begins, too. As `treadle.torch.operations`."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.language import functions as tl
from treadle.torch.axes import leaves
from treadle.torch.made import made_of, shape_of
from treadle.torch.registry import FORMATS, aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported

PRODUCT = aten._grouped_mm.default


@torch.library.custom_op("treadle::grouped_mm", mutates_args=())
def grouped_mm(rows: torch.Tensor, weights: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """[t, k] x [e, k, n], of rows from `begins` to before `ends` with the weights of that index: [t, n]."""
    return PRODUCT(rows, weights, ends)


@grouped_mm.register_fake
def _(rows: torch.Tensor, weights: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return rows.new_empty((rows.shape[0], weights.shape[2]))


def say_where_ranges_begin(graph: Graph) -> None:
    """Beside where they end, for products that programs have."""
    for product in graph.find_nodes(op="call_function", target=PRODUCT):
        if _is_of_ranges(product):
            with graph.inserting_before(product):
                product.replace_all_uses_with(_with_begins(graph, product))
            graph.erase_node(product)


def _is_of_ranges(product: Node) -> bool:
    """Whether rows of a matrix are multiplied, with one matrix for each of several ranges, in one format."""
    given: tuple[Any, ...] = (*product.args, *(None,) * 5)[:5]
    rows, weights, *others = given
    ends: Any = product.kwargs.get("offs", others[0])
    if product.kwargs.keys() - {"offs"} or any(each is not None for each in others[1:]):
        return False
    if not all(isinstance(each, Node) for each in (rows, weights, ends)):
        return False
    ranks = [len(shape_of(each)) for each in (rows, weights)]
    if ranks != [2, 3] or shape_of(ends)[0] == 1:
        return False
    return _format(rows) == _format(weights) and _format(rows) in FORMATS


def _format(node: Any) -> torch.dtype:
    return node.meta["val"].dtype


def _with_begins(graph: Graph, product: Node) -> Node:
    given: tuple[Any, ...] = (*product.args, *product.kwargs.values())
    rows, weights, ends = given[:3]
    (count,) = shape_of(ends)
    kind = {"shape": (1,), "dtype": torch.int32}
    zero = made_of(graph, ends, aten.full.default, ([1], 0), {"dtype": torch.int32, "device": _device(ends)}, **kind)
    others = made_of(graph, ends, aten.slice.Tensor, (ends, 0, 0, count - 1), shape=(count - 1,))
    begins = made_of(graph, ends, aten.cat.default, ([zero, others],), shape=(count,))
    return made_of(graph, product, torch.ops.treadle.grouped_mm.default, (rows, weights, begins, ends))


def _device(node: Any) -> torch.device:
    return node.meta["val"].device


@computed(torch.ops.treadle.grouped_mm.default)
def product_of_ranges(body: Body, rows: Tensor, weights: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    (t, k), (e, other, n) = rows.dims, weights.dims
    body.unify(k, other)
    for each in (begins, ends):
        body.unify(e, each.dims[0])
    body.keep_whole(e)
    body.keep_whole(t)
    product = body.contract(rows, weights, (e, t, n), k, FORMATS[rows.dtype] if rows.dtype else None)
    if body.graph is None:
        return body.tensor((t, n))
    if begins.text is None or ends.text is None:
        raise Unsupported("where ranges of rows end is computed by the program: conditions speak of what is given")
    _, at = body.place_along(leaves(t))
    condition = f"{begins.text} <= {at} and {at} < {ends.text}"
    kept = tl.keep(body.whole(product), condition, **begins.named, **ends.named)
    return body.tensor((t, n), kept.sum(body.names[leaves(e)[0]]))


__all__ = ["say_where_ranges_begin"]
