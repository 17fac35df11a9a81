"""Which conditions leave elements of an array absent (`diagram.where`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.elements import CastOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.where import WhereOp


class Finishing(ABC):
    """An operation whose results are values of a region of its own."""

    @abstractmethod
    def finished(self, result: SSAValue) -> SSAValue:
        """What one of its results is, inside."""


def absences(value: SSAValue) -> frozenset[WhereOp]:
    """The conditions by which elements of an array may be absent: its own, and those of what it is made of element by
    element. The result of a reduction has all its elements."""
    return absences_of([value])


def absent_along(value: SSAValue, op: Operation) -> Sequence[SSAValue]:
    """The arrays whose absent elements are absent from a result, too: operands, or what a stream finishes."""
    return [op.finished(value)] if isinstance(op, Finishing) else absent_with(op)


Along: TypeAlias = Callable[[SSAValue, Operation], Sequence[SSAValue]]


def absences_of(values: Iterable[SSAValue], along: Along = absent_along) -> frozenset[WhereOp]:
    """Of any of some arrays; `along` says where to look on."""
    found: set[WhereOp] = set()
    seen: set[SSAValue] = set()
    left = list(values)
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, WhereOp):
            found.add(value.owner)
        if isinstance(value.owner, Operation):
            left.extend(along(value, value.owner))
    return frozenset(found)


def absent_with(op: Operation) -> Sequence[SSAValue]:
    """The operands whose absent elements are absent from the result, too. Reductions pass over them, and what a
    condition is about says nothing."""
    if isinstance(op, WhereOp):
        return [op.operand]
    return op.operands if isinstance(op, MapOp | CastOp) else []
