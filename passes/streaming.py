"""`streaming`: choose the axis that each kernel is fed along, and the law that allows it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr
from treadle.passes._decisions import decide
from treadle.passes._functions import functions, kernels, label, names_of, no_kernel, note
from treadle.passes._parts import Part, part_of_kernel
from treadle.passes._recurrences import recurrence_of
from treadle.passes.expressions.scalars import spell
from treadle.passes.expressions.shares import absorb_divisors
from treadle.passes.kernels.roles import WHOLE_LIMIT, roles_along, roles_of
from treadle.passes.kernels.roles import Refusal as NoRoles
from treadle.passes.streams.polynomial_sums import when_moved
from treadle.passes.streams.stages import Repairs, StreamPlan, Verdict

PASS = "streaming"


@dataclass(frozen=True)
class StreamingPass(ModulePass):
    """Decorate a kernel with the axis that it is fed along in pieces: a reduced one, symbolic if there is
    one, else that of the last reduction; or `axis`, in the kernel named `kernel` or in all that reduce it.

    Before:

    ```
    !x = tensor<?x?xf32, #diagram.array<[i, x]>>
    !xd = tensor<?x?xf32, #diagram.array<[i, x], level = device>>
    !s = tensor<?xf32, #diagram.array<[i]>>
    !sr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !s {
      %s = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!s) {
        %m = diagram.reduce max %a over [x] : !xd -> !sr
        hierarchy.yield %m : !sr
      }
      func.return %s : !s
    }
    ```

    After:

    ```
    !x = tensor<?x?xf32, #diagram.array<[i, x]>>
    !xd = tensor<?x?xf32, #diagram.array<[i, x], level = device>>
    !s = tensor<?xf32, #diagram.array<[i]>>
    !sr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !s {
      %s = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!s) schedule #hierarchy.schedule<stream = [x = ?]> {
        %m = diagram.reduce max %a over [x] : !xd -> !sr
        hierarchy.yield %m : !sr
      }
      func.return %s : !s
    }
    ```

    Legal: a reduction is streamable because its operation is associative, `B(F(x), y) = F(x ++ y)`; one
    whose summands depend on another over the same axis by the cascade law (`streams.cascades`), else by computing
    the pieces again in a second stream (`streams.stages`), which makes shares of powers as powers:
    `exp(a) / b = exp(a - log b)` (`expressions.shares`). The law of each reduction is recorded. An axis that would be
    fed more than once, and that a group can hold whole, is held whole, unless the cost model finds streaming faster
    (`kernels.whole_or_streamed`)."""

    name = PASS

    axis: str = ""
    kernel: str = ""
    whole_limit: int = WHOLE_LIMIT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = [(function, kernel) for function in functions(op) for kernel in kernels(function)]
        chosen = [pair for pair in found if self._concerns(pair[1])]
        if (self.axis or self.kernel) and not chosen:
            raise Refusal(
                op if not found else found[0][1], _nothing_chosen(self.axis, self.kernel, [k for _, k in found])
            )
        for function, kernel in chosen:
            if not kernel.is_expanded:
                self._decorate(ctx, op, function, kernel)

    def _concerns(self, kernel: KernelOp) -> bool:
        if self.kernel:
            return kernel.kernel_name.data == self.kernel
        return not self.axis or any(self.axis in op.over_axes for op in part_of_kernel(kernel).reducing)

    def _decorate(self, ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp) -> None:
        if (recurrence := recurrence_of(kernel)) is not None:
            if self.axis not in ("", recurrence.axis.data):
                along = f"it is a recurrence along '{recurrence.axis.data}'"
                raise Refusal(recurrence, f"{_at(kernel)} cannot stream '{self.axis}': {along}")
            _take_along(kernel, recurrence.axis.data)
            note(
                function, PASS, f"{recurrence.axis.data} of {_at(kernel)}", "a recurrence", "one position after another"
            )
            return
        part = part_of_kernel(kernel)
        if self.axis and all(self.axis not in op.over_axes for op in part.reducing):
            raise Refusal(kernel, f"{_at(kernel)}: axis '{self.axis}' is reduced by nothing in it")
        repairs = Repairs()
        roles = roles_of(part, self.whole_limit, self.axis or None, repairs, wide=True)
        if isinstance(roles, NoRoles):
            if self.axis:
                raise Refusal(_reducing(part, self.axis), f"{_at(kernel)} cannot stream '{self.axis}': {roles.reason}")
            note(function, PASS, _at(kernel), "refused", roles.reason)
            return
        axis = roles.stream or (None if roles.instead is None else self._instead(ctx, module, kernel, roles.instead))
        if axis is None:
            return
        old = kernel.schedule or ScheduleAttr({}, {}, {})
        if axis in old.whole.as_dict():
            # Whoever wrote the schedule has decided that it is not fed in pieces.
            if self.axis:
                raise Refusal(kernel, f"{_at(kernel)}: its schedule holds axis '{self.axis}' whole")
            return
        # A piece that the schedule states is kept.
        kernel.properties["schedule"] = new = old.but(stream={axis: old.stream.as_dict().get(axis, UNDECIDED)})
        if new != old:
            decide(kernel, axis=axis)
        plan = StreamPlan(part, axis, repairs)
        _note_laws(function, kernel, plan)
        # A later stream makes its powers for itself.
        absorb_divisors(function, part.ops, PASS, plan.is_finished_by)

    def _instead(self, ctx: Context, module: ModuleOp, kernel: KernelOp, axis: str) -> str | None:
        """The axis, if feeding it more than once is faster than holding it whole, or alone possible."""
        # imported here, for it runs passes that come later in the pipeline
        from treadle.passes.kernels.whole_or_streamed import is_faster_streamed

        is_open = kernel.schedule is None and roles_along(part_of_kernel(kernel), axis, self.whole_limit) is not None
        return axis if is_open and is_faster_streamed(ctx, module, kernel, axis) else None


def _take_along(kernel: KernelOp, axis: str) -> None:
    """Let a recurrence be fed its axis, whatever else it reduces."""
    old = kernel.schedule or ScheduleAttr({}, {}, {})
    if axis in (*old.group.as_dict(), *old.whole.as_dict()):
        raise Refusal(kernel, f"{_at(kernel)}: its schedule does not stream '{axis}', along which it is a recurrence")
    stated = old.stream.as_dict()
    kernel.properties["schedule"] = old.but(stream={axis: stated.get(axis, UNDECIDED)})


def _reducing(part: Part, axis: str) -> Operation:
    """The first operation that reduces an axis."""
    return next(op for op in part.reducing if axis in op.over_axes)


def _at(kernel: KernelOp) -> str:
    return f"@{kernel.kernel_name.data}"


def _nothing_chosen(axis: str, kernel: str, found: list[KernelOp]) -> str:
    return (
        no_kernel(kernel, found) if kernel else f"axis '{axis}' is reduced in no kernel (kernels are {names_of(found)})"
    )


def _note_laws(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan) -> None:
    for state, verdict in plan.verdicts.items():
        subject = f"{label(state)} of {_at(kernel)} along {plan.axis}"
        note(function, PASS, subject, _law(state, verdict), _reason(plan, state, verdict))
    again = [value for value in plan.part.leaving if plan.is_piece(value) and plan.stage_of(value) > 0]
    for value in again:
        subject = f"{label(value)} of {_at(kernel)} along {plan.axis}"
        waits = ", ".join(label(state) for state in plan.verdicts if state in plan.states_of(value))
        note(function, PASS, subject, "recomputation", f"a further stream, after {waits}")


def _law(state: SSAValue, verdict: Verdict) -> str:
    if verdict.repair is not None:
        return "cascade"
    if verdict.refused:
        return "recomputation"
    owner = state.owner
    if isinstance(owner, ContractOp):
        return "linearity of the contraction"
    assert isinstance(owner, ReduceOp)
    return f"associativity of {owner.kind.data}"


def _reason(plan: StreamPlan, state: SSAValue, verdict: Verdict) -> str:
    if verdict.refused:
        return f"a further stream, for {verdict.refused}"
    if verdict.repair is None:
        return ""
    moved = sorted(label(r) for r in _moved(plan.part, plan, state))
    changes = {"increased by": verdict.repair.summand, "multiplied by": verdict.repair.factor}
    what = " and ".join(f"{verb} {spell(when_moved(change))}" for verb, change in changes.items() if change is not None)
    follows = "begins anew, for no element so far equals it" if verdict.repair.stays is not None else f"is {what}"
    text = f"when {', '.join(moved)} moves, {label(state)} {follows}"
    guarded = sorted(label(r) for r in _moved(plan.part, plan, state) if r in plan.guarded)
    if guarded and verdict.repair.stays is None:
        text += f"; while {', '.join(guarded)} is neutral nothing counts, and a finite number stands for it"
    return text


def _moved(part: Part, plan: StreamPlan, state: SSAValue) -> list[SSAValue]:
    """The states that the summands of a reduction depend on and that move with it."""
    owner = next(op for op in part.ops if op.results[0] is state)
    states = dict.fromkeys(s for operand in owner.operands for s in plan.states_of(operand))
    return [s for s in states if plan.runs_with(s, state)]
