"""`hierarchy-split-streams`: let several groups stream a part of an axis each, and a second kernel merge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.read import plan_of
from treadle.compiler.cost.sketch import sketch_of
from treadle.compiler.cost.time import estimate
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram import ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, LARGEST_SIZE, axes_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions, kernels, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes.expressions.reductions import keep_states_apart
from treadle.passes.expressions.scalars import is_plain
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass, likely_sizes
from treadle.passes.kernels.roles import Refusal as NoRoles
from treadle.passes.kernels.roles import roles_of
from treadle.passes.kernels.short_parts import depth_held, short_length
from treadle.passes.streaming import StreamingPass
from treadle.passes.streams.splits import Split, inline_extent, split_kernel
from treadle.passes.streams.stages import Repairs, StreamPlan
from treadle.passes.tiling import TilingPass

PASS = "hierarchy-split-streams"

SHORTEST = 256
"""A part is at least so long, unless a number of parts is asked for: each costs a state that is saved and read."""

WORTH = 0.9
"""Of the time of one kernel, what two may take: the model is not so exact that less would be a gain."""

WHOLE_PIECES = 64
"""What divides the length of the parts of an axis whose size is known only at launch."""

_SCHEDULING = (StreamingPass(), TilingPass(), HierarchyChooseSizesPass())


@dataclass(frozen=True)
class HierarchySplitStreamsPass(ModulePass):
    """Cut the axis that a kernel would stream into parts: one kernel makes the states of each part, a second one
    merges them and finishes. Into `parts`, or into parts of `length`, of `axis`, in the kernel named `kernel`; without
    options only where the groups of a kernel would not fill half of the machine, into as many parts as fill it, or hold
    a long axis whole, into parts that they can hold instead (`kernels.short_parts`), if that saves time. Of an
    axis whose size is known only at launch the length of the parts is decided, by the default size that the file gives,
    and the launch has as many as there are.

    Before:

    ```
    !x = tensor<4x512xf32, #diagram.array<[i, x]>>
    !xd = tensor<4x512xf32, #diagram.array<[i, x], level = device>>
    !s = tensor<4xf32, #diagram.array<[i]>>
    !sr = tensor<4xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !s {
      %s = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!s) {
        %m = diagram.reduce max %a over [x] : !xd -> !sr
        hierarchy.yield %m : !sr
      }
      func.return %s : !s
    }
    ```

    After `hierarchy-split-streams{parts=2}`:

    ```
    !x = tensor<4x512xf32, #diagram.array<[i, x]>>
    !p = tensor<2x4x256xf32, #diagram.array<[x_part, i, x_in]>>
    !pd = tensor<2x4x256xf32, #diagram.array<[x_part, i, x_in], level = device>>
    !m = tensor<2x4xf32, #diagram.array<[x_part, i]>>
    !md = tensor<2x4xf32, #diagram.array<[x_part, i], level = device>>
    !mr = tensor<2x4xf32, #diagram.array<[x_part, i], level = register>>
    !s = tensor<4xf32, #diagram.array<[i]>>
    !sr = tensor<4xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !s {
      %x_parts = diagram.read %x at "i, (256 * x_part + x_in)" : !x -> !p
      %m_parts = hierarchy.kernel @f_parts (%a = %x_parts : !p as !pd) -> (!m) {
        %m = diagram.reduce max %a over [x_in] : !pd -> !mr
        hierarchy.yield %m : !mr
      }
      %s = hierarchy.kernel @f (%b = %m_parts : !m as !md) -> (!s) {
        %m = diagram.reduce max %b over [x_part] : !md -> !sr
        hierarchy.yield %m : !sr
      }
      func.return %s : !s
    }
    ```

    Legal: a reduction is associative, so the reductions of the parts, combined, are that of the whole; where its
    summands depend on another reduction, each part's is repaired first to what that is of all parts, by the
    cascade law (`streams.cascades`). Refused where a result has the axis, and where a reduction waits for another one
    that no law repairs. An axis that does not divide has a longer last part, and a condition excludes that length in
    the others."""

    name = PASS

    parts: int = 0
    length: int = 0
    axis: str = ""
    kernel: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.parts and self.length:
            raise Refusal(op, f"{self.parts} parts, or parts of {self.length}: ask for one of the two")
        asked = bool(self.parts or self.length or self.axis or self.kernel)
        found = [(function, kernel) for function in functions(op) for kernel in kernels(function)]
        chosen = [pair for pair in found if self.kernel in ("", pair[1].kernel_name.data)]
        plans = [(*pair, _plan(pair[1], self.axis)) for pair in chosen]
        if asked and not any(isinstance(plan, StreamPlan) for _, _, plan in plans):
            raise Refusal(plans[0][1] if plans else op, _refusal(plans))
        possible = [(function, kernel, plan) for function, kernel, plan in plans if isinstance(plan, StreamPlan)]
        for function, kernel, plan in possible if self.parts or self.length else ():
            cut = self._cut(function, kernel, plan)
            if (reason := _without_a_role(op, kernel.kernel_name.data, plan.axis, cut)) is not None:
                raise Refusal(kernel, f"'{plan.axis}' cannot be cut into parts: {reason}")
            _split(function, kernel, plan, cut, "asked for")
        if not self.parts and not self.length:
            long = 1 if asked else 2 * SHORTEST
            _where_it_pays(ctx, op, [entry for entry in possible if _likely(entry[0], entry[2]) >= long])

    def _cut(self, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan) -> _Cut:
        """What is asked for (Refusal where there cannot be so many parts, or so long ones)."""
        size = _likely(function, plan)
        most = LARGEST_SIZE if self.length and _size(plan) == DYNAMIC else size
        if not 1 <= (self.parts or self.length) <= most:
            wanted = f"{self.parts} parts" if self.parts else f"cut into parts of {self.length}"
            raise Refusal(kernel, f"'{plan.axis}' has {size} positions, which cannot be {wanted}")
        if self.length == 1 and _size(plan) == DYNAMIC:
            why = f"the size of '{plan.axis}' is known only at launch, and parts of 1 are like positions in them"
            raise Refusal(kernel, f"{why}: ask for a length of 2 or more")
        if self.length or _size(plan) == DYNAMIC:
            return _in_parts_of(self.length or _whole_pieces(size // self.parts), plan)
        return _Cut(self.parts, size // self.parts)


@dataclass(frozen=True)
class _Cut:
    """How many parts of an axis there are, `DYNAMIC` if the launch tells, and how long all but the last."""

    count: int
    length: int


def _in_parts_of(length: int, plan: StreamPlan) -> _Cut:
    return _Cut(DYNAMIC if _size(plan) == DYNAMIC else _size(plan) // length, length)


def _where_it_pays(
    ctx: Context, module: ModuleOp, possible: Sequence[tuple[func.FuncOp, KernelOp, StreamPlan]]
) -> None:
    """Cut the axis of kernels whose groups hold a long axis whole, or leave half of the machine idle, if it saves
    time."""
    rest = [entry for entry in possible if not _is_in_short_parts(ctx, module, *entry)]
    alone = _scheduled(ctx, module) if rest else _Schedule()
    for function, kernel, plan in rest:
        size, name = _likely(function, plan), kernel.kernel_name.data
        most = min(machine_of(module).sms // alone.groups[name], size // SHORTEST)
        if most < 2:
            continue
        length = size // _dividing(size, most) if _size(plan) != DYNAMIC else _least_uneven(size, most)
        if (problem := _objection(ctx, module, name, length, alone.time)) is not None:
            note(function, f"decline {PASS}", f"@{name} along {plan.axis}", "two kernels save a tenth", problem)
        else:
            why = f"{alone.groups[name]} groups would not fill the machine"
            _split(function, kernel, plan, _in_parts_of(length, plan), why)
            alone = _scheduled(ctx, module)  # what the next one is held against


def _is_in_short_parts(
    ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan
) -> bool:
    """Cut the axis into parts that groups hold whole, if they hold a longer one otherwise, and if it saves time."""
    found = None if depth_held(plan) is None else short_length(ctx, module, function, kernel, plan)
    if found is None:
        return False
    length, why = found
    _split(function, kernel, plan, _in_parts_of(length, plan), f"short enough to be held whole: {why}")
    return True


def _without_a_role(module: ModuleOp, name: str, axis: str, cut: _Cut) -> str | None:
    """Why one of the two kernels could not run: a state may lack an axis that the groups of the others share."""
    for function in functions(module.clone()):
        for kernel in kernels(function):
            if kernel.kernel_name.data == name:
                both = _split(function, kernel, StreamPlan(part_of_kernel(kernel), axis), cut, "")
                roles = (roles_of(part_of_kernel(each), wide=True) for each in both)
                return next((role.reason for role in roles if isinstance(role, NoRoles)), None)
    return None


def _objection(ctx: Context, module: ModuleOp, name: str, length: int, alone: float) -> str | None:
    """Why a kernel is not cut into parts without being asked to: they would not fit the machine, or save nothing of
    the time that it takes `alone`, with that of a launch more."""
    trial = module.clone()
    try:
        HierarchySplitStreamsPass(length=length, kernel=name).apply(ctx, trial)
        time = _scheduled(ctx, trial).time
    except (PassFailedException, TreadleError) as error:
        return str(error)
    return None if time <= WORTH * alone else f"in parts of {length} estimated {time:.3g} us, whole {alone:.3g} us"


def _plan(kernel: KernelOp, axis: str) -> StreamPlan | str:
    """The stream of a kernel whose axis can be cut into parts, or why there is none."""
    if kernel.is_expanded or kernel.schedule is not None:
        return "it has a schedule already: an axis is cut into parts before `streaming`"
    part = part_of_kernel(kernel)
    if axis and all(axis not in op.over_axes for op in part.reducing):
        return f"axis '{axis}' is reduced by nothing in it"
    repairs: Repairs = {}
    roles = roles_of(part, stream=axis or None, repairs=repairs, wide=True)
    if isinstance(roles, NoRoles):
        return roles.reason
    if roles.stream is None:
        return "no axis of it is streamed"
    plan = StreamPlan(part, roles.stream, repairs)
    return _why_not(kernel, plan) or plan


def _why_not(kernel: KernelOp, plan: StreamPlan) -> str | None:
    axis = plan.axis
    if all(axis not in axes_of(argument.type) for argument in kernel.body.block.args):
        return f"no array that it reads has axis '{axis}': there is nothing to share out"
    if any(plan.is_piece(value) for value in plan.part.leaving):
        return f"a result has axis '{axis}', so no part of it is done before all are merged"
    if refused := [verdict.refused for verdict in plan.verdicts.values() if verdict.refused]:
        return f"there is no law that merges parts of '{axis}': {refused[0]}"
    for op in plan.part.ops:
        if isinstance(op, ContractOp) and plan.is_fixed(op.result):
            return f"every part would compute the product {label(op.result)} again"
        if isinstance(op, MapOp) and not is_plain(op):
            return f"the body of {label(op.result)} is not a plain expression"
    return None


def _refusal(plans: Sequence[tuple[func.FuncOp, KernelOp, StreamPlan | str]]) -> str:
    reasons = [f"@{kernel.kernel_name.data}: {plan}" for _, kernel, plan in plans]
    return f"no axis can be cut into parts: {'; '.join(reasons) or 'there is no such kernel'}"


def _size(plan: StreamPlan) -> int:
    return plan.part.sizes[plan.axis]


def _likely(function: func.FuncOp, plan: StreamPlan) -> int:
    """The size of the axis, or by default if only the launch tells."""
    if (size := _size(plan)) != DYNAMIC:
        return size
    return with_fitting(function.body.block, default_sizes(function)).get(plan.axis, UNKNOWN_SIZE)


def _whole_pieces(length: int) -> int:
    return -(-length // WHOLE_PIECES) * WHOLE_PIECES


@dataclass(frozen=True)
class _Schedule:
    """What comes of a program as the cost model chooses its sizes: how many groups each kernel has, and how long all of
    them take, in microseconds, with their launches."""

    groups: Mapping[str, int] = field(default_factory=dict[str, int])
    time: float = inf


def _scheduled(ctx: Context, module: ModuleOp) -> _Schedule:
    """Of a copy of the program (TreadleError where a kernel does not fit)."""
    trial, machine = module.clone(), machine_of(module)
    for step in _SCHEDULING:
        step.apply(ctx, trial)
    groups, time = dict[str, int](), 0.0
    for function in functions(trial):
        for kernel in kernels(function):
            assert kernel.schedule is not None
            sizes = likely_sizes(sketch_of(kernel, kernel.schedule), function)
            cut = kernel.schedule.group.as_dict()
            groups[kernel.kernel_name.data] = prod(-(-sizes[axis] // cut[axis]) for axis in cut)
            found = estimate(plan_of(kernel), machine, sizes)
            time += inf if found is None else found.time_us + 1e6 * machine.launch
    return _Schedule(groups, time)


def _dividing(size: int, count: int) -> int:
    """A number of parts, at most `count` and more than half of it, that divides the axis if there is one."""
    return next((fewer for fewer in range(count, count // 2, -1) if size % fewer == 0), count)


def _least_uneven(size: int, most: int) -> int:
    """The length, in whole pieces, of at most so many parts of which the longest is shortest."""
    least = _whole_pieces(size // (most + 1))
    lengths = [
        length for length in range(least, size // 2 + 1, WHOLE_PIECES) if SHORTEST <= length > size // (most + 1)
    ]
    return min(lengths, key=lambda length: (length + size % length, -length), default=size // 2)


def _split(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, cut: _Cut, why: str) -> tuple[KernelOp, KernelOp]:
    axis, size, name = plan.axis, _size(plan), kernel.kernel_name.data
    inline_extent(kernel, axis, size)
    keep_states_apart(kernel, axis)  # parts are handed on as they are accumulated, and rounded once they are merged
    plan = StreamPlan(part_of_kernel(kernel), axis)
    values = [value for op in function.walk() for value in (*op.operands, *op.results)]
    taken = {name for value in values for name in sizes_of(value.type)}
    taken |= {name.data for op in function.walk() if isinstance(op, WhereOp) for name in op.names}
    last = size if size == DYNAMIC else size - (cut.count - 1) * cut.length
    names = (_fresh(name, taken) for name in (f"{axis}_part", f"{axis}_in", "parts"))
    split = Split(axis, cut.count, cut.length, last, *names)
    states = ", ".join(label(state) for state in plan.verdicts)
    names = {other.kernel_name.data for other in kernels(function)}
    parts, merge = split_kernel(kernel, plan, split, _fresh(f"{name}_parts", names))
    subject = f"{axis} of @{name} into @{parts.kernel_name.data} and @{merge.kernel_name.data}"
    note(function, PASS, subject, f"merge of {states}", f"{_lengths(split)}: {why}")
    return parts, merge


def _lengths(split: Split) -> str:
    if split.count == DYNAMIC:
        return f"parts of {split.length}, the last one longer by what is left over"
    return f"{split.count} parts of {split.length}" + (f", the last of {split.last}" if split.exists else "")


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
