"""What a program moves over the border of device memory, at any stage of its derivation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.compiler.cost import plan_of, sizes_of_kernel, transfer_bytes
from treadle.compiler.sizes import axes_of_function
from treadle.dialects.diagram import ExtentOp, FillOp, IndexOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, is_array, sizes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions

FREE = (ExtentOp, FillOp, IndexOp, Regrouping)
"""Operations that move nothing: constants, sizes, and axes as one axis."""


def moved_bytes(module: ModuleOp, given: Mapping[str, int]) -> int | None:
    """Bytes that cross the border of device memory at some sizes; None where an operation is neither of the
    diagram nor a kernel, or an axis has no size.

    An operation outside of kernels reads its operands and writes its results. So does a kernel as long as its sizes
    are not chosen, which is the least that it can move; from then on groups read again what they share."""
    moved = 0
    for function in functions(module):
        axes = axes_of_function(function)
        static = {axis: size for axis, size in axes.items() if size != DYNAMIC}
        sizes = with_fitting(function.body.block, {**given, **static})
        if not set(axes) <= set(sizes):
            return None
        for op in function.body.block.ops:
            if isinstance(op, KernelOp) and (op.is_expanded or (op.schedule is not None and op.schedule.is_decided)):
                moved += transfer_bytes(plan_of(op), "device", sizes_of_kernel(op, function, given))
            elif isinstance(op, KernelOp | DiagramOperation) and not isinstance(op, FREE):
                crossing = _bytes(_crossing(op), sizes)
                if crossing is None:
                    return None
                moved += crossing
    return moved


def _crossing(op: Operation) -> Iterable[SSAValue]:
    """Arrays that an operation reads and writes; constants are made where they are used."""
    read = (value for value in dict.fromkeys(op.operands) if not isinstance(value.owner, FillOp | IndexOp))
    return [value for value in (*read, *op.results) if is_array(value.type)]


def _bytes(values: Iterable[SSAValue], sizes: Mapping[str, int]) -> int | None:
    counts = [_bytes_of(value.type, sizes) for value in values]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def _bytes_of(type: Attribute, sizes: Mapping[str, int]) -> int | None:
    lengths = [sizes.get(axis, DYNAMIC) if size == DYNAMIC else size for axis, size in sizes_of(type).items()]
    if DYNAMIC in lengths:
        return None
    bits: int = getattr(format_of(type), "bitwidth", 32)
    return prod(lengths) * bits // 8
