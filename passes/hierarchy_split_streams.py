"""`hierarchy-split-streams`: let several groups stream a part of an axis each, and a second kernel merge them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.choice.reasons import sizes_text
from treadle.compiler.cost.timing.time import Estimate, least_time
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, LARGEST_SIZE, SizesAttr, axes_of, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._decisions import decide
from treadle.passes._functions import functions, kernels, kernels_named, label, note, stated_sizes
from treadle.passes._parts import part_of_kernel
from treadle.passes._recurrences import recurrence_of
from treadle.passes._structure import Structure, remember, structure_of
from treadle.passes.expressions.reductions import keep_states_apart
from treadle.passes.expressions.scalars import is_plain
from treadle.passes.kernels.part_lengths import (
    LONGER,
    MORE,
    WHOLE_PIECES,
    WORTH,
    Times,
    fastest,
    lengths_of,
    tried,
)
from treadle.passes.kernels.roles import Refusal as NoRoles
from treadle.passes.kernels.roles import roles_along, roles_of
from treadle.passes.kernels.short_parts import depth_held, short_parts
from treadle.passes.kernels.trial import Scheduled, alone, scheduled
from treadle.passes.streams.splits import Split, inline_extent, is_at_quotients, split_kernel
from treadle.passes.streams.stages import Repairs, StreamPlan, is_scanned_along

PASS = "hierarchy-split-streams"

WHOLE = 1
"""Parts that an axis is cut into where it stays as it is."""

LONGEST = 48
"""Letters of an axis that the names of its parts keep: a name has at most 63."""


@dataclass(frozen=True)
class HierarchySplitStreamsPass(ModulePass):
    """Cut the axis that a kernel would stream into parts: one kernel makes the states of each part, a second one
    merges them and finishes.

    With options, `axis` is cut into `parts`, or into parts of `length`, in the kernel named `kernel`; with `parts=1` it
    stays whole. Without options
    this is done only if it saves time: where the groups of a kernel leave places of the machine empty, into parts of
    the length that the cost model finds fastest; or where groups hold a long axis whole, into parts that they can hold
    instead (`kernels.short_parts`). Of an axis whose size is known only at launch the length of the parts is decided,
    by the default size that the file gives and by larger ones; the launch counts the parts.

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
        asked = self.parts != WHOLE and bool(self.parts or self.length or self.axis or self.kernel)
        plans = [(*pair, _plan(pair[1], self.axis)) for pair in kernels_named(op, self.kernel)]
        if asked and not any(isinstance(plan, StreamPlan) for _, _, plan in plans):
            raise Refusal(plans[0][1] if plans else op, _refusal(plans))
        possible = [(function, kernel, plan) for function, kernel, plan in plans if isinstance(plan, StreamPlan)]
        for function, kernel, plan in possible if asked and (self.parts or self.length) else ():
            cut = self._cut(function, kernel, plan)
            if (reason := _tried_in_vain(op, kernel.kernel_name.data, plan.axis, cut)) is not None:
                raise Refusal(kernel, f"'{plan.axis}' cannot be cut into parts: {reason}")
            _split(function, kernel, plan, cut, "asked for")
        if not self.parts and not self.length:
            for entry in possible:
                _where_it_pays(ctx, op, *entry)
            for function, kernel, plan in plans:
                if isinstance(plan, _NotInParts):
                    _tell_idle(op, function, kernel, plan)

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


@dataclass(frozen=True)
class _NotInParts:
    """Why the axis that a kernel streams, or holds whole in place of that, cannot be cut into parts."""

    plan: StreamPlan
    """Unfinished where a reduction waits for others."""
    reason: str

    def __str__(self) -> str:
        return self.reason


def _in_parts_of(length: int, plan: StreamPlan) -> _Cut:
    return _Cut(DYNAMIC if _size(plan) == DYNAMIC else _size(plan) // length, length)


def _where_it_pays(ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan) -> None:
    """Cut the axis of a kernel whose groups hold a long axis whole, or leave places of the machine empty, if it saves
    time."""
    timed = _timed(module, function, kernel, plan, _TIMED, _in_parts)
    short = None if depth_held(plan) is None else short_parts(ctx, module, function, kernel, plan)
    length = None if timed is None else fastest(timed.found, timed.alone)
    if short is not None and (timed is None or length is None or short.time <= timed.found[length].stated):
        decide(kernel, length=short.length)
        why = f"short enough to be held whole: {short.why}"
        _split(function, kernel, plan, _in_parts_of(short.length, plan), why)
        return
    if timed is None:
        decide(kernel, parts=WHOLE)
        return
    alone, name = timed.alone, kernel.kernel_name.data
    least = f"two kernels take at least {_us(_least(module))}, one {_us(alone.stated)}"
    told = timed.told(_larger(function, plan)) if timed.found else least
    if length is None:
        note(function, f"decline {PASS}", f"@{name} along {plan.axis}", "two kernels must save a tenth", told)
        decide(kernel, parts=WHOLE)
    else:
        decide(kernel, length=length)
        why = f"{_groups(timed)} places of the machine empty; {told}"
        _split(function, kernel, plan, _in_parts_of(length, plan), why)


def _tell_idle(module: ModuleOp, function: func.FuncOp, kernel: KernelOp, found: _NotInParts) -> None:
    """Say why an axis stays whole where a reader would ask: its groups leave places of the machine empty, for longer
    than two kernels take at least."""
    plan = found.plan
    if not _are_few_groups(machine_of(module).sms, function, plan):
        return
    timed = _timed(module, function, kernel, plan, _ALONE, _whole)
    if timed is None or _least(module) > WORTH * timed.alone.stated:
        return
    idle = f"{_groups(timed)} places of the machine empty, and one kernel takes {_us(timed.alone.stated)}"
    subject = f"@{kernel.kernel_name.data} along {plan.axis}"
    note(function, f"decline {PASS}", subject, "parts are merged by a second kernel", f"{idle}; but {found.reason}")


def _are_few_groups(places: int, function: func.FuncOp, plan: StreamPlan) -> bool:
    """Whether groups of one index each would be no more than the places of a machine: asked before the time is."""
    roles, sizes = roles_along(plan.part, plan.axis), plan.part.sizes
    if roles is None:
        return False
    stated = stated_sizes(function)
    likely = (stated.get(axis, UNKNOWN_SIZE) if sizes[axis] == DYNAMIC else sizes[axis] for axis in roles.group)
    return prod(likely) <= places


def _groups(timed: _Timed) -> str:
    return "1 group leaves" if timed.groups == 1 else f"{timed.groups} groups leave"


def _timed(
    module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, known: _Known, anew: _Clock
) -> _Timed | None:
    """What was tried with a kernel; None where its groups leave no places empty. The same kernels are asked of in many
    programs, and while fusion tries what becomes of them."""
    key = structure_of(kernel, module.attributes, stated_sizes(function), [plan.axis])
    if key is None:
        return anew(module, function, kernel, plan)
    if key not in known:
        timed = anew(module, function, kernel, plan)
        if timed is not None and timed.refused:
            return timed
        remember(known, key, timed)
    return known[key]


def _whole(module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan) -> _Timed | None:
    """What a kernel takes that is not cut, if its groups leave places empty."""
    trial = _Trial(module, function, kernel, plan.axis, _larger(function, plan))
    whole = trial.whole() if _likely(function, plan) >= 2 * WHOLE_PIECES else None
    if whole is None or not _is_idle(whole.choice.estimate):
        return None
    return _Timed(whole.choice.estimate.blocks, trial.times([whole]), {})


def _in_parts(module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan) -> _Timed | None:
    """The same, and what it takes in parts where two kernels may be faster."""
    timed = _whole(module, function, kernel, plan)
    if timed is None or _least(module) > WORTH * timed.alone.stated:
        return timed
    size, alone = _likely(function, plan), timed.alone
    trial = _Trial(module, function, kernel, plan.axis, _larger(function, plan))
    lengths = lengths_of(size, _size(plan) != DYNAMIC, _has_neighbours(kernel, plan.axis))
    found = tried(lengths, machine_of(module).sms // timed.groups, trial.parts, alone)
    refused = trial.refused if all(each.stated == inf for each in found.values()) else ""
    return _Timed(timed.groups, alone, found, refused)


@dataclass(frozen=True)
class _Timed:
    """What a kernel takes whole, with so many groups, and in parts of some lengths."""

    groups: int
    alone: Times
    found: Mapping[int, Times]
    refused: str = ""
    """Why no parts could be, where none could: with names in it, so that it is not kept."""

    def told(self, larger: Mapping[str, int]) -> str:
        """What was tried, and what it takes."""
        if all(each.stated == inf for each in self.found.values()):
            return self.refused
        parts = ", ".join(f"{_us(times.stated)} in parts of {length}" for length, times in self.found.items())
        told = f"estimated {parts}, {_us(self.alone.stated)} whole"
        if all(each == Times(each.stated, each.stated) for each in (*self.found.values(), self.alone)):
            return told
        longer = ", ".join(_us(times.longer) for times in (*self.found.values(), self.alone))
        return f"{told}; at {sizes_text(larger)} {longer}"


_Known: TypeAlias = dict[Structure, _Timed | None]
_Clock: TypeAlias = Callable[[ModuleOp, func.FuncOp, KernelOp, StreamPlan], _Timed | None]

_TIMED: _Known = {}
"""Kernels that were tried in parts."""

_ALONE: _Known = {}
"""Kernels that cannot be in parts."""


def _least(module: ModuleOp) -> float:
    """What two kernels take at least, in microseconds."""
    return 2 * least_time(machine_of(module))


def _larger(function: func.FuncOp, plan: StreamPlan) -> dict[str, int]:
    """What a launch may bring of the axes that are known only then."""
    stated = stated_sizes(function)
    symbolic = [axis for axis, size in plan.part.sizes.items() if size == DYNAMIC]
    return {axis: (LONGER if axis == plan.axis else MORE) * stated.get(axis, UNKNOWN_SIZE) for axis in symbolic}


def _is_idle(found: Estimate) -> bool:
    """Whether more groups could take less time: a tenth of all places stay empty, and no unit is busy to a tenth."""
    busiest = max(found.units_us.values(), default=0.0)
    return found.waves <= WORTH * ceil(found.waves) and busiest <= WORTH * found.time_us


def _has_neighbours(kernel: KernelOp, axis: str) -> bool:
    """Whether elements along an axis lie side by side in an array that a kernel reads."""
    return any(axes_of(argument.type)[-1:] == (axis,) for argument in kernel.body.block.args)


@dataclass
class _Trial:
    """A kernel alone, whole and in parts along an axis, as the cost model chooses sizes."""

    module: ModuleOp
    function: func.FuncOp
    kernel: KernelOp
    axis: str
    larger: Mapping[str, int]
    """Sizes that a launch may bring, at which it is timed, too."""
    refused: str = ""
    """Why parts could not be, where they could not."""

    def whole(self) -> Scheduled | None:
        """None where it does not fit the machine, as a later pass will tell."""
        try:
            return scheduled(self._alone()[0])[0]
        except (PassFailedException, TreadleError):
            return None

    def parts(self, length: int) -> Times:
        module, function, kernel = self._alone()
        plan = StreamPlan(part_of_kernel(kernel), self.axis)
        try:
            both = _split(function, kernel, plan, _in_parts_of(length, plan), "")
            self.refused = _without_a_role(both) or ""
            return Times(inf, inf) if self.refused else self.times(scheduled(module))
        except (PassFailedException, TreadleError) as error:
            self.refused = str(error)
            return Times(inf, inf)

    def times(self, kernels: Sequence[Scheduled]) -> Times:
        stated = sum(each.time for each in kernels)
        return Times(stated, sum(each.time_at(self.larger) for each in kernels))

    def _alone(self) -> tuple[ModuleOp, func.FuncOp, KernelOp]:
        module, function = alone(self.module, self.function, kernel := self.kernel.clone())
        if stated := stated_sizes(self.function):
            function.attributes["sizes"] = SizesAttr(stated)
        return module, function, kernel


def _us(time: float) -> str:
    return f"{time:.3g} us"


def _tried_in_vain(module: ModuleOp, name: str, axis: str, cut: _Cut) -> str | None:
    """Why a kernel cannot be cut as it is asked to, found on a copy."""
    for function in functions(module.clone()):
        for kernel in kernels(function):
            if kernel.kernel_name.data == name:
                return _without_a_role(_split(function, kernel, StreamPlan(part_of_kernel(kernel), axis), cut, ""))
    return None


def _without_a_role(kernels: Iterable[KernelOp]) -> str | None:
    """Why one of some kernels could not run: a state may lack an axis that the groups of the others share."""
    roles = (roles_of(part_of_kernel(kernel), wide=True) for kernel in kernels)
    return next((role.reason for role in roles if isinstance(role, NoRoles)), None)


def _plan(kernel: KernelOp, axis: str) -> StreamPlan | _NotInParts | str:
    """The stream of a kernel whose axis can be cut into parts, or why there is none."""
    if kernel.is_expanded or kernel.schedule is not None:
        return "it has a schedule already: an axis is cut into parts before `streaming`"
    if (recurrence := recurrence_of(kernel)) is not None:
        return f"it is a recurrence along '{recurrence.axis.data}': no part of that knows the state before it"
    part = part_of_kernel(kernel)
    if axis and all(axis not in op.over_axes for op in part.reducing):
        return f"axis '{axis}' is reduced by nothing in it"
    repairs = Repairs()
    roles = roles_of(part, stream=axis or None, repairs=repairs, wide=True)
    if isinstance(roles, NoRoles):
        return roles.reason
    if (streamed := roles.stream or roles.instead) is None:
        return "no axis of it is streamed"
    plan = StreamPlan(part, streamed, repairs, most=1)
    reason = _why_not(kernel, plan)
    return plan if reason is None else _NotInParts(plan, reason)


def _why_not(kernel: KernelOp, plan: StreamPlan) -> str | None:
    axis = plan.axis
    if all(axis not in axes_of(argument.type) for argument in kernel.body.block.args):
        return f"no array that it reads has axis '{axis}': there is nothing to share out"
    if _size(plan) == DYNAMIC and all(map(is_at_quotients, (v for v in kernel.inputs if axis in axes_of(v.type)))):
        return f"'{axis}' is read at quotients alone, and a launch would not know how many parts there are"
    if any(plan.is_piece(value) for value in plan.part.leaving):
        return f"a result has axis '{axis}', so no part of it is done before all are merged"
    if (refused := next((each for each in plan.verdicts.values() if each.refused), None)) is not None:
        return f"there is no law that merges parts of '{axis}': {refused.refused}"
    for op in plan.part.ops:
        if is_scanned_along(op, axis) and not op.is_reverse:
            return f"'{axis}' is scanned by {label(op.result)}, and no part of it knows what came before"
        if isinstance(op, ContractOp) and plan.is_fixed(op.result):
            return f"every part would compute the product {label(op.result)} again"
        if isinstance(op, MapOp) and not is_plain(op):
            return f"the body of {label(op.result)} is not a plain expression"
    return None


def _refusal(plans: Sequence[tuple[func.FuncOp, KernelOp, StreamPlan | _NotInParts | str]]) -> str:
    reasons = [f"@{kernel.kernel_name.data}: {plan}" for _, kernel, plan in plans]
    return f"no axis can be cut into parts: {'; '.join(reasons) or 'there is no kernel'}"


def _size(plan: StreamPlan) -> int:
    return plan.part.sizes[plan.axis]


def _likely(function: func.FuncOp, plan: StreamPlan) -> int:
    """The size of the axis, or by default if only the launch tells."""
    if (size := _size(plan)) != DYNAMIC:
        return size
    return stated_sizes(function).get(plan.axis, UNKNOWN_SIZE)


def _whole_pieces(length: int) -> int:
    return -(-length // WHOLE_PIECES) * WHOLE_PIECES


def _split(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, cut: _Cut, why: str) -> tuple[KernelOp, KernelOp]:
    axis, size, name = plan.axis, _size(plan), kernel.kernel_name.data
    inline_extent(kernel, axis, size)
    keep_states_apart(kernel, axis)  # parts are handed on as they are accumulated, and rounded once they are merged
    plan = StreamPlan(part_of_kernel(kernel), axis)
    values = [value for op in function.walk() for value in (*op.operands, *op.results)]
    taken = {name for value in values for name in sizes_of(value.type)}
    taken |= {name.data for op in function.walk() if isinstance(op, WhereOp) for name in op.names}
    last = size if size == DYNAMIC else size - (cut.count - 1) * cut.length
    of = axis[:LONGEST]
    names = (_fresh(name, taken) for name in (f"{of}_part", f"{of}_in", "parts"))
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
