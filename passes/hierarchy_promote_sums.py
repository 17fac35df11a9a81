"""`hierarchy-promote-sums`: add up what tensor cores keep few digits of in accumulators of f32."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.cost.kernel.roles import scheduled_row
from treadle.compiler.cost.kernel.warpgroups import can_be_of_warpgroups
from treadle.compiler.cost.kernel.work import multiply_format
from treadle.compiler.errors import Refusal
from treadle.compiler.machines import machine_of
from treadle.dialects.cuda.products import DEPTHS
from treadle.dialects.cuda.sums import EVERY
from treadle.dialects.diagram import ContractOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._decisions import decide
from treadle.passes._functions import kernels_named, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes.kernels.promotion import LAW, STEP, Reason, is_worth_it, lost, why_not_needed
from treadle.passes.streams.stages import StreamPlan

PASS = "hierarchy-promote-sums"
STEP_DEPTH = DEPTHS["m16n8k32"]


@dataclass(frozen=True)
class HierarchyPromoteSumsPass(ModulePass):
    """Promote long sums of 8-bit products: along the streamed axis, tensor cores add up at most `every` products, and
    the threads of the warpgroups add these sums in f32. Done where it is needed; or, if asked for, along `axis`, in the
    kernel named `kernel` or in all that stream it. With `every=0` nothing is done.

    Before, for `set-machine{name=h100}`:

    ```
    !A = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k]>>
    !B = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k]>>
    !Ad = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k], level = device>>
    !Bd = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k], level = device>>
    !C = tensor<4096x4096xf32, #diagram.array<[m, n]>>
    !Cr = tensor<4096x4096xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    After `hierarchy-promote-sums{axis=k every=128}`:

    ```
    !A = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k]>>
    !B = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k]>>
    !Ad = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k], level = device>>
    !Bd = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k], level = device>>
    !C = tensor<4096x4096xf32, #diagram.array<[m, n]>>
    !Cr = tensor<4096x4096xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?], promote = [k = 128]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    Legal: the sum is associative. Tensor cores keep 14 bits of a sum of 8-bit products, however long it is; promoted,
    it errs by what they lose of `every` products, and by one rounding of f32 for each such part. Needed where what they
    may lose of the whole sum is more than what rounding it does to the result. Declined where a step repairs the sum,
    whose product then could not run beside the next step; where no sizes fit beside the sums on their way; and where
    the model finds that the kernel would take half as much time again.
    """

    name = PASS

    axis: str = ""
    kernel: str = ""
    every: int = EVERY

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.every < 0:
            raise Refusal(op, f"every={self.every}: sums are promoted after 1 product or more, or never (0)")
        if self.every % STEP_DEPTH:
            fact = f"tensor cores add up {STEP_DEPTH} products in a step, so sums are promoted after a multiple of that"
            raise Refusal(op, f"every={self.every}: {fact}")
        named = kernels_named(op, self.kernel)
        if self.axis and not any(self._streams(kernel) for _, kernel in named):
            raise Refusal(
                op, f"no kernel streams axis '{self.axis}': run streaming first, or name one that is streamed"
            )
        for function, kernel in named if self.every else []:
            if self._streams(kernel):
                self._promote(ctx, op, function, kernel)

    def _streams(self, kernel: KernelOp) -> bool:
        if kernel.schedule is None or kernel.is_expanded:
            return False
        return any(self.axis in ("", axis) for axis in kernel.schedule.stream.as_dict())

    def _promote(self, ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp) -> None:
        assert kernel.schedule is not None
        (axis,) = kernel.schedule.stream.as_dict()
        sums = _sums_over(kernel, axis)
        problem = _why_not(module, kernel, sums, axis)
        if self.axis and problem is not None:
            raise Refusal(kernel, f"sums along '{axis}' of {_at(kernel)} cannot be promoted: {problem.fact}")
        if not sums or axis in kernel.schedule.promote.as_dict():
            return
        if problem is None and not self.axis:
            problem = self._why_not_unasked(ctx, module, kernel, sums, axis)
        if problem is not None:
            if problem.is_told:
                note(function, f"decline {PASS}", f"{_at(kernel)} along {axis}", problem.law, problem.fact)
            return
        kernel.properties["schedule"] = kernel.schedule.but(promote={axis: self.every})
        decide(kernel, axis=axis, every=self.every)
        for op in sums:
            note(function, PASS, f"{label(op.result)} of {_at(kernel)} along {axis}", LAW, lost(op, axis, self.every))

    def _why_not_unasked(
        self, ctx: Context, module: ModuleOp, kernel: KernelOp, sums: list[ContractOp], axis: str
    ) -> Reason | None:
        reasons = [why_not_needed(op, axis, self.every) for op in sums]
        if all(reason is not None for reason in reasons):
            return reasons[0]
        plan = StreamPlan(part_of_kernel(kernel), axis)
        for op in sums:
            verdict = plan.verdicts.get(op.result)
            if verdict is not None and verdict.repair is not None:
                return Reason(STEP, f"{label(op.result)} is repaired in each; {lost(op, axis, self.every)}")
        return is_worth_it(ctx, module, kernel, {axis: self.every})


def _sums_over(kernel: KernelOp, axis: str) -> list[ContractOp]:
    """The contractions over an axis that tensor cores keep few digits of."""
    contractions = [op for op in part_of_kernel(kernel).reducing if isinstance(op, ContractOp)]
    return [
        op
        for op in contractions
        if axis in op.over_axes and multiply_format(op) == "f8" and str(op.accumulate) == "f32"
    ]


def _why_not(module: ModuleOp, kernel: KernelOp, sums: list[ContractOp], axis: str) -> Reason | None:
    machine, schedule = machine_of(module), kernel.schedule
    assert schedule is not None
    law = "warpgroups promote sums"
    if not sums:
        return Reason(law, f"nothing sums products of 8 bits along '{axis}' in f32")
    if not machine.has_warpgroups:
        return Reason(law, f"the machine {machine.name} is {machine.arch}, which has none")
    if not can_be_of_warpgroups(kernel, scheduled_row(kernel, schedule)):
        return Reason(law, f"the products of {_at(kernel)} are not theirs")
    return None


def _at(kernel: KernelOp) -> str:
    return f"@{kernel.kernel_name.data}"
