# pyright: standard
"""Tensors that a loop writes part by part, `out[:, i] = ..`: each write is a whole tensor to a graph, with one part of
it replaced, so that n writes would move all of it n times. What is written one after another is put together at once,
and a part that is read again is what was written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from treadle.torch.concatenation import MOST_PARTS
from treadle.torch.made import is_contiguous, made_of, shape_of, strides_of
from treadle.torch.registry import aten

WRITE: Any = aten.slice_scatter.default


def write_at_once(graph: Graph) -> None:
    """Every run of writes along one dimension, of which nothing in between is read, becomes one concatenation."""
    writes = graph.find_nodes(op="call_function", target=WRITE)
    if not writes:
        return
    for node in writes:
        _take_source(graph, node)
    for node in reversed(writes):
        _read_what_was_written(graph, node)
    graph.eliminate_dead_code()
    for node in reversed(graph.find_nodes(op="call_function", target=WRITE)):
        if node.users and len(run := _run_to(node)) > 1:
            _put_together(graph, run)
    graph.eliminate_dead_code()


@dataclass(frozen=True)
class _Write:
    """A part in the place of elements of a tensor along one dimension."""

    node: Node
    tensor: Node
    part: Node
    dim: int
    span: range


def _write_of(node: Any) -> _Write | None:
    """What a node writes, where sizes are numbers and elements are neighbours."""
    if not isinstance(node, Node) or node.target is not WRITE or node.kwargs:
        return None
    tensor, part, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 2 :])
    if not (isinstance(tensor, Node) and isinstance(part, Node) and isinstance(dim, int)):
        return None
    span = _span(tensor, dim, start, end, step)
    return None if span is None else _Write(node, tensor, part, dim % len(shape_of(tensor)), span)


def _span(tensor: Node, dim: int, start: Any, end: Any, step: Any) -> range | None:
    size = shape_of(tensor)[dim]
    if (
        step != 1
        or not isinstance(size, int)
        or not all(each is None or isinstance(each, int) for each in (start, end))
    ):
        return None
    span = range(*slice(start, end).indices(size))
    return span or None


def _take_source(graph: Graph, node: Node) -> None:
    """What is written is a copy over what was there: then that need not be read."""
    part: Any = node.args[1]
    moved = part if part.target is aten.unsqueeze.default else None
    copy: Any = part if moved is None else moved.args[0]
    if copy.target is not aten.copy.default or not isinstance(source := copy.args[1], Node):
        return
    if source.meta["val"].device != copy.meta["val"].device:
        return
    whole = {"memory_format": torch.contiguous_format}
    with graph.inserting_before(node):
        if not is_contiguous(source):
            source = made_of(graph, source, aten.clone.default, [source], whole)
        if source.meta["val"].dtype != (dtype := copy.meta["val"].dtype):
            shape, kept = shape_of(source), {"dtype": dtype}
            source = made_of(graph, copy, aten._to_copy.default, [source], kept, shape)
        if shape_of(source) != (shape := shape_of(copy)):
            wide = made_of(graph, copy, aten.expand.default, [source, [*shape]], strides=_expanded(source, shape))
            source = made_of(graph, copy, aten.clone.default, [wide], whole)
        if moved is not None:
            source = made_of(graph, moved, aten.unsqueeze.default, [source, moved.args[1]])
    node.update_arg(1, source)


def _expanded(node: Node, shape: Sequence[Any]) -> list[Any]:
    """The strides of what repeats a tensor along dimensions."""
    own, given = shape_of(node), strides_of(node)
    missing = len(shape) - len(own)
    return [0 if i < missing or own[i - missing] != size else given[i - missing] for i, size in enumerate(shape)]


def _read_what_was_written(graph: Graph, node: Node) -> None:
    """Elements that a write leaves as they were are read from before it, and those that it writes from what it
    writes."""
    if (write := _write_of(node)) is None:
        return
    for user in list(node.users):
        if (asked := _asked(user, write)) is None:
            continue
        inside = write.span.start <= asked.start and asked.stop <= write.span.stop
        if not inside and asked.start < write.span.stop and write.span.start < asked.stop:
            continue
        source, shift = (write.part, write.span.start) if inside else (write.tensor, 0)
        if not is_contiguous(source):
            continue
        args, strides = [source, write.dim, asked.start - shift], [*strides_of(source)]
        if user.target is aten.slice.Tensor:
            args.append(asked.stop - shift)
        else:
            strides.pop(write.dim)
        with graph.inserting_before(user):
            read = made_of(graph, user, user.target, args, strides=strides)
        user.replace_all_uses_with(read)
        graph.erase_node(user)


def _asked(user: Node, write: _Write) -> range | None:
    """Which elements along the dimension of a write a node reads of what it gives, if it is no result of the graph."""
    if user.kwargs or user.args[0] is not write.node or any(each.op == "output" for each in user.users):
        return None
    size, (dim, *places) = shape_of(write.node)[write.dim], user.args[1:] or (0,)
    if dim not in (write.dim, write.dim - len(shape_of(write.node))):
        return None
    if user.target is aten.slice.Tensor:
        start, end, step = (*places, *(None, None, 1)[len(places) :])
        return _span(write.node, write.dim, start, end, step)
    if user.target is aten.select.int and isinstance(place := places[0], int):
        return range(place % size, place % size + 1)
    return None


def _run_to(node: Node) -> list[_Write]:
    """The writes along one dimension that end with this one, of which nothing in between is read."""
    run: list[_Write] = []
    at: Any = node
    while (write := _write_of(at)) is not None and (not run or (write.dim == run[0].dim and len(at.users) == 1)):
        run.insert(0, write)
        at = write.tensor
    return run


def _put_together(graph: Graph, run: Sequence[_Write]) -> None:
    last = run[-1]
    pieces = list(_pieces(run))
    # few parts of one size are an axis of parts, and of others each write is a read: kernels hold both
    alike = len({len(span) for _, span in pieces}) == 1
    order = _order(last.node)
    if not (alike or len(pieces) > MOST_PARTS) or order is None or not all(_is_plain(of) for of, _ in pieces):
        return
    with graph.inserting_before(last.node):
        parts = [_cut(graph, of, last.dim, span) for of, span in pieces]
        whole = _laid(graph, made_of(graph, last.node, aten.cat.default, [parts, last.dim]), order)
    last.node.replace_all_uses_with(whole)


def _order(node: Node) -> list[int] | None:
    """The dimensions of a tensor in the order in which they lie in memory, None where that is not known or where there
    are gaps."""
    shape, strides = shape_of(node), strides_of(node)
    if _is_plain(node):
        return list(range(len(shape)))
    if not all(isinstance(each, int) for each in (*shape, *strides)):
        return None
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    dense = [strides[dim] == prod(shape[each] for each in order[i + 1 :]) for i, dim in enumerate(order)]
    return order if all(dense) else None


def _laid(graph: Graph, whole: Node, order: Sequence[int]) -> Node:
    """The same tensor with its dimensions in this order in memory."""
    if [*order] == sorted(order):
        return whole
    shape = [shape_of(whole)[dim] for dim in order]
    strides = [strides_of(whole)[dim] for dim in order]
    turned = made_of(graph, whole, aten.permute.default, [whole, [*order]], shape=shape, strides=strides)
    kept = {"memory_format": torch.contiguous_format}
    turned = made_of(graph, turned, aten.clone.default, [turned], kept)
    back = [order.index(dim) for dim in range(len(order))]
    laid = [strides_of(turned)[place] for place in back]
    return made_of(graph, whole, aten.permute.default, [turned, back], strides=laid)


def _pieces(run: Sequence[_Write]) -> Iterator[tuple[Node, range]]:
    """What lies along the dimension after all writes, in order: of which node, and which of its elements."""
    first, size = run[0].tensor, shape_of(run[0].node)[run[0].dim]
    borders = sorted({0, size, *(place for each in run for place in (each.span.start, each.span.stop))})
    found: list[tuple[_Write | None, range]] = []
    for begin, end in pairwise(borders):
        owner = next((each for each in reversed(run) if begin in each.span), None)
        if found and found[-1][0] is owner:
            begin = found.pop()[1].start
        found.append((owner, range(begin, end)))
    for owner, span in found:
        shift = 0 if owner is None else owner.span.start
        yield first if owner is None else owner.part, range(span.start - shift, span.stop - shift)


def _is_plain(node: Node) -> bool:
    """Whether even the strides of dimensions of one element are those of a whole tensor: by them `cat` chooses how its
    result lies in memory."""
    shape = shape_of(node)
    return strides_of(node) == tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _cut(graph: Graph, of: Node, dim: int, span: range) -> Node:
    shape = shape_of(of)
    if len(span) == shape[dim]:
        return of
    args = [of, dim, span.start, span.stop]
    cut = [*shape[:dim], len(span), *shape[dim + 1 :]]
    return made_of(graph, of, aten.slice.Tensor, args, shape=cut, strides=strides_of(of))


__all__ = ["write_at_once"]
