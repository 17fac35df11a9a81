"""Arrays that kernels are given as views in which each element stands for a block of neighbours."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import BlockArgument, SSAValue

from treadle.dialects.diagram.padding import padding_of
from treadle.dialects.diagram.place import divisors_in
from treadle.dialects.hierarchy import KernelOp


def blocks_of(argument: SSAValue) -> Mapping[str, int]:
    """For each axis along which an argument of a kernel has blocks, how many neighbours are one element."""
    kernel = argument.block.parent_op() if isinstance(argument, BlockArgument) else None
    if not isinstance(kernel, KernelOp) or not isinstance(argument, BlockArgument):
        return {}
    if argument.index >= len(kernel.inputs):
        return {}
    return divisors_in(each.form for each in padding_of(kernel.inputs[argument.index]))
