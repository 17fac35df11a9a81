"""What kernels know of views that may leave their arrays, or whose elements are where data say: threads load nothing
outside, where there are zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.padding import Inside, Scattered, padding_of, scattered_read
from treadle.dialects.hierarchy import KernelOp


def padding_of_kernel(kernel: KernelOp) -> dict[SSAValue, list[Inside]]:
    """Where each array that a kernel is given as a view may leave its own."""
    given = zip(kernel.body.block.args, kernel.inputs, strict=False)
    return {argument: padding for argument, value in given if (padding := padding_of(value))}


def lengths_beside(padding: Mapping[SSAValue, Iterable[Inside]], axes: Iterable[str]) -> list[str]:
    """Symbolic axes whose sizes the views ask for, and which a kernel has not itself."""
    asked = dict.fromkeys(each.axis for of in padding.values() for each in of if each.size == DYNAMIC)
    return [axis for axis in asked if axis not in set(axes)]


def scattered_of_kernel(kernel: KernelOp) -> dict[SSAValue, Scattered]:
    """The reads that give a kernel arrays whose elements it has to find, by its arguments."""
    given = zip(kernel.body.block.args, kernel.inputs, strict=False)
    return {argument: op for argument, value in given if (op := scattered_read(value)) is not None}


def entries_beside(kernel: KernelOp) -> list[SSAValue]:
    """The arrays of entries that a kernel is given beside its own."""
    return list(dict.fromkeys(value for op in scattered_of_kernel(kernel).values() for value in op.named.values()))


def in_memory(value: SSAValue) -> SSAValue:
    """The array that a kernel is given for one: where that is scattered, what it is read from."""
    scattered = scattered_read(value)
    return value if scattered is None else scattered.operand
