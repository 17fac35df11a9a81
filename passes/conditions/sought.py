"""Comparisons with data along an axis that is summed over: between which positions they hold, only data say.

`of_x[x] == of_q[q]` has no ends that a group could reckon. What `streams.ranges` would search for in every group is
told here of conditions before there are kernels, and restated over ends that are known (`conditions.found`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either, terms_of
from treadle.dialects.diagram.linear import axis_in
from treadle.passes.streams.ranges import Knowledge, Search, searched_parts

Told: TypeAlias = Callable[[Search], Condition]
"""What is known of where comparisons hold that a group would search for."""


def sought_along(block: Block) -> dict[str, list[WhereOp]]:
    """The axes along which comparisons with data leave out what is summed, and the conditions that they are part of;
    without those of which more is known."""
    found: dict[str, list[WhereOp]] = {}
    for op in block.ops:
        if isinstance(op, WhereOp) and op.within is None and op.throughout is None:
            for axis in axes_of(op.result.type):
                if any(searches_of(op.holds, axis)) and axis in _summed(op.result):
                    found.setdefault(axis, []).append(op)
    return found


def searches_of(condition: Condition, axis: str) -> list[Search]:
    """What a condition would have every group search for along an axis."""
    found: list[Search] = []

    def told(search: Search) -> Condition:
        found.append(search)
        return search.condition

    restated(condition, axis, told)
    return found


def restated(condition: Condition, axis: str, told: Told) -> Condition:
    """A condition with what is known in the place of what would be searched for along an axis. It says no less, or no
    more, where all that is known does: no part of a condition is negated."""
    known = Knowledge(axis, lambda value: not _is_along(value, axis), lambda value: _is_along(value, axis))
    match condition:
        case AtLeastZero():
            return told(Search(condition)) if known.is_sought(condition) else condition
        case Both():
            sought, others = searched_parts(condition, known)
            parts = [restated(part, axis, told) for part in others]
            return Both((*parts, told(Search(Both(sought))))) if sought else Both(tuple(parts))
        case Either(parts):
            return Either(tuple(restated(part, axis, told) for part in parts))


def _is_along(value: SSAValue, axis: str) -> bool:
    return is_array(value.type) and axis in axes_of(value.type)


def _summed(value: SSAValue) -> set[str]:
    """The axes that reductions and products sum over of what is made of an array element by element."""
    found: set[str] = set()
    for op in _users(value):
        if isinstance(op, ContractOp | ReduceOp):
            found |= {*op.over_axes}
    return found


def _users(value: SSAValue) -> Iterator[Operation]:
    """What uses an array, or what is made of it element by element."""
    seen: set[Operation] = set()
    left: list[SSAValue] = [value]
    while left:
        for use in left.pop().uses:
            op = use.operation
            if op in seen or (isinstance(op, WhereOp) and use.index > 0):
                continue
            seen.add(op)
            yield op
            if isinstance(op, MapOp | CastOp | WhereOp):
                left += op.results


def searched_axes(search: Search, along: str) -> Sequence[str]:
    """The axes whose positions, and data, tell one search along an axis from another."""
    found: dict[str, None] = {}
    for term in terms_of(search.condition):
        axes = axes_of(term.type) if isinstance(term, SSAValue) else [axis_in(str(term))]
        found |= dict.fromkeys(axis for axis in axes if axis != along)
    return list(found)


__all__ = ["Told", "restated", "searched_axes", "searches_of", "sought_along"]
