"""Arrays of a kernel whose neighbours in memory its groups take one at a time, or reduce.

Those of a product for each index of the last axis are such: memory gives sectors of 32 bytes, and a group uses one
element of each. So are points that a kernel has the distances of, while it is fed one point after another: lanes lie
along neighbours, and would have a coordinate each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.compiler.cost.kernel.neighbours import order_in_memory
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp, YieldOp
from treadle.passes._parts import part_of_kernel
from treadle.passes.kernels.outer import outer_axes

BY_NAME = ContractOp | CastOp | MapOp | ReduceOp
"""What finds the axes of an array by their names, in whatever order they are."""


@dataclass(frozen=True)
class Transposition:
    """An array that a kernel reads or saves, in the function around it, and the order of axes that it is to have."""

    value: SSAValue
    saves: bool
    axes: tuple[str, ...]


def may_take_singly(kernel: KernelOp) -> frozenset[str]:
    """The axes of which groups take one index at a time, as far as its products say: those that both operands have and
    the result, and where an operand has several of its own, all of them but one, so that any may be."""
    found: set[str] = set()
    for op in part_of_kernel(kernel).reducing:
        if isinstance(op, ContractOp):
            left, right, kept = (set(axes_of(value.type)) for value in (op.lhs, op.rhs, op.result))
            found |= left & right & kept
            found.update(*(free for free in ((left - right) & kept, (right - left) & kept) if len(free) > 1))
    return frozenset(found)


def may_be_met_in_pairs(kernel: KernelOp) -> frozenset[str]:
    """The axes along which what is made of all pairs of elements is reduced, where nothing is multiplied."""
    reducing = part_of_kernel(kernel).reducing
    if any(isinstance(op, ContractOp) for op in reducing):
        return frozenset()
    pairs = ((op, op.operand.owner) for op in reducing if isinstance(op, ReduceOp))
    return frozenset(
        axis for op, made in pairs if isinstance(made, MapOp) for axis in op.over_axes if outer_axes([made], axis)
    )


def transpositions(kernel: KernelOp, far: Iterable[str]) -> list[Transposition]:
    """The arrays with neighbours along one of these axes, each with those axes first and the others as they were."""
    taken = frozenset(far)
    found = [Transposition(value, False, _in_order(value, taken)) for value in _read(kernel, taken)]
    return found + [Transposition(value, True, _in_order(value, taken)) for value in _saved(kernel, taken)]


def arguments_of(kernel: KernelOp, value: SSAValue) -> list[BlockArgument]:
    """What stands for an array in a kernel that reads it."""
    return [arg for arg, given in zip(kernel.body.block.args, kernel.inputs, strict=True) if given is value]


def yielded_as(kernel: KernelOp, value: SSAValue) -> SSAValue:
    """What becomes a result of a kernel."""
    end = kernel.body.block.last_op
    assert isinstance(end, YieldOp)
    return next(made for made, given in zip(end.operands, kernel.outputs, strict=True) if given is value)


def in_same_order(value: SSAValue) -> list[SSAValue]:
    """An array of a kernel, and what has its axes in the same order as it: what conditions leave of it."""
    kept = [use.operation for use in value.uses if isinstance(use.operation, WhereOp) and use.index == 0]
    return [value, *(each for op in kept for each in in_same_order(op.result))]


def is_open(value: SSAValue) -> bool:
    """Whether all that reads an array in its kernel finds its axes by name. What conditions leave of it may be no
    result of the kernel, which would have them in the order of before."""
    _, *left = in_same_order(value)
    if any(isinstance(use.operation, YieldOp) for each in left for use in each.uses):
        return False
    uses = [use for each in (value, *left) for use in each.uses]
    return all(isinstance(use.operation, BY_NAME | YieldOp) or _is_kept(use.operation, use.index) for use in uses)


def is_made_by_name(value: SSAValue) -> bool:
    """Whether what makes an array in its kernel would make it in whatever order of axes, and what reads it, too."""
    return isinstance(value.owner, BY_NAME) and is_open(value)


def _is_kept(op: Operation, index: int) -> bool:
    return isinstance(op, WhereOp) and index == 0


def _read(kernel: KernelOp, singly: frozenset[str]) -> Iterator[SSAValue]:
    for value in dict.fromkeys(kernel.inputs):
        arguments = arguments_of(kernel, value)
        if _is_far(value, order_in_memory(arguments[0])[:1], singly) and all(map(is_open, arguments)):
            yield value


def _saved(kernel: KernelOp, singly: frozenset[str]) -> Iterator[SSAValue]:
    for value in kernel.outputs:
        if _is_far(value, axes_of(value.type)[-1:], singly) and is_made_by_name(yielded_as(kernel, value)):
            yield value


def _is_far(value: SSAValue, nearest: tuple[str, ...], singly: frozenset[str]) -> bool:
    """Whether neighbours lie along one of these axes, and there are others along which they could."""
    return bool(nearest) and singly.issuperset(nearest) and not singly.issuperset(axes_of(value.type))


def _in_order(value: SSAValue, singly: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(axes_of(value.type), key=lambda axis: axis not in singly))
