# pyright: standard
"""Dimensions of PyTorch's tensors as products of named axes.

PyTorch knows sizes only: a view splits a dimension of 768 into 12 x 64, and another puts it together again. Here every
dimension is a list of axes, outermost first. What must be the same is unified; an axis that meets two is split. Sizes
of 1 are no axes: that is broadcasting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from treadle.torch.symbols import likely, quotient, same

Dims: TypeAlias = "tuple[tuple[Axis, ...], ...]"
"""The axes of each dimension of a tensor, outermost first."""


class Mismatch(Exception):
    """Two lists of axes that cannot be one."""


class Axis:
    """An axis, until it is found to be another or the product of several."""

    __slots__ = ("_parts", "size")

    def __init__(self, size: Any):
        self.size = size
        """A number, or a `treadle.torch.symbols.Size`."""
        self._parts: tuple[Axis, ...] | None = None

    def leaves(self) -> tuple[Axis, ...]:
        """What it is made of, as far as is known."""
        if self._parts is None:
            return (self,)
        return tuple(leaf for part in self._parts for leaf in part.leaves())

    def become(self, parts: tuple[Axis, ...]) -> None:
        assert self._parts is None
        self._parts = parts

    def __repr__(self) -> str:
        return f"<axis of {self.size}>"


def leaves(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """The axes of which these are made, outermost first."""
    return tuple(leaf for axis in axes for leaf in axis.leaves())


def unify(left: Iterable[Axis], right: Iterable[Axis]) -> None:
    """Make the axes of both, taken as one long index, the same (Mismatch where their sizes do not nest)."""
    todo_left, todo_right = list(leaves(left))[::-1], list(leaves(right))[::-1]
    while todo_left and todo_right:
        a, b = todo_left.pop(), todo_right.pop()
        a_leaves, b_leaves = a.leaves(), b.leaves()
        if len(a_leaves) > 1 or len(b_leaves) > 1 or a_leaves != (a,) or b_leaves != (b,):
            todo_left.extend(reversed(a_leaves))  # split or merged since the list was made
            todo_right.extend(reversed(b_leaves))
        elif a is not b:
            _join(a, b, todo_left, todo_right)
    if todo_left or todo_right:
        raise Mismatch("their sizes differ")


def _join(a: Axis, b: Axis, todo_a: list[Axis], todo_b: list[Axis]) -> None:
    if same(a.size, b.size):
        b.become((a,))
        return
    inner = quotient(a.size, b.size)
    if inner is None:
        a, b, todo_a = b, a, todo_b
        inner = quotient(a.size, b.size)
    if inner is None:
        large, small = sorted((a.size, b.size), key=likely, reverse=True)
        raise Mismatch(f"an axis of {large} cannot be split to match one of {small}")
    rest = Axis(inner)
    a.become((b, rest))
    todo_a.append(rest)
