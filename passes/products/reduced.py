"""Two axes that reductions reduce together, and that some array lacks, or has apart: what is made with both has one axis
in their place, and those arrays are read at the quotient and the remainder of it.

A group is fed one axis. Of two that are not one it would hold one whole, or save what a product gives along both. So it
is with scores of a query and of pairs of keys, `Q[q, d] K[x, d] L[y, d]`, of which all pairs share one softmax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, sizes_of
from treadle.passes._functions import stated_sizes
from treadle.passes._parts import Reducing
from treadle.passes.axes.lengths import stated_length, too_many

Pair = tuple[str, str]

MAKING = (CastOp, ContractOp, MapOp, WhereOp)
"""Operations of which each element is made of elements at the same positions, along axes that they do not reduce."""


@dataclass(frozen=True)
class Reduced:
    """Two axes that are one in all that is made with both."""

    outer: str
    inner: str
    size: int
    """Of the inner one."""
    steps: tuple[Operation, ...]
    """What has both, and then reduces them, in program order."""

    @property
    def axes(self) -> Pair:
        """The two axes."""
        return self.outer, self.inner

    @property
    def given(self) -> list[SSAValue]:
        """The arrays that have one of the axes, or both, and that are not made here."""
        made = {result for op in self.steps for result in op.results}
        operands = (operand for op in self.steps for operand in op.operands)
        return list(dict.fromkeys(each for each in operands if each not in made and along(each, self.axes)))

    @property
    def in_order(self) -> list[SSAValue]:
        """Those of them in which the inner axis lies right within the outer one."""
        return [each for each in self.given if lies_within(each, self.axes)]


def reduced_along(function: func.FuncOp, pair: Pair) -> Reduced | None:
    """What may be made with one axis in the place of two, the inner one of which is the second."""
    return _reduced(function.body.block, pair, stated_sizes(function))


def reduced_in(function: func.FuncOp) -> list[Reduced]:
    """The pairs of axes of a function of which this may be made one, those that come first in the program first."""
    block, found = function.body.block, list[Reduced]()
    likely = stated_sizes(function)
    for pair in dict.fromkeys(pair for op in block.ops for pair in _reduced_by(op)):
        taken = {axis for each in found for axis in each.axes}
        ways = [_reduced(block, order, likely) for order in permutations(pair) if taken.isdisjoint(pair)]
        if fitting := [each for each in ways if each is not None]:
            found.append(max(fitting, key=lambda each: len(each.in_order)))
    return found


def _reduced_by(op: Operation) -> Iterator[Pair]:
    """The pairs of axes that an operation reduces, as it names them."""
    if isinstance(op, Reducing):
        sizes = sizes_of(op.operands[0].type)
        yield from combinations([axis for axis in op.over_axes if sizes.get(axis, 1) != 1], 2)


def _reduced(block: Block, pair: Pair, likely: Mapping[str, int]) -> Reduced | None:
    steps = _steps(block, pair)
    products = [op for op in steps if isinstance(op, ContractOp) and not _reduces(op, pair)]
    sizes = {axis: size for op in steps for operand in op.operands for axis, size in sizes_of(operand.type).items()}
    size = sizes.get(pair[1], DYNAMIC)
    if not products or size <= 0 or too_many(stated_length(axis, sizes, likely) for axis in pair) is not None:
        return None
    each = Reduced(*pair, size, tuple(steps))
    if any(absences(value) for value in each.given):
        return None
    if not all(_multiplies_matrices(op, pair) for op in products):
        return None
    if any(isinstance(op, WhereOp) and len(op.told) > 1 for op in steps):
        return None
    return None if _is_used_otherwise(each, products) else each


def _steps(block: Block, pair: Pair) -> list[Operation]:
    """The operations that reduce both axes, and those before them that have both."""
    members = {op for op in block.ops if _reduces(op, pair)}
    left = [operand for op in members for operand in op.operands]
    while left:
        op = left.pop().owner
        if isinstance(op, MAKING) and op not in members and len(along(op.results[0], pair)) == 2:
            members.add(op)
            left.extend(op.operands)
    return [op for op in block.ops if op in members]


def _multiplies_matrices(op: ContractOp, pair: Pair) -> bool:
    """Whether each factor of a product has rows that the other one lacks, once two axes are one."""
    factors = [{*axes_of(operand.type)} for operand in (op.lhs, op.rhs)]
    left, right = (axes | {*pair} if axes & {*pair} else axes for axes in factors)
    return bool(left - right) and bool(right - left)


def _reduces(op: Operation, pair: Pair) -> bool:
    return isinstance(op, Reducing) and {*pair} <= {*op.over_axes}


def _is_used_otherwise(each: Reduced, products: Sequence[Operation]) -> bool:
    """Whether anything else uses what is made of a product, which would be made twice."""
    made = set[Operation]()
    for op in each.steps:
        if op in products or any(operand.owner in made for operand in op.operands):
            made.add(op)
    inside = [op for op in made if not _reduces(op, each.axes)]
    return any(use.operation not in made for op in inside for result in op.results for use in result.uses)


def along(value: SSAValue, axes: Sequence[str]) -> list[str]:
    """Those of some axes that an array has."""
    return [axis for axis in axes_of(value.type) if axis in axes] if is_array(value.type) else []


def lies_within(value: SSAValue, pair: Pair) -> bool:
    """Whether the second of two axes of an array lies right within the first one."""
    axes = axes_of(value.type)
    return len(along(value, pair)) == 2 and axes.index(pair[1]) == axes.index(pair[0]) + 1


__all__ = ["Pair", "Reduced", "along", "lies_within", "reduced_along", "reduced_in"]
