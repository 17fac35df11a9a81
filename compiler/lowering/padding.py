"""What kernels know of views that may leave their arrays, or whose elements are where data say: threads load nothing
outside, where there are zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.padding import Inside, Scattered, padded_read, padding_of, scattered_read, scattered_sum
from treadle.dialects.hierarchy import KernelOp, LoadOp
from treadle.dialects.hierarchy.bounded import users_of_factor


def padding_of_kernel(kernel: KernelOp) -> dict[SSAValue, list[Inside]]:
    """Where each array that a kernel is given as a view may leave its own, and what it scatters the array to which it
    is added."""
    given = zip(kernel.body.block.args, kernel.inputs, strict=False)
    found = {argument: padding for argument, value in given if (padding := padding_of(value))}
    return found | {argument: [*each.inside] for argument, each in sums_of_kernel(kernel).items() if each.inside}


def lengths_beside(padding: Mapping[SSAValue, Iterable[Inside]], axes: Iterable[str]) -> list[str]:
    """Symbolic axes whose sizes the views ask for, and which a kernel has not itself."""
    asked = dict.fromkeys(each.axis for of in padding.values() for each in of if each.size == DYNAMIC)
    return [axis for axis in asked if axis not in set(axes)]


def placed_of_kernel(kernel: KernelOp, by_boxes: bool) -> dict[SSAValue, Scattered]:
    """The reads whose operands a kernel is given, by its arguments: those that scatter, since it has to find their
    elements; and where tensor copies bring its tiles, `by_boxes`, those with zeros around the array, which copies of
    the array itself find there, and those of a view of it do not."""
    found: dict[SSAValue, Scattered] = {}
    for argument, value in zip(kernel.body.block.args, kernel.inputs, strict=False):
        if (scattered := scattered_read(value)) is not None:
            found[argument] = scattered
        elif by_boxes and is_multiplied(argument) and (padded := padded_read(value)) is not None:
            found[argument] = padded
    return found


def sums_of_kernel(kernel: KernelOp) -> dict[SSAValue, Scattered]:
    """The arrays to which a kernel adds what it scatters, by the arguments to which it would save that."""
    saved = zip(kernel.destinations, kernel.outputs, strict=True)
    return {argument: each for argument, output in saved if (each := scattered_sum(output)) is not None}


def is_multiplied(argument: SSAValue) -> bool:
    """Whether only products read an argument of a kernel."""
    loads = [use.operation for use in argument.uses]
    users = [user for load in loads if isinstance(load, LoadOp) for user in users_of_factor(load.result)]
    return all(isinstance(load, LoadOp) for load in loads) and all(isinstance(user, ContractOp) for user in users)


def entries_beside(placed: Mapping[SSAValue, Scattered]) -> list[SSAValue]:
    """The arrays of entries that a kernel is given beside its own."""
    return list(dict.fromkeys(value for op in placed.values() for value in op.named.values()))
