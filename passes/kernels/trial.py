"""A kernel, or what is to become some, alone in a module of its own, on which passes that come later are tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from treadle.compiler.cost.choice.choose import Choice
from treadle.compiler.cost.reading.sketch import Sketch, axes_of_kernel, sketch_of
from treadle.compiler.cost.timing.time import estimate
from treadle.compiler.machines import Machine, machine_of
from treadle.dialects.diagram import ExtentOp, ReadOp
from treadle.dialects.diagram.array import SizesAttr, axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions, kernels
from treadle.passes._later import run_later
from treadle.passes._parts import is_free, part_of, views_of


def alone(
    module: ModuleOp, function: func.FuncOp, kernel: KernelOp, with_views: bool = True
) -> tuple[ModuleOp, func.FuncOp]:
    """A module for the same machine, whose one function, with the likely sizes of `function`, calls a kernel on its
    arguments, or on views of them, as it is called there: what several positions read is one element. The kernel
    stands nowhere yet."""
    views = views_of(kernel.operands) if with_views else []
    given = _given(kernel.operands, views)
    types = [*(value.type for value in given), *_given_extents(kernel)]
    trial = func.FuncOp("trial", (types, [value.type for value in kernel.outputs]))
    arguments = trial.body.block.args
    values: dict[SSAValue, SSAValue] = dict(zip(given, arguments, strict=False))
    copies = [view.clone(values) for view in views]
    kernel.operands = [*(values[value] for value in kernel.operands), *arguments[len(given) :]]
    trial.body.block.add_ops([*copies, kernel, func.ReturnOp(*kernel.outputs)])
    if "sizes" in function.attributes:
        trial.attributes["sizes"] = function.attributes["sizes"]
    return ModuleOp([trial], dict(module.attributes)), trial


def _given(values: Iterable[SSAValue], views: Sequence[ReadOp]) -> list[SSAValue]:
    """What is no view of these values, and what the views are of."""
    needed = (*(value for view in views for value in view.operands), *values)
    return list(dict.fromkeys(value for value in needed if value.owner not in views))


def _given_extents(kernel: KernelOp) -> list[Attribute]:
    """Let a kernel be given the sizes of axes that it asks for and no array of it has; their types."""
    block = kernel.body.block
    inside = {axis for value in (*block.args, *kernel.outputs) for axis in axes_of(value.type)}
    given: list[Attribute] = []
    for op in list(block.ops):
        if isinstance(op, ExtentOp) and op.axis.data not in inside:
            given.append(op.result.type)
            Rewriter.replace_op(op, [], [block.insert_arg(op.result.type, len(block.args))])
    return given


def alone_in_parts(
    module: ModuleOp, function: func.FuncOp, parts: Sequence[frozenset[Operation]], sizes: Mapping[str, int]
) -> tuple[ModuleOp, func.FuncOp, list[frozenset[Operation]]]:
    """A module for the same machine, whose one function computes copies of some operations, with these likely sizes;
    and the copies of each part."""
    part = part_of(op for each in parts for op in each)
    free = dict.fromkeys(v.owner for v in part.read if isinstance(v.owner, Operation) and is_free(v.owner))
    views = views_of(part.read)
    given = _given((value for value in part.read if value.owner not in free), views)
    trial = func.FuncOp("trial", ([value.type for value in given], [value.type for value in part.leaving]))
    values: dict[SSAValue, SSAValue] = dict(zip(given, trial.body.block.args, strict=True))
    copies = {op: op.clone(values) for op in (*free, *views, *part.ops)}
    trial.body.block.add_ops([*copies.values(), func.ReturnOp(*(values[value] for value in part.leaving))])
    trial.attributes["sizes"] = SizesAttr(sizes)
    apart = ModuleOp([trial], dict(module.attributes))
    return apart, trial, [frozenset(copies[op] for op in each) for each in parts]


@dataclass(frozen=True)
class Scheduled:
    """A kernel as the model chooses its sizes, at the likely sizes of its function."""

    function: func.FuncOp
    kernel: KernelOp
    choice: Choice
    machine: Machine

    @property
    def time(self) -> float:
        """In microseconds, with its launch."""
        return self.choice.estimate.time_us + 1e6 * self.machine.launch

    @property
    def sketch(self) -> Sketch:
        """What the kernel is to the cost model."""
        assert self.kernel.schedule is not None
        return sketch_of(self.kernel, self.kernel.schedule)

    def time_at(self, sizes: Mapping[str, int]) -> float:
        """The same where a launch brings these sizes: what was chosen stays."""
        from treadle.passes.hierarchy_choose_sizes import likely_sizes  # comes later in the pipeline

        if not sizes:
            return self.time
        axes = axes_of_kernel(self.kernel)
        other = likely_sizes(axes, self.function, sizes)
        if other == likely_sizes(axes, self.function):
            return self.time
        found = estimate(self.choice.plan, self.machine, other)
        return inf if found is None else found.time_us + 1e6 * self.machine.launch


def scheduled(module: ModuleOp, in_parts: bool = False) -> list[Scheduled]:
    """All kernels, whose roles are decorated, in their order (Refusal, TreadleError where one does not fit). With
    `in_parts`, axes are cut into parts where that saves time."""
    from treadle.passes.hierarchy_choose_sizes import choice_for  # comes later in the pipeline

    before = ["hierarchy-split-streams"] if in_parts else []
    run_later(module, *before, "streaming", "tiling", "hierarchy-join-sums", "hierarchy-rescale-lazily")
    machine, found = machine_of(module), list[Scheduled]()
    for function in functions(module):
        for kernel in kernels(function):
            assert kernel.schedule is not None
            found.append(Scheduled(function, kernel, choice_for(kernel, kernel.schedule, machine), machine))
    return found


def scheduled_time(module: ModuleOp, in_parts: bool = True) -> float:
    """In microseconds, of all kernels with their launches (Refusal, TreadleError where one does not fit the machine).
    With `in_parts`, axes are cut into parts where that saves time."""
    return sum(each.time for each in scheduled(module, in_parts))
