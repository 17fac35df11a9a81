"""`hierarchy-split-streams`: let several groups stream a part of an axis each, and a second kernel merge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram import ContractOp, MapOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions, kernels, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes._roles import Refusal as NoRoles
from treadle.passes._roles import roles_of
from treadle.passes._scalars import is_plain
from treadle.passes._splits import Split, inline_extent, split_kernel
from treadle.passes._stages import StreamPlan
from treadle.passes.hierarchy_choose_sizes import UNKNOWN_SIZE, HierarchyChooseSizesPass
from treadle.passes.streaming import StreamingPass
from treadle.passes.tiling import TilingPass

PASS = "hierarchy-split-streams"

SHORTEST = 256
"""A part is at least so long, unless a number of parts is asked for: each costs a state that is saved and read."""

_SCHEDULING = (StreamingPass(), TilingPass(), HierarchyChooseSizesPass())


@dataclass(frozen=True)
class HierarchySplitStreamsPass(ModulePass):
    """Cut the axis that a kernel would stream into parts: one kernel makes the states of each part, a second one
    merges them and finishes. Into `parts`, of `axis`, in the kernel named `kernel`; without options only where
    the groups of a kernel would not fill half of the machine, into as many parts as fill it.

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
    cascade law (`_cascades`). Refused where a result has the axis, where a reduction waits for another one that no
    law repairs, and where the size of the axis is known only at launch. An axis that does not divide has a longer
    last part, and a condition excludes that length in the others.
    """

    name = PASS

    parts: int = 0
    axis: str = ""
    kernel: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        asked = bool(self.parts or self.axis or self.kernel)
        found = [(function, kernel) for function in functions(op) for kernel in kernels(function)]
        chosen = [pair for pair in found if self.kernel in ("", pair[1].kernel_name.data)]
        plans = [(*pair, _plan(pair[1], self.axis)) for pair in chosen]
        if asked and not any(isinstance(plan, StreamPlan) for _, _, plan in plans):
            raise Refusal(plans[0][1] if plans else op, _refusal(plans))
        possible = [(function, kernel, plan) for function, kernel, plan in plans if isinstance(plan, StreamPlan)]
        if not asked:
            possible = [entry for entry in possible if _size(entry[2]) >= 2 * SHORTEST]
        if not possible:
            return
        groups = {} if self.parts else _groups(ctx, op)
        for function, kernel, plan in possible:
            size, name = _size(plan), kernel.kernel_name.data
            if self.parts:
                if not 1 <= self.parts <= size:
                    raise Refusal(kernel, f"'{plan.axis}' has {size} positions, which cannot be {self.parts} parts")
                _split(function, kernel, plan, self.parts, "asked for")
                continue
            count = _dividing(size, min(machine_of(op).sms // groups[name], size // SHORTEST))
            if count < 2:
                continue
            if (problem := _fails(ctx, op, name, count)) is not None:
                note(function, PASS, f"{plan.axis} of @{name}", "not cut into parts", problem)
            else:
                _split(function, kernel, plan, count, f"{groups[name]} groups would not fill the machine")


def _fails(ctx: Context, module: ModuleOp, name: str, count: int) -> str | None:
    """Why a kernel cannot be cut into parts without being asked to: the parts would not fit the machine."""
    trial = module.clone()
    try:
        for step in (HierarchySplitStreamsPass(count, kernel=name), *_SCHEDULING):
            step.apply(ctx, trial)
    except (PassFailedException, TreadleError) as error:
        return str(error)
    return None


def _plan(kernel: KernelOp, axis: str) -> StreamPlan | str:
    """The stream of a kernel whose axis can be cut into parts, or why there is none."""
    if kernel.is_expanded or kernel.schedule is not None:
        return "it has a schedule already: an axis is cut into parts before `streaming`"
    part = part_of_kernel(kernel)
    if axis and all(axis not in op.over_axes for op in part.reducing):
        return f"axis '{axis}' is reduced by nothing in it"
    roles = roles_of(part, stream=axis or None)
    if isinstance(roles, NoRoles):
        return roles.reason
    if roles.stream is None:
        return "no axis of it is streamed"
    plan = StreamPlan(part, roles.stream)
    return _why_not(kernel, plan) or plan


def _why_not(kernel: KernelOp, plan: StreamPlan) -> str | None:
    axis = plan.axis
    if _size(plan) == DYNAMIC:
        return f"the size of axis '{axis}' is known only at launch: give it a static size (`compile --size {axis}=N`)"
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


def _groups(ctx: Context, module: ModuleOp) -> dict[str, int]:
    """How many groups each kernel would have, were no axis cut: as the cost model chooses their sizes."""
    trial = module.clone()
    for step in _SCHEDULING:
        step.apply(ctx, trial)
    found: dict[str, int] = {}
    for function in functions(trial):
        sizes = with_fitting(function.body.block, default_sizes(function))
        for kernel in kernels(function):
            own = {axis: size for axis, size in part_of_kernel(kernel).sizes.items() if size != DYNAMIC}
            known = {**sizes, **own}
            cut = kernel.schedule.group.as_dict() if kernel.schedule is not None else {}
            found[kernel.kernel_name.data] = prod(-(-known.get(axis, UNKNOWN_SIZE) // cut[axis]) for axis in cut)
    return found


def _dividing(size: int, count: int) -> int:
    """A number of parts, at most `count` and more than half of it, that divides the axis if there is one."""
    return next((fewer for fewer in range(count, count // 2, -1) if size % fewer == 0), count)


def _split(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, count: int, why: str) -> None:
    axis, size, name = plan.axis, _size(plan), kernel.kernel_name.data
    inline_extent(kernel, axis, size)
    plan = StreamPlan(part_of_kernel(kernel), axis)
    values = [value for op in function.walk() for value in (*op.operands, *op.results)]
    taken = {name for value in values for name in sizes_of(value.type)}
    length = size // count
    last = size - (count - 1) * length
    split = Split(axis, count, length, last, _fresh(f"{axis}_part", taken), _fresh(f"{axis}_in", taken))
    states = ", ".join(label(state) for state in plan.verdicts)
    names = {other.kernel_name.data for other in kernels(function)}
    parts, merge = split_kernel(kernel, plan, split, _fresh(f"{name}_parts", names))
    lengths = f"{count} parts of {length}" + (f", the last of {last}" if last != length else "")
    subject = f"{axis} of @{name} into @{parts.kernel_name.data} and @{merge.kernel_name.data}"
    note(function, PASS, subject, f"merge of {states}", f"{lengths}: {why}")


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
