"""Which conditions leave elements of an array absent (`diagram.where`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from xdsl.ir import SSAValue

from treadle.dialects.diagram.elements import CastOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.where import WhereOp


@runtime_checkable
class Finishing(Protocol):
    """An operation whose results are values of a region of its own."""

    def finished(self, result: SSAValue) -> SSAValue:
        """What one of its results is, inside."""
        ...


def absences(value: SSAValue) -> frozenset[WhereOp]:
    """The conditions by which elements of an array may be absent: its own, and those of what it is made of element by
    element. The result of a reduction has all its elements."""
    return absences_of([value])


def absences_of(values: Iterable[SSAValue]) -> frozenset[WhereOp]:
    """Of any of some arrays."""
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
            left.append(value.owner.operand)
        elif isinstance(value.owner, MapOp | CastOp):
            left.extend(value.owner.operands)
        elif isinstance(value.owner, Finishing):
            left.append(value.owner.finished(value))
    return frozenset(found)
