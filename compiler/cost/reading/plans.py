"""The plan of a kernel, whichever form it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects.func import FuncOp

from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.reading.explicit import plan_of_explicit
from treadle.compiler.cost.reading.sketch import sketch_of
from treadle.compiler.errors import TreadleError, at
from treadle.compiler.sizes import axes_of_function, default_sizes
from treadle.dialects.diagram import ExtentOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp


def plan_of(kernel: KernelOp) -> Plan:
    """What a kernel moves, computes and holds; a decorated one must have its sizes (TreadleError)."""
    if kernel.is_expanded:
        return plan_of_explicit(kernel)
    schedule = kernel.schedule
    if schedule is None or not schedule.is_decided:
        raise at(kernel, "its sizes are not chosen yet: run hierarchy-choose-sizes first")
    tiles = schedule.tile_sizes() | schedule.cluster.as_dict()
    plan = sketch_of(kernel, schedule).plan(tiles, schedule.warps.as_dict(), rereads=schedule.left.data == "shared")
    return replace(plan, resident=schedule.resident)


def sizes_of_kernel(
    kernel: KernelOp, function: FuncOp | None, given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The size of every axis that a kernel needs: as its types say, else as `given`, else
    the default of the function (TreadleError where none of them knows)."""
    known = {**({} if function is None else default_sizes(function)), **(given or {})}
    if function is not None:
        static = {axis: size for axis, size in axes_of_function(function).items() if size != DYNAMIC}
        known = with_fitting(function.body.block, {**known, **static})
    sizes: dict[str, int] = {}
    for value in (*kernel.inputs, *kernel.outputs):
        for axis, size in sizes_of(value.type).items():
            if size == DYNAMIC and axis not in known:
                raise TreadleError(
                    f"the size of axis '{axis}' of kernel @{kernel.kernel_name.data} is known only at launch: "
                    f"give one, as in --size {axis}=1000 (from Python, {axis}=1000)"
                )
            sizes[axis] = known[axis] if size == DYNAMIC else size
    # Along an axis that does not cross the border a kernel makes constants, and reduces them, or asks for its size.
    inside = {axis for op in kernel.walk() for result in op.results for axis in axes_of(result.type)} - set(sizes)
    inside |= {op.axis.data for op in kernel.walk() if isinstance(op, ExtentOp)} - set(sizes)
    whole = axes_of_function(function) if function is not None and inside else {}
    return sizes | {axis: known.get(axis, whole.get(axis, DYNAMIC)) for axis in sorted(inside)}
