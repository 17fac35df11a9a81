"""Names for dimensions that have none.

The dimensions of a plain tensor and the loops of a structured operation are only numbered. Here each is an axis of its
own until an operation uses two as one; `Axes.unify` joins them, except where that would give one array the same axis
twice, as in `X X^T`: then `unify` says so, and the array is read under other names instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from treadle.dialects.diagram.array import DYNAMIC, size_text


class Differ(Exception):
    """Two axes that one operation uses as one have different sizes."""


@dataclass(eq=False)
class Axis:
    """A dimension or loop, until it is found to be the same as another one."""

    size: int | None
    """`DYNAMIC` where it is symbolic; None for a loop of which no size is known yet."""
    name: str | None = None
    is_dropped: bool = False
    """Whether it is an axis of size 1 that some operation reads at position 0: no axis at all."""
    groups: set[int] = field(default_factory=set[int])
    """The arrays and loop nests that have it: two axes with a group in common stay apart."""
    same_as: Axis | None = None

    @property
    def root(self) -> Axis:
        axis = self
        while axis.same_as is not None:
            axis = axis.same_as
        return axis


class Axes:
    """All axes of a function."""

    def __init__(self) -> None:
        self._groups = 0

    def group(self, sizes: Sequence[int | None], names: Sequence[str] | None = None) -> tuple[Axis, ...]:
        """New axes that must stay apart: those of one array, or the loops of one operation."""
        self._groups += 1
        given = names or [None] * len(sizes)
        return tuple(Axis(size, name, groups={self._groups}) for size, name in zip(sizes, given, strict=True))

    def unify(self, left: Axis, right: Axis) -> bool:
        """Make two axes one. False, with nothing done, where an array or a nest of loops has both, or where both have
        names that differ (Differ where their sizes do)."""
        left, right = left.root, right.root
        if left is right:
            return True
        sizes = {axis.size for axis in (left, right) if axis.size is not None}
        if len(sizes) > 1:
            sizes -= {DYNAMIC}  # known only at launch; in a program that means something it is the same
        if len(sizes) > 1:
            raise Differ(f"an axis has the sizes {' and '.join(sorted(size_text(size) for size in sizes))}")
        names = {axis.name for axis in (left, right)} - {None}
        if left.groups & right.groups or len(names) > 1:
            return False
        right.same_as = left
        left.size = next(iter(sizes), None)
        left.name = next(iter(names), None)
        left.is_dropped |= right.is_dropped
        left.groups |= right.groups
        return True


def give_names(axes: Iterable[Axis], wanted: Sequence[str]) -> None:
    """Name the axes that have no name yet, in order: those that are wanted first, then d0, d1, ..."""
    roots = list(dict.fromkeys(axis.root for axis in axes))
    taken = {axis.name for axis in roots}
    names = [*wanted, *(f"d{i}" for i in range(len(roots) + len(taken)))]
    free = iter([name for name in dict.fromkeys(names) if name not in taken])
    for axis in roots:
        if axis.name is None and not axis.is_dropped:
            axis.name = next(free)
