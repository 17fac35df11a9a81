"""Along which axes arrays are summed, at last: by what they are used for, directly or element by element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.passes._parts import Reducing
from treadle.passes.kernels.roles import WHOLE_LIMIT

Axes: TypeAlias = frozenset[str]


def long_axes(value: SSAValue) -> Axes:
    """Those that no kernel holds whole."""
    return frozenset(axis for axis, size in sizes_of(value.type).items() if size == DYNAMIC or size > WHOLE_LIMIT)


def summed_axes(op: Operation) -> Axes:
    """The long axes along which an operation itself sums; none if it is no reduction and no contraction."""
    if not isinstance(op, Reducing):
        return frozenset()
    return long_axes_of(op) & {*op.over_axes}


def long_axes_of(op: Operation) -> Axes:
    """Of all that an operation uses."""
    return frozenset[str]().union(*map(long_axes, op.operands))


def classes_of(ops: Iterable[Operation]) -> list[Axes]:
    """The axes of the sums that one kernel can make, those that come first in the program first."""
    found: list[Axes] = []
    for op in ops:
        if axes := summed_axes(op):
            found = _united(found, axes)
    return found


def _united(found: list[Axes], axes: Axes) -> list[Axes]:
    """Sets of axes, with one more: those that have an axis in common become one, in the place of the first."""
    touched = [each for each in found if each & axes]
    if not touched:
        return [*found, axes]
    whole = axes.union(*touched)
    return [whole if each is touched[0] else each for each in found if each is touched[0] or each not in touched]


class Sums:
    """For each array that diagram operations of a block make: the sums that it ends in, and whether it leaves."""

    def __init__(self, block: Block):
        self.ops = [op for op in block.ops if isinstance(op, DiagramOperation) and len(op.results) == 1]
        self.ends: dict[SSAValue, frozenset[Axes]] = {}
        """The axes of each sum, as far as the array has them."""
        self.leaving: set[SSAValue] = set()
        """What is used by anything else, or is made into something that is, with all long axes that it has."""
        for op in reversed(self.ops):
            self._add(op.results[0])

    def _add(self, value: SSAValue) -> None:
        long, found = long_axes(value), set[Axes]()
        for use in value.uses:
            user = use.operation
            if not isinstance(user, DiagramOperation) or len(user.results) != 1:
                self.leaving.add(value)
            elif summed := long & summed_axes(user):
                found.add(summed)
            else:
                made = user.results[0]
                found |= {axes & long for axes in self.ends.get(made, ()) if axes & long}
                if made in self.leaving and long <= long_axes(made):
                    self.leaving.add(value)
        self.ends[value] = frozenset(found)
