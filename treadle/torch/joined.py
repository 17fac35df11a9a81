# pyright: standard
"""Products whose summed dimension is a concatenation: the sum of the products with its parts, each where it lies.

So a concatenation that only products sum over, of queries and of keys, is never written. It is done where the sum is
one kernel: one part may be long, the others are such as a group holds whole. Each part begins where 16 bytes do, as
copies ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from treadle.passes.kernels.roles import WHOLE_LIMIT
from treadle.torch.apart import is_given
from treadle.torch.made import shape_of
from treadle.torch.registry import FREE, aten

MOST_PARTS = 4
"""Each is a product, and has tiles of its own."""

COPIED_BYTES = 16
"""What a copy takes at once."""

SUMS: dict[Any, Any] = {
    aten.mm.default: aten.addmm.default,
    aten.bmm.default: aten.baddbmm.default,
    aten.addmm.default: aten.addmm.default,
    aten.baddbmm.default: aten.baddbmm.default,
}
"""Products, and how another one is added to them."""

MOVED: dict[Any, Callable[[Node, int], int | None]] = {
    aten.unsqueeze.default: lambda node, dim: dim + (_dim(node) <= dim),
    aten.permute.default: lambda node, dim: [each % len(shape_of(node)) for each in _listed(node)].index(dim),
    aten.expand.default: lambda node, dim: dim + len(shape_of(node)) - len(shape_of(_given(node))),
    aten.clone.default: lambda node, dim: dim,
    aten.view.default: lambda node, dim: _in_view(shape_of(_given(node)), shape_of(node), dim),
}
"""Where a dimension is after a view; None where it is none of its own."""


def join(graph: Graph) -> None:
    """Every concatenation that only products sum over, and of which parts are read, is gone."""
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        joined = Joined(graph, node)
        if joined.is_legal():
            joined.rewrite()
            graph.eliminate_dead_code()


class Joined:
    """One concatenation, the views of it, and what reads these."""

    def __init__(self, graph: Graph, cat: Node):
        self.graph = graph
        self.cat = cat
        tensors: Any = cat.args[0]
        self.tensors: tuple[Node, ...] = tuple(tensors)
        dim: Any = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        self.dims: dict[Node, int] = {cat: dim % len(shape_of(cat))}
        """The dimension along which parts lie, in each view."""
        self.sizes: list[Any] = [shape_of(each)[self.dims[cat]] for each in self.tensors] if self._are_alike() else []
        self.products: dict[Node, int] = {}
        """With the argument that is the concatenation."""
        self.slices: dict[Node, int] = {}
        """With the part that they are."""

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each part begins and ends."""
        ends = [*accumulate(self.sizes)]
        return list(zip([0, *ends], ends, strict=False))

    # -- whether it can be ---------------------------------------------------------------------------

    def is_legal(self) -> bool:
        return (
            1 < len(self.sizes) <= MOST_PARTS
            and self._fits()
            and self._follow(self.cat)
            and bool(self.products or self.slices)
        )

    def _are_alike(self) -> bool:
        """Whether tensors differ in nothing but how long they are, and all is known of them."""
        made = self.cat.meta["val"]
        values = [each.meta.get("val") for each in self.tensors]
        return isinstance(made, FakeTensor) and all(
            isinstance(each, FakeTensor) and each.dtype == made.dtype and each.dim() == made.dim() for each in values
        )

    def _fits(self) -> bool:
        """Whether sums with parts so long are one kernel."""
        if any(type(size) is not int or size == 0 for size in self.sizes):
            return False
        width = self.cat.meta["val"].element_size()
        return sorted(self.sizes)[-2] <= WHOLE_LIMIT and all(
            begin * width % COPIED_BYTES == 0 for begin, _ in self.places
        )

    def _follow(self, node: Node) -> bool:
        """Whether all that reads a view is known."""
        return all(self._is_known(user, node) for user in node.users)

    def _is_known(self, user: Node, node: Node) -> bool:
        if user.op != "call_function" or not isinstance(user.meta.get("val"), FakeTensor):
            return False
        if user.target in SUMS:
            return self._is_summed(user, node)
        if user.target is aten.slice.Tensor and self._along(user) == self.dims[node]:
            return self._is_part(user)
        moved = MOVED.get(user.target)
        if user.target is aten.slice.Tensor:
            dim = self.dims[node]
        elif moved is None or (dim := moved(user, self.dims[node])) is None:
            return False
        self.dims[user] = dim
        return self._follow(user)

    def _is_summed(self, product: Node, node: Node) -> bool:
        """Whether a product sums over the parts of one operand; what is multiplied with it is no view of the same."""
        *_, left, right = product.args
        if product.kwargs or product in self.products or product.args.count(node) != 1 or node not in (left, right):
            return False
        self.products[product] = product.args.index(node)
        return self.dims[node] == len(shape_of(node)) - (1 if node is left else 2)

    def _along(self, node: Node) -> int:
        dim: Any = node.args[1] if len(node.args) > 1 else 0
        return dim % len(shape_of(node))

    def _is_part(self, node: Node) -> bool:
        given: Any = (*node.args, *(None,) * 3)
        _, _, begin, end, step = given[:5]
        whole = sum(self.sizes)
        if step not in (None, 1) or not all(each is None or type(each) is int for each in (begin, end)):
            return False
        place = range(*slice(begin, end).indices(whole))
        found = [i for i, part in enumerate(self.places) if part == (place.start, place.stop)]
        self.slices.update((node, i) for i in found)
        return bool(found) and not is_given(node)

    # -- doing it ------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """All that replaces the concatenation is made before anything is replaced: a part may have no such view."""
        values: dict[Node, Any] = {}
        try:
            made = {node: self._replacement(node) for node in (*self.products, *self.slices)}
            for node in self.slices:
                values |= _of_views(node, made[node].meta["val"])
        except (RuntimeError, ValueError):  # as PyTorch's own operations say it, and as its decompositions do
            return
        for node, value in values.items():
            node.meta["val"] = value
        for node, new in made.items():
            node.replace_all_uses_with(new)
            self.graph.erase_node(node)

    def _replacement(self, node: Node) -> Node:
        with self.graph.inserting_before(node):
            if node in self.slices:
                return self._part(_given(node), self.slices[node])
            return self._sum(node)

    def _sum(self, product: Node) -> Node:
        first, *rest = (self._factors(product, i) for i in range(len(self.sizes)))
        summed = self._made(product, product.target, (*product.args[:-2], *first))
        for factors in rest:
            summed = self._made(product, SUMS[product.target], (summed, *factors))
        return summed

    def _factors(self, product: Node, part: int) -> Iterator[Node]:
        """A part of both operands of a product."""
        begin, end = self.places[part]
        for i, operand in list(enumerate(product.args))[-2:]:
            assert isinstance(operand, Node)
            is_left = i == len(product.args) - 2
            dim = len(shape_of(operand)) - (1 if is_left else 2)
            if i == self.products[product]:
                yield self._part(operand, part)
            else:
                yield self._made(product, aten.slice.Tensor, (operand, dim, begin, end))

    def _part(self, node: Node, part: int) -> Node:
        """A view of one part."""
        if node is self.cat:
            return self.tensors[part]
        given = self._part(_given(node), part)
        rest = [*node.args[1:]]
        if node.target in (aten.expand.default, aten.view.default):
            shape = [*_listed(node)]
            shape[self.dims[node]] = self.sizes[part]
            rest = [shape]
        return self._made(node, node.target, (given, *rest), node.kwargs)

    def _made(self, like: Node, target: Any, args: Sequence[Any], kwargs: Any = None) -> Node:
        """An operation, and what PyTorch says of its result (RuntimeError or ValueError where it is none)."""
        value = _run(target, args, kwargs or {}, {})
        node = self.graph.call_function(target, tuple(args), dict(kwargs or {}))
        node.meta.update(like.meta)
        node.meta["val"] = value
        return node


def _run(target: Any, args: Sequence[Any], kwargs: Any, known: Mapping[Node, Any]) -> Any:
    """What PyTorch says of the result of an operation, and of these values."""

    def value(node: Node) -> Any:
        return known[node] if node in known else node.meta["val"]

    with unset_fake_temporarily():  # of their own mode, whatever PyTorch traces meanwhile
        return target(*map_arg(tuple(args), value), **map_arg(dict(kwargs), value))


def _of_views(node: Node, value: Any) -> dict[Node, Any]:
    """What views of a node are where it is another tensor, which lies in memory otherwise (RuntimeError or ValueError
    where one is none)."""
    found: dict[Node, Any] = {}
    known = {node: value}
    for user in node.users:
        if user.op == "call_function" and user.target in FREE:
            found[user] = _run(user.target, user.args, user.kwargs, known)
            found |= _of_views(user, found[user])
    return found


def _given(node: Node) -> Node:
    given = node.args[0]
    assert isinstance(given, Node)
    return given


def _listed(node: Node) -> Sequence[Any]:
    listed: Any = node.args[1]
    return listed


def _dim(node: Node) -> int:
    dim: Any = node.args[1]
    return dim % len(shape_of(node))


def _in_view(shape: Sequence[Any], seen: Sequence[Any], dim: int) -> int | None:
    """Where a dimension is in a view of other dimensions, if it is neither split nor merged with another."""
    inner = prod(shape[dim + 1 :])
    found = [i for i, size in enumerate(seen) if size == shape[dim] and prod(seen[i + 1 :]) == inner]
    return found[0] if found else None


__all__ = ["join"]
