"""Which axes of a function are one axis, and why others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import (
    CastOp,
    CollapseOp,
    ContractOp,
    ExtentOp,
    FillOp,
    MapOp,
    ReadOp,
    ReduceOp,
    SwapOp,
    WhereOp,
)
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, sizes_of
from treadle.passes._functions import label, stated_sizes
from treadle.passes._parts import Reducing
from treadle.passes.axes.divided import divides, is_beside, is_place_alone, why_asked
from treadle.passes.axes.joins import within
from treadle.passes.axes.lengths import too_many

Pair: TypeAlias = tuple[str, str]
"""An axis, and the one that lies within it."""

WEAVING = (CastOp, ContractOp, ExtentOp, FillOp, MapOp, ReduceOp, SwapOp, WhereOp)
"""Operations that may treat two axes as one."""


class Candidates:
    """The arrays and reductions of one block, asked about pairs of axes. Arrays `besides` may have one of them alone:
    what reads these says where."""

    def __init__(self, block: Block, besides: Collection[SSAValue] = ()):
        self.block = block
        ops = [op for op in block.ops if not isinstance(op, func.ReturnOp)]
        self.ops = [op for op in ops if not isinstance(op, ReadOp | CollapseOp) or op.operand not in besides]
        self.values = [value for value in _values(block) if is_array(value.type) and value not in besides]
        function = block.parent_op()
        self.stated = stated_sizes(function) if isinstance(function, func.FuncOp) else {}

    def groups(self) -> list[tuple[str, ...]]:
        """Axes that are one, and that some operation reduces together."""
        return self._grouped(self.pairs())

    def free_groups(self, among: Sequence[str] = ()) -> list[tuple[str, ...]]:
        """Axes that are one, and of which some product has all in its left operand and none in its right one, or the
        other way: as a tuple they are the rows of a matrix, or its columns. Only of those `among`, if any are."""
        return self._grouped(pair for pair in self.free_pairs() if not among or {*pair} <= {*among})

    def _grouped(self, pairs: Iterable[Pair]) -> list[tuple[str, ...]]:
        """The outermost first of each, as many as one axis may be; those that come first in the program first."""
        after = {outer: inner for outer, inner in pairs if self.why_not((outer, inner)) is None}
        first = [axis for axis in after if axis not in after.values()]
        return [tuple(self._as_many_as_may_be(_chain(axis, after))) for axis in first]

    def _as_many_as_may_be(self, axes: Iterable[str]) -> Iterator[str]:
        """The first of some axes that are one, of which any two may be."""
        lengths = list[int]()
        for axis in axes:
            lengths.append(max(self._length(value, axis) for value in self.values if axis in axes_of(value.type)))
            if too_many(lengths) is not None:
                return
            yield axis

    def _length(self, value: SSAValue, axis: str) -> int:
        """Of an axis, as the program states it (DYNAMIC where it does not)."""
        size = sizes_of(value.type)[axis]
        return self.stated.get(axis, DYNAMIC) if size == DYNAMIC else size

    def free_pairs(self) -> list[Pair]:
        """Neighbours in the result of a product that one of its operands has, and the other has not."""
        found: dict[Pair, None] = {}
        for op in self.ops:
            if isinstance(op, ContractOp):
                operands = ({*axes_of(op.lhs.type)}, {*axes_of(op.rhs.type)})
                for pair in pairwise(axes_of(op.result.type)):
                    if any(own.issuperset(pair) and other.isdisjoint(pair) for own, other in permutations(operands)):
                        found[pair] = None
        return list(found)

    def pairs(self) -> list[Pair]:
        """Neighbours in an array that one reduction reduces together."""
        found: dict[Pair, None] = {}
        for op in self.ops:
            over = {axis for each in (op, *within(op)) if isinstance(each, Reducing) for axis in each.over_axes}
            for value in self.values if len(over) > 1 else ():
                axes = axes_of(value.type)
                found |= {pair: None for pair in pairwise(axes) if over.issuperset(pair)}
        return list(found)

    def joined(self, pair: Pair) -> list[ReduceOp]:
        """The reductions that reduce one of two axes of what reduces the other."""
        return [op for op in self.ops if isinstance(op, ReduceOp) and _divides(op, pair)]

    def disordered(self) -> dict[Pair, str]:
        """Axes that one reduction reduces together, and that all operations treat alike, which lie otherwise in some
        array: why they are not one."""
        found: dict[Pair, str] = {}
        for op in self.ops:
            over = op.over_axes if isinstance(op, Reducing) else ()
            for pair in combinations(over, 2):
                other = pair[1], pair[0]
                if not self._may_lie_so(pair) or other in found:
                    continue
                if (reason := self.why_apart(pair)) is not None and self.why_apart(other) is not None:
                    found[pair] = reason
        return found

    def _may_lie_so(self, pair: Pair) -> bool:
        """Whether nothing but the order of axes in memory keeps two of them apart."""
        values = [value for value in self.values if not is_place_alone(value, pair)]
        both = all(len({*axes_of(value.type)} & {*pair}) != 1 for value in values)
        return both and all(_why_not_alike(op, pair) is None for op in self.ops)

    def why_not(self, pair: Pair) -> str | None:
        """Why two axes are not one; None if they are."""
        if all(pair[0] not in axes_of(argument.type) for argument in self.block.args if argument.uses.get_length()):
            return "no argument that is used tells how long they are"
        if (reason := self.why_apart(pair)) is not None:
            return reason
        return next((reason for op in self.ops if (reason := _why_not_alike(op, pair)) is not None), None)

    def why_apart(self, pair: Pair) -> str | None:
        """Why two axes do not lie one within the other in all arrays."""
        between = {op.operand for op in self.joined(pair)}
        for value in self.values:
            axes = axes_of(value.type)
            inside = [axis for axis in axes if axis in pair]
            if not inside or value in between or is_place_alone(value, pair):
                continue
            if len(inside) == 1:
                return f"{label(value)} has '{inside[0]}' alone"
            if axes.index(pair[0]) + 1 != axes.index(pair[1]):
                return f"'{pair[1]}' does not lie within '{pair[0]}' in {label(value)}[{', '.join(axes)}]"
            if (reason := too_many([self._length(value, axis) for axis in pair])) is not None:
                return reason
        return None


def _divides(op: ReduceOp, pair: Pair) -> bool:
    """Whether a reduction reduces one axis of a pair, and what it combines the other."""
    inner = next(within(op), None)
    if inner is None:
        return False
    own, others = {*op.over_axes} & {*pair}, {*inner.over_axes} & {*pair}
    return len(own) == 1 and len(others) == 1


def _why_not_alike(op: Operation, pair: Pair) -> str | None:
    """Why an operation does not treat two axes as one."""
    if isinstance(op, ReadOp) and (is_beside(op, pair) or divides(op, pair)):
        return None
    if isinstance(op, SwapOp) and op.axis.data in pair:
        sizes = [sizes_of(op.result.type)[axis] for axis in pair]
        return "blocks along one of them are swapped, and not both have static sizes" if DYNAMIC in sizes else None
    if not isinstance(op, WEAVING):
        return f"{op.name} knows one of them" if _touches(op, pair) else None
    if isinstance(op, WhereOp) and (reason := why_asked(op, pair)) is not None:
        return reason
    if not isinstance(op, Reducing):
        return None
    over = {*op.over_axes, *(axis for each in within(op) if _is_joined(op, pair) for axis in each.over_axes)}
    if len(over & {*pair}) != 1 or _is_inner(op, pair):
        return None
    (axis,) = over & {*pair}
    return f"{label(op.result)} is reduced along '{axis}' alone"


def _is_joined(op: Operation, pair: Pair) -> bool:
    return isinstance(op, ReduceOp) and _divides(op, pair)


def _is_inner(op: Reducing, pair: Pair) -> bool:
    """Whether a reduction is done with the one that uses it."""
    users = [use.operation for use in op.result.uses]
    return len(users) == 1 and _is_joined(users[0], pair) and next(within(users[0]), None) is op


def _touches(op: Operation, pair: Pair) -> bool:
    """Whether an operation, or one inside it, has arrays with one of two axes, or names it."""
    return any({*axes_of(value.type)} & {*pair} for each in op.walk() for value in _around(each))


def _around(op: Operation) -> Iterator[SSAValue]:
    yield from op.operands
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.args


def _values(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def _chain(axis: str, after: dict[str, str]) -> Iterable[str]:
    yield axis
    while axis in after:
        axis = after[axis]
        yield axis


__all__ = ["Candidates", "Pair"]
