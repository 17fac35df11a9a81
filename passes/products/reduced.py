"""Axes that reductions reduce together, and that are not one: some array lacks one, or has them apart, or a condition
asks for positions along one. What is made with all has one axis in their place, and arrays are read at quotients and
remainders of it.

A group is fed one axis. Of two that are not one it would hold one whole, or save what a product gives along both. So it
is with scores of a query and of pairs of keys, `Q[q, d] K[x, d] L[y, d]`, of which all pairs share one softmax."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.told_sizes import told_axes
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReadOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, sizes_of
from treadle.passes._functions import stated_sizes
from treadle.passes._parts import Reducing
from treadle.passes.axes.lengths import stated_length, too_many

Axes = tuple[str, ...]

MOST_AXES = 3
"""That are reduced together: in as many ways may they lie within each other as these have orders."""

MAKING = (CastOp, ContractOp, MapOp, WhereOp)
"""Operations of which each element is made of elements at the same positions, along axes that they do not reduce."""


@dataclass(frozen=True)
class Reduced:
    """Axes that are one in all that is made with them."""

    axes: Axes
    """The outermost first."""
    sizes: tuple[int, ...]
    """Of all axes, static but for the first."""
    steps: tuple[Operation, ...]
    """What has all of them, and then reduces them, in program order."""

    @property
    def given(self) -> list[SSAValue]:
        """The arrays that have some of the axes, or all, and that are not made here."""
        made = {result for op in self.steps for result in op.results}
        operands = (operand for op in self.steps for operand in op.operands)
        return list(dict.fromkeys(each for each in operands if each not in made and along(each, self.axes)))

    @property
    def in_order(self) -> list[SSAValue]:
        """Those of them in which each axis lies right within the one before."""
        return [each for each in self.given if lies_within(each, self.axes)]


def reduced_along(function: func.FuncOp, axes: Axes) -> Reduced | None:
    """What may be made with one axis in the place of several, the outermost of which comes first."""
    return _reduced(function.body.block, axes, stated_sizes(function), told_axes(function))


def reduced_in(function: func.FuncOp) -> list[Reduced]:
    """The axes of a function of which this may be made one, those that come first in the program first."""
    block, found = function.body.block, list[Reduced]()
    likely, told = stated_sizes(function), told_axes(function)
    for axes in dict.fromkeys(axes for op in block.ops for axes in _reduced_by(op)):
        taken = {axis for each in found for axis in each.axes}
        ways = [_reduced(block, order, likely, told) for order in permutations(axes) if taken.isdisjoint(axes)]
        if fitting := [each for each in ways if each is not None]:
            found.append(max(fitting, key=lambda each: len(each.in_order)))
    return found


def _reduced_by(op: Operation) -> Iterator[Axes]:
    """The axes that an operation reduces together, as it names them: all, and fewer."""
    if isinstance(op, Reducing):
        sizes = sizes_of(op.operands[0].type)
        axes = [axis for axis in op.over_axes if sizes.get(axis, 1) != 1]
        for number in range(min(len(axes), MOST_AXES), 1, -1):
            yield from combinations(axes, number)


def _reduced(block: Block, axes: Axes, likely: Mapping[str, int], told: Collection[str]) -> Reduced | None:
    steps = _steps(block, axes)
    products = [op for op in steps if isinstance(op, ContractOp) and (not _reduces(op, axes) or _sums_views(op))]
    known = {axis: size for op in steps for operand in op.operands for axis, size in sizes_of(operand.type).items()}
    sizes = tuple(known.get(axis, DYNAMIC) for axis in axes)
    if not products or min(sizes[1:]) <= 0 or too_many(stated_length(axis, known, likely) for axis in axes) is not None:
        return None
    each = Reduced(axes, sizes, tuple(steps))
    if any(absences(value) or _tells(value, told) for value in each.given):
        return None
    if not all(_multiplies_matrices(op, axes) for op in products):
        return None
    if any(isinstance(op, WhereOp) and len(op.told) > 1 for op in steps):
        return None
    return None if _is_used_otherwise(each, products) else each


def _steps(block: Block, axes: Axes) -> list[Operation]:
    """The operations that reduce all axes, and those before them that have all."""
    members = {op for op in block.ops if _reduces(op, axes)}
    left = [operand for op in members for operand in op.operands]
    while left:
        op = left.pop().owner
        if isinstance(op, MAKING) and op not in members and len(along(op.results[0], axes)) == len(axes):
            members.add(op)
            left.extend(op.operands)
    return [op for op in block.ops if op in members]


def _multiplies_matrices(op: ContractOp, axes: Axes) -> bool:
    """Whether each factor of a product has rows that the other one lacks, once the axes are one."""
    factors = [{*axes_of(operand.type)} for operand in (op.lhs, op.rhs)]
    left, right = (factor | {*axes} if factor & {*axes} else factor for factor in factors)
    return bool(left - right) and bool(right - left)


def _tells(value: SSAValue, told: Collection[str]) -> bool:
    """Whether a view says how long one of its axes is, as far as windows lie inside: read at quotients, with zeros
    around, it would say nothing, or something else."""
    return isinstance(value.owner, ReadOp) and not {*told}.isdisjoint(axes_of(value.type))


def _sums_views(op: ContractOp) -> bool:
    """Whether a product sums what it reads of an array at other positions, with zeros around, as windows of an image
    are: nothing is saved that is read as one axis."""
    reads = [operand.owner for operand in op.operands if isinstance(operand.owner, ReadOp)]
    return any(read.is_padded and not read.inputs for read in reads)


def _reduces(op: Operation, axes: Axes) -> bool:
    return isinstance(op, Reducing) and {*axes} <= {*op.over_axes}


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


def lies_within(value: SSAValue, axes: Axes) -> bool:
    """Whether each of some axes of an array lies right within the one before."""
    own = axes_of(value.type)
    return axes[0] in own and own[(first := own.index(axes[0])) : first + len(axes)] == axes


__all__ = ["Axes", "Reduced", "along", "lies_within", "reduced_along", "reduced_in"]
