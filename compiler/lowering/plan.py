"""What the lowering of one kernel needs to know of its axes before it emits anything."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.compiler.cost.kernel.roles import axis_across
from treadle.compiler.errors import Refusal
from treadle.compiler.sizes import REDUCES, sizes_of_whole_arrays, why_unknown
from treadle.dialects.diagram import ContractOp, ExtentOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.contract import is_computed_with
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, StreamOp
from treadle.dialects.hierarchy.schedule import promoted_every
from treadle.dialects.hierarchy.stream import moved_by_steps

MOST_WARPS = 32
"""Of a block: it has at most 1024 threads."""


@dataclass
class KernelPlan:
    """Axes of a kernel in explicit form: how large each is, how it is cut, and which one carries the rows of its
    products.

    `sizes` are whole sizes (DYNAMIC where symbolic), `pieces` the sizes of what one group holds at a moment."""

    kernel: KernelOp
    group: GroupOp
    sizes: dict[str, int]
    pieces: dict[str, int]
    contractions: list[ContractOp]
    warps: dict[str, int]
    rows: str | None = field(default=None)

    @property
    def subloops(self) -> dict[str, int]:
        """The pieces in which contractions walk an axis, where the schedule asks for it."""
        return self.kernel.schedule.subloop.as_dict() if self.kernel.schedule is not None else {}

    def promoted_every(self, op: ContractOp) -> int | None:
        """How many products of a contraction are added up before their sum is promoted, where the schedule says so."""
        return promoted_every(self.kernel.schedule, op) or None

    @property
    def warp_count(self) -> int:
        return prod(self.warps.values())

    @cached_property
    def across(self) -> str | None:
        """The axis along which warps lie across those of the rows (`axis_across`)."""
        along = [axis for axis, count in self.warps.items() if count > 1]
        return axis_across(along, self.rows, [axes_of(op.result.type) for op in self.contractions], self.group_axes)

    @property
    def cluster(self) -> dict[str, int]:
        """What each block of a cluster holds of an axis, where these share a group."""
        return self.kernel.schedule.cluster.as_dict() if self.kernel.schedule is not None else {}

    @property
    def blocks(self) -> int:
        """How many blocks share a group."""
        return self.kernel.schedule.blocks if self.kernel.schedule is not None else 1

    @property
    def group_axes(self) -> dict[str, int]:
        return self.group.partition.as_dict()

    def wide_axes(self, value: SSAValue) -> tuple[str, ...]:
        """Axes of a tile along which it has more than one element."""
        return tuple(axis for axis in axes_of(value.type) if self.pieces[axis] != 1)


def plan_kernel(kernel: KernelOp) -> KernelPlan:
    """Read the plan off an expanded kernel (PassFailedException if it is not expanded)."""
    group = kernel.body.block.first_op
    if not kernel.is_expanded or not isinstance(group, GroupOp):
        raise Refusal(
            kernel,
            f"kernel '{kernel.kernel_name.data}' is not in explicit form: run hierarchy-expand-streams first",
        )
    sizes: dict[str, int] = {}
    for arg in kernel.body.block.args:
        sizes |= sizes_of(arg.type)
    pieces = dict(sizes)
    for op in kernel.walk():
        if isinstance(op, GroupOp | StreamOp):
            pieces |= op.partition.as_dict()
            sizes = {axis: _size_elsewhere(kernel, op, axis) for axis in pieces if axis not in sizes} | sizes
        elif isinstance(op, ExtentOp) and op.axis.data not in sizes:
            sizes[op.axis.data] = _size_elsewhere(kernel, op, op.axis.data)
    made = {axis: size for op in kernel.walk() for each in op.results for axis, size in sizes_of(each.type).items()}
    held = {axis: size for axis, size in made.items() if axis not in pieces}  # what only a map adds
    shared = kernel.schedule.cluster.as_dict() if kernel.schedule is not None else {}
    sizes, pieces = sizes | held, pieces | held | shared
    warps = kernel.schedule.warps.as_dict() if kernel.schedule is not None else {}
    if (count := prod(warps.values())) > MOST_WARPS:
        told = ", ".join(f"{axis} = {size}" for axis, size in warps.items())
        raise Refusal(
            kernel, f"a block of {count} warps ({told}): it has at most {MOST_WARPS}; let the schedule ask for fewer"
        )
    contractions = [op for op in kernel.walk() if isinstance(op, ContractOp)]
    plan = KernelPlan(kernel, group, sizes, pieces, contractions, warps)
    plan.rows = _row_axis(plan)
    return plan


def _size_elsewhere(kernel: KernelOp, op: Operation, axis: str) -> int:
    """The whole size of an axis that no buffer of the kernel has: `op` makes something of constants along it, or asks
    for its size alone."""
    function = kernel.parent_op()
    known = sizes_of_whole_arrays(function) if isinstance(function, FuncOp) else {}
    if axis in known:
        return known[axis]
    what = "needs the size of" if isinstance(op, ExtentOp) else REDUCES
    raise Refusal(kernel, why_unknown(kernel.kernel_name.data, axis, what))


def _row_axis(plan: KernelPlan) -> str | None:
    """The group axis along which every product has its rows: in its result and in one operand only."""

    def serves(axis: str) -> bool:
        return all(
            axis in axes_of(op.result.type) and (axis in axes_of(op.lhs.type)) != (axis in axes_of(op.rhs.type))
            for op in plan.contractions
        )

    if not plan.contractions:
        return None
    candidates = [axis for axis in plan.group_axes if serves(axis)]
    preferred = [axis for axis in plan.warps if axis in candidates]
    wide = [axis for axis in candidates if plan.pieces[axis] > 1]
    return next(iter((*preferred, *wide, *candidates)), None)


def widest_vector(plan: KernelPlan) -> int:
    """Elements of a row that a lane takes: those that 16 bytes hold, for the narrowest format that the kernel loads or
    saves; for operands of products, which go on to a tile, at most of what they are multiplied as: threads with more
    would meet in the tile's banks."""
    types = [op.result.type for op in plan.kernel.walk() if isinstance(op, LoadOp)]
    types += [op.value.type for op in plan.kernel.walk() if isinstance(op, SaveOp)]
    return _in_vector(plan, types)


def neighbours_in_vector(plan: KernelPlan, axes: Container[str]) -> int:
    """How many of those are neighbours, at most, where rows with these axes are spread over lanes: as many as 16 bytes
    hold, for the narrowest format of what threads load or save there themselves. Lanes with more neighbours would ask
    for sectors twice. (What is a factor alone is copied.)"""
    loads = [op.result for op in plan.kernel.walk() if isinstance(op, LoadOp)]
    types = [value.type for value in loads if is_computed_with(value)]
    types += [op.value.type for op in plan.kernel.walk() if isinstance(op, SaveOp)]
    here = [type for type in types if all(axis in axes or plan.pieces[axis] == 1 for axis in axes_of(type))]
    return min(_in_vector(plan, here), widest_vector(plan)) if here else widest_vector(plan)


def _in_vector(plan: KernelPlan, types: Iterable[Attribute]) -> int:
    sizes = [FORMAT_BYTES[str(format_of(type))] for type in types]
    operands = [FORMAT_BYTES[str(format_of(op.lhs.type))] for op in plan.contractions]
    return 16 // max(min(sizes, default=4), min(operands, default=0))


def contiguous_axis(plan: KernelPlan, axes: Container[str]) -> str | None:
    """The last wide axis of the largest buffer that has only these axes, or else of all: the one along which threads
    should be neighbours."""
    every = moved_by_steps(plan.kernel, [arg for arg in plan.kernel.body.block.args if is_array(arg.type)])
    buffers = [arg for arg in every if (wide := plan.wide_axes(arg)) and all(axis in axes for axis in wide)] or every
    outputs = [arg for arg in buffers if isinstance(arg.type, MemRefType)]

    def rank(arg: SSAValue) -> tuple[int, int]:
        wide = plan.wide_axes(arg)
        return prod(plan.pieces[axis] for axis in wide), 1 if arg in outputs else 0

    best = max(buffers, key=rank, default=None)
    if best is None:
        return None
    wide = plan.wide_axes(best)
    return wide[-1] if wide else None
