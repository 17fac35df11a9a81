# pyright: standard
"""A graph and its gradient, which PyTorch derives together: what the forward saves, and what the backward makes again.

PyTorch's own rule (`min_cut_rematerialization_partition`) saves the fewest bytes from which the backward follows
without multiplying matrices again. Of kernels that is too strict. Scores of attention never leave the kernel that makes
them; to save them would write an array, and cut the kernel. What a kernel of the forward holds near, a product that is
larger than what it is made from and that the kernel reduces again, is therefore made again, with all that follows from
it there: in 16 bits, a maximum that is saved would be rounded, and what is made again is not.

What a backward compares is made in one place for the same reason. Of a maximum that was saved and scores that are made
again, none would be equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import arg_tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from treadle.torch.compiled_graph import pieces_of
from treadle.torch.exchange import exchange_sums
from treadle.torch.operations import CONTRACTIONS, REDUCTIONS
from treadle.torch.options import Options
from treadle.torch.outputs import members_read
from treadle.torch.pieces import AGAIN
from treadle.torch.program import is_free
from treadle.torch.random import KEPT, is_seed
from treadle.torch.registry import aten
from treadle.torch.symbols import constant
from treadle.torch.views import owner

EQUALITY = {aten.eq.Tensor, aten.ne.Tensor}

EXTREMA = {aten.amax.default, aten.amin.default, aten.max.default, aten.min.default}


@dataclass
class Partition:
    """Cuts a joint graph into forward and backward, as `aot_autograd` asks for it."""

    options: Options
    saved_bytes: int = 0
    """What the last forward writes for its backward alone, neither arguments nor results, nor views of these; where
    sizes are symbols, at the sizes that came first."""

    def __call__(
        self, joint: GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **others: Any
    ) -> tuple[GraphModule, GraphModule]:
        exchange_sums(joint.graph)
        joint.graph.eliminate_dead_code()
        copies = _forward_of(joint.graph, num_fwd_outputs)
        _mark_compared(joint.graph, set(copies))
        _mark_repeated(joint.graph)
        _mark_drawn(joint.graph)
        self._mark_near(copies)
        joint.recompile()
        forward, backward = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **others
        )
        self.saved_bytes = _saved(forward, num_fwd_outputs)
        return forward, backward

    def _mark_near(self, copies: dict[Node, Node]) -> None:
        graph = next(iter(copies.values())).graph
        if not _has_sizes(graph) and not _take_hints(graph):
            return
        _, pieces = pieces_of(graph, self.options, True)
        near = {node for piece in pieces if piece.made is not None for node in _held_near(piece.nodes)}
        for node, copy in copies.items():
            if copy in near:
                _make_again(node)
                node.meta[AGAIN] = True


def _forward_of(joint: Graph, results: int) -> dict[Node, Node]:
    """The nodes of the forward alone, each with its copy in a graph of its own."""
    copies: dict[Node, Node] = {}
    graph = Graph()
    graph.graph_copy(joint, copies)
    outputs = arg_tree_leaves(*joint.output_node().args)[:results]
    graph.output([copies[each] if isinstance(each, Node) else each for each in outputs])
    graph.eliminate_dead_code()
    left = set(graph.nodes)
    return {node: copy for node, copy in copies.items() if copy in left}


def _make_again(node: Node) -> None:
    """A user's own checkpoints stay as they are."""
    node.meta.setdefault("recompute", CheckpointPolicy.MUST_RECOMPUTE)


def _mark_compared(joint: Graph, forward: set[Node]) -> None:
    """Whether two numbers are equal is saved if the forward asks; an extremum is made again if the backward does."""
    for node in joint.nodes:
        if node.target not in EQUALITY:
            continue
        if node in forward:
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
            continue
        for operand in node.all_input_nodes:
            for each in _to_extremum(operand):
                _make_again(each)


def _mark_repeated(joint: Graph) -> None:
    """Keys that are repeated for each head, and copies of them, are made again rather than saved."""
    repeated: set[Node] = set()
    for node in joint.nodes:
        if node.target is aten.expand.default and not statically_known_true(_size(node) == _size(node.args[0])):
            repeated.add(node)
        elif is_free(node) and any(each in repeated for each in node.all_input_nodes):
            repeated.add(node)
            _make_again(node)


def _mark_drawn(joint: Graph) -> None:
    """A seed is drawn once, whatever is made again; what is drawn by it is made again."""
    for node in joint.nodes:
        if is_seed(node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        elif node.target is KEPT:
            _make_again(node)


def _to_extremum(node: Node) -> list[Node]:
    """The nodes on the way to the extremum that this is, if it is one under other dimensions or rounded."""
    found = [node]
    while is_free(found[-1]) or found[-1].target is aten._to_copy.default:
        if not found[-1].all_input_nodes:
            return []
        found.append(found[-1].all_input_nodes[0])
    return found if found[-1].target in EXTREMA else []


def _has_sizes(graph: Graph) -> bool:
    values = (node.meta.get("val") for node in graph.nodes)
    return all(isinstance(size, int) for each in values if isinstance(each, torch.Tensor) for size in each.shape)


def _take_hints(graph: Graph) -> bool:
    """Compute the values of a graph whose sizes are symbols at the sizes that came first: what is made again for these
    is for others. False where sizes are known only once it runs."""
    module = GraphModule(torch.nn.Module(), graph)
    mode = FakeTensorMode()
    try:
        with mode:
            given = [_at_hints(node.meta["val"]) for node in graph.find_nodes(op="placeholder")]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*given)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return False
    for node in graph.nodes:
        node.args, node.kwargs = map_arg((node.args, node.kwargs), constant)
    graph.eliminate_dead_code()
    return True


def _at_hints(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = [[_hint(each) for each in of] for of in (value.shape, value.stride())]
        return torch.empty_strided(*sizes, dtype=value.dtype, device=value.device)
    return _hint(value)


def _hint(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) else size


def _held_near(nodes: Sequence[Node]) -> set[Node]:
    """What a program does not give, from each large product on that it reduces again."""
    inside = set(nodes) - set(members_read(nodes))
    found: set[Node] = set()
    for node in nodes:
        if node in inside and node.target in CONTRACTIONS and _is_large(node):
            later = _following(node, set(nodes))
            if any(each.target in REDUCTIONS for each in later):
                found.update(each for each in (node, *later) if each in inside)
    return found


def _is_large(product: Node) -> bool:
    return _size(product) > sum(_size(each) for each in _factors(product))


def _factors(product: Node) -> Sequence[Any]:
    """What a product multiplies: a convolution's bias stands behind that, others before it."""
    return product.args[:2] if product.target is aten.convolution.default else product.args[-2:]


def _following(node: Node, inside: set[Node]) -> list[Node]:
    """The nodes inside that it is computed into, through free ones."""
    found: dict[Node, None] = {}
    todo = [*node.users]
    while todo:
        each = todo.pop()
        if each in found or not (each in inside or is_free(each)):
            continue
        found[each] = None
        todo.extend(each.users)
    return sorted(each for each in found if each in inside)


def _size(node: Any) -> int:
    return node.meta["val"].numel()


def _saved(forward: GraphModule, results: int) -> int:
    outputs = arg_tree_leaves(*forward.graph.output_node().args)
    there = {owner(each) for each in outputs[:results] if isinstance(each, Node)}
    saved = {owner(each) for each in outputs[results:] if isinstance(each, Node)}
    values = [each.meta.get("val") for each in saved - there if each.op != "placeholder"]
    return sum(_bytes(each) for each in values if isinstance(each, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    """At the sizes that came first, where they are symbols."""
    return prod(_hint(each) for each in tensor.shape) * tensor.element_size()


__all__ = ["Partition"]
