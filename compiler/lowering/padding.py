"""What kernels know of views that may leave their arrays: threads load nothing outside, where there are zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.padding import Inside, padding_of
from treadle.dialects.hierarchy import KernelOp


def padding_of_kernel(kernel: KernelOp) -> dict[SSAValue, list[Inside]]:
    """Where each array that a kernel is given as a view may leave its own."""
    given = zip(kernel.body.block.args, kernel.inputs, strict=False)
    return {argument: padding for argument, value in given if (padding := padding_of(value))}


def lengths_beside(padding: Mapping[SSAValue, Iterable[Inside]], axes: Iterable[str]) -> list[str]:
    """Symbolic axes whose sizes the views ask for, and which a kernel has not itself."""
    asked = dict.fromkeys(each.axis for of in padding.values() for each in of if each.size == DYNAMIC)
    return [axis for axis in asked if axis not in set(axes)]
