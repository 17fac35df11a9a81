# pyright: standard
"""Complex numbers that a graph makes of pairs of real ones and takes apart again, as rotary embeddings that multiply by
`torch.polar(..)`: what is done to them between is done to their parts. Programs have no complex numbers.

(a + b i) (c + d i) = (a c - b d) + (a d + b c) i."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.fx import Graph, Node

from treadle.torch.made import is_contiguous, made_of, shape_of, strides_of
from treadle.torch.registry import FORMATS, aten

Parts: TypeAlias = "tuple[Any, Any]"
"""The real and the imaginary one: tensors of the shape of the whole, or numbers. What is real has none (None)."""

VIEWS = {
    *(aten.view.default, aten.reshape.default, aten.expand.default, aten.permute.default, aten.unsqueeze.default),
    *(aten.squeeze.dims, aten.select.int, aten.slice.Tensor, aten.alias.default),
}
"""What is done to each part as to the whole."""


def without_complex_numbers(graph: Graph) -> None:
    """No complex number that the graph makes is seen as a pair."""
    numbers = ComplexNumbers(graph)
    for pairs in graph.find_nodes(op="call_function", target=aten.view_as_real.default):
        (number,) = pairs.args
        if numbers.is_made(number) and is_contiguous(number):
            with graph.inserting_before(pairs):
                pairs.replace_all_uses_with(numbers.as_pairs(number))
            graph.erase_node(pairs)
    graph.eliminate_dead_code()


@dataclass
class ComplexNumbers:
    """Those of a graph, and the parts of some, which are made where the graph is written."""

    graph: Graph
    known: dict[Node, Parts] = field(default_factory=dict[Node, "Parts"])

    def is_made(self, node: Any) -> bool:
        """Whether it is computed of what is real."""
        if not _is_complex(node):
            return False
        if node.target in VIEWS:
            return self.is_made(node.args[0])
        return node.target is aten.view_as_complex.default or _is_computed(node)

    def as_pairs(self, node: Node) -> Node:
        """The parts of a number along a last dimension."""
        if node.target is aten.view_as_complex.default:
            return node.all_input_nodes[0]
        shape = (*shape_of(node), 1)
        parts = [self.real(node, aten.unsqueeze.default, (each, -1), shape) for each in self.parts(node)]
        return self.real(node, aten.cat.default, (parts, -1), (*shape[:-1], 2))

    def parts(self, operand: Any) -> Parts:
        if not _is_complex(operand):
            return (operand.real, operand.imag or None) if isinstance(operand, complex) else (operand, None)
        if operand not in self.known:
            self.known[operand] = self._parts(operand)
        return self.known[operand]

    def _parts(self, node: Node) -> Parts:
        if _is_computed(node):
            return RULES[node.target](self, node)
        if node.target in VIEWS and isinstance(node.meta["val"], torch.Tensor):
            real, imaginary = (self._viewed(node, each) for each in self.parts(node.args[0]))
            return real, imaginary
        if node.target is aten.view_as_complex.default:
            (pairs,) = node.all_input_nodes
        else:
            strides = (*(2 * stride for stride in strides_of(node)), 1)
            pairs = self._view(node, aten.view_as_real.default, (self._resolved(node),), (*shape_of(node), 2), strides)
        strides = strides_of(pairs)[:-1]
        real, imaginary = (self._view(node, aten.select.int, (pairs, -1, i), None, strides) for i in range(2))
        return real, imaginary

    def _resolved(self, node: Node) -> Node:
        """Without a conjugation that PyTorch has only noted, which no view shows."""
        value: Any = node.meta["val"]
        if isinstance(value, torch.Tensor) and not value.is_conj():
            return node
        made = self.graph.call_function(aten.resolve_conj.default, (node,))
        made.meta.update(node.meta)
        if isinstance(value, torch.Tensor):
            made.meta["val"] = value.resolve_conj()
        return made

    def _viewed(self, node: Node, part: Node) -> Node:
        """Of a part, which may have gaps where the whole has none."""
        target = aten.reshape.default if node.target is aten.view.default else node.target
        return self._view(node, target, (part, *node.args[1:]))

    def _view(self, like: Node, target: Any, args: Any, shape: Any = None, strides: Any = None) -> Node:
        """With what PyTorch knows of where it begins in memory; of these strides where sizes are symbols."""
        made = self.real(like, target, args, shape, strides)
        of: Any = args[0].meta["val"]
        if isinstance(of, torch.Tensor):
            made.meta["val"] = target(of, *args[1:])
        return made

    def real(self, like: Node, target: Any, args: Any, shape: Any = None, strides: Any = None) -> Node:
        return made_of(self.graph, like, target, args, None, shape, torch.float32, strides)

    # -- what is computed ------------------------------------------------------------------------

    def product(self, node: Node) -> Parts:
        (a, b), (c, d) = map(self.parts, node.args)
        real, imaginary = self._times(node, a, c), self._times(node, a, d)
        if b is not None:
            imaginary = self._joined(node, aten.add.Tensor, imaginary, self._times(node, b, c))
            real = self._joined(node, aten.sub.Tensor, real, self._times(node, b, d))
        return real, imaginary

    def _times(self, node: Node, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return None
        return self.real(node, aten.mul.Tensor, (left, right) if isinstance(left, Node) else (right, left))

    def _joined(self, node: Node, target: Any, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return left if right is None else right
        return self.real(node, target, (left, right))

    def sum(self, node: Node) -> Parts:
        real, imaginary = (self.real(node, node.target, each) for each in zip(*map(self.parts, node.args), strict=True))
        return real, imaginary

    def same(self, node: Node) -> Parts:
        return self.parts(node.args[0])

    def conjugate(self, node: Node) -> Parts:
        real, imaginary = self.parts(node.args[0])
        return real, self.real(node, aten.neg.default, (imaginary,))


RULES: dict[Any, Callable[[ComplexNumbers, Node], Parts]] = {
    aten.mul.Tensor: ComplexNumbers.product,
    aten.add.Tensor: ComplexNumbers.sum,
    aten.sub.Tensor: ComplexNumbers.sum,
    aten._conj.default: ComplexNumbers.conjugate,
    aten.clone.default: ComplexNumbers.same,
}


def _is_complex(node: Any) -> bool:
    """In the format that has two of f32."""
    return isinstance(node, Node) and getattr(node.meta.get("val"), "dtype", None) == torch.complex64


def _is_computed(node: Node) -> bool:
    """By a rule, which for sums has parts of both operands, and multiplies no real numbers that are wider."""
    if node.target is aten.clone.default:
        return True
    if node.target not in RULES or node.kwargs:
        return False
    if node.target is not aten.mul.Tensor:
        return all(map(_is_complex, node.args))
    return all(_is_complex(each) or _is_real(each) for each in node.args)


def _is_real(operand: Any) -> bool:
    """That of a number, too, which may be complex."""
    return (
        operand.meta["val"].dtype in FORMATS
        if isinstance(operand, Node)
        else isinstance(operand, int | float | complex)
    )


__all__ = ["without_complex_numbers"]
