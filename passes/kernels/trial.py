"""A kernel, or what is to become some, alone in a module of its own, on which passes that come later are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.sketch import sketch_of
from treadle.compiler.cost.time import estimate
from treadle.compiler.machines import machine_of
from treadle.dialects.diagram.array import SizesAttr
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions, kernels
from treadle.passes._parts import is_free, part_of


def alone(module: ModuleOp, function: func.FuncOp, kernel: KernelOp) -> tuple[ModuleOp, func.FuncOp]:
    """A module for the same machine, whose one function, with the likely sizes of `function`, calls a kernel on its
    arguments. The kernel stands nowhere yet."""
    trial = func.FuncOp("trial", ([value.type for value in kernel.operands], [value.type for value in kernel.outputs]))
    kernel.operands = trial.body.block.args
    trial.body.block.add_ops([kernel, func.ReturnOp(*kernel.outputs)])
    if "sizes" in function.attributes:
        trial.attributes["sizes"] = function.attributes["sizes"]
    return ModuleOp([trial], dict(module.attributes)), trial


def alone_in_parts(
    module: ModuleOp, function: func.FuncOp, parts: Sequence[frozenset[Operation]], sizes: Mapping[str, int]
) -> tuple[ModuleOp, func.FuncOp, list[frozenset[Operation]]]:
    """A module for the same machine, whose one function computes copies of some operations, with these likely sizes;
    and the copies of each part."""
    part = part_of(op for each in parts for op in each)
    free = dict.fromkeys(v.owner for v in part.read if isinstance(v.owner, Operation) and is_free(v.owner))
    given = [value for value in part.read if value.owner not in free]
    trial = func.FuncOp("trial", ([value.type for value in given], [value.type for value in part.leaving]))
    values: dict[SSAValue, SSAValue] = dict(zip(given, trial.body.block.args, strict=True))
    copies = {op: op.clone(values) for op in (*free, *part.ops)}
    trial.body.block.add_ops([*copies.values(), func.ReturnOp(*(values[value] for value in part.leaving))])
    trial.attributes["sizes"] = SizesAttr(sizes)
    apart = ModuleOp([trial], dict(module.attributes))
    return apart, trial, [frozenset(copies[op] for op in each) for each in parts]


def scheduled_time(module: ModuleOp, in_parts: bool = True) -> float:
    """In microseconds, of all kernels as the model chooses their sizes, with their launches; infinite where one does
    not fit the machine (Refusal, TreadleError). With `in_parts`, axes are cut into parts where that pays."""
    # imported here, for they come later in the pipeline than what is tried
    from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass, likely_sizes
    from treadle.passes.hierarchy_split_streams import HierarchySplitStreamsPass
    from treadle.passes.streaming import StreamingPass
    from treadle.passes.tiling import TilingPass

    splitting = [HierarchySplitStreamsPass()] if in_parts else []
    for step in (*splitting, StreamingPass(), TilingPass(), HierarchyChooseSizesPass()):
        step.apply(Context(), module)
    machine, time = machine_of(module), 0.0
    for function in functions(module):
        for kernel in kernels(function):
            schedule = kernel.schedule
            assert schedule is not None
            sketch = sketch_of(kernel, schedule)
            plan = sketch.plan(schedule.tile_sizes(), schedule.warps.as_dict(), rereads=schedule.left.data == "shared")
            found = estimate(plan, machine, likely_sizes(sketch, function))
            time += inf if found is None else found.time_us + 1e6 * machine.launch
    return time
