"""`hierarchy-rescale-lazily`: the sums of a stream are repaired only when their maximum has grown by much."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.dialects.diagram.lagging import let_lag
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import function_of, functions, kernels, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes.streams.lagging import GROWTH, Lagging, candidates
from treadle.passes.streams.stages import StreamPlan

PASS = "hierarchy-rescale-lazily"

LAW = "sums of exp(c (s - r)) have the same quotients for every r"


@dataclass(frozen=True)
class HierarchyRescaleLazilyPass(ModulePass):
    """Let the maximum that the sums of a stream are told from lag behind, until powers would be more than 2^8 times as
    large as below the maximum itself. Then it is one factor that sums are repaired by in nearly all steps, and they are
    left as they are (conditional rescaling, as in FlashAttention-4).

    Before:
    ```
    !Q = tensor<64x64xf16, #diagram.array<[q, d]>>
    !K = tensor<?x64xf16, #diagram.array<[x, d]>>
    !V = tensor<?x64xf16, #diagram.array<[x, e]>>
    !Qd = tensor<64x64xf16, #diagram.array<[q, d], level = device>>
    !Kd = tensor<?x64xf16, #diagram.array<[x, d], level = device>>
    !Vd = tensor<?x64xf16, #diagram.array<[x, e], level = device>>
    !S = tensor<64x?xf32, #diagram.array<[q, x], level = register>>
    !P = tensor<64x?xf16, #diagram.array<[q, x], level = register>>
    !m = tensor<64xf32, #diagram.array<[q], level = register>>
    !A = tensor<64x64xf32, #diagram.array<[q, e], level = register>>
    !O = tensor<64x64xf32, #diagram.array<[q, e]>>
    func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O {
      %O = hierarchy.kernel @attention (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd) -> (!O)
          schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
        %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
        %m = diagram.reduce max %S over [x] : !S -> !m
        %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
          %distance = arith.subf %s, %r : f32
          %power = math.exp %distance : f32
          diagram.yield %power : f32
        }
        %l = diagram.reduce add %p over [x] : !S -> !m
        %P = diagram.cast %p : !S -> !P
        %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
        %o = diagram.map (%a = %sum : !A, %whole = %l : !m) -> !A {
          %share = arith.divf %a, %whole : f32
          diagram.yield %share : f32
        }
        hierarchy.yield %o : !A
      }
      func.return %O : !O
    }
    ```

    After:
    ```
    !Q = tensor<64x64xf16, #diagram.array<[q, d]>>
    !K = tensor<?x64xf16, #diagram.array<[x, d]>>
    !V = tensor<?x64xf16, #diagram.array<[x, e]>>
    !Qd = tensor<64x64xf16, #diagram.array<[q, d], level = device>>
    !Kd = tensor<?x64xf16, #diagram.array<[x, d], level = device>>
    !Vd = tensor<?x64xf16, #diagram.array<[x, e], level = device>>
    !S = tensor<64x?xf32, #diagram.array<[q, x], level = register>>
    !P = tensor<64x?xf16, #diagram.array<[q, x], level = register>>
    !m = tensor<64xf32, #diagram.array<[q], level = register>>
    !A = tensor<64x64xf32, #diagram.array<[q, e], level = register>>
    !O = tensor<64x64xf32, #diagram.array<[q, e]>>
    func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O {
      %O = hierarchy.kernel @attention (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd) -> (!O)
          schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
        %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
        %m = diagram.reduce max %S over [x] {diagram.slack = 5.54517746 : f32} : !S -> !m
        %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
          %distance = arith.subf %s, %r : f32
          %power = math.exp %distance : f32
          diagram.yield %power : f32
        }
        %l = diagram.reduce add %p over [x] : !S -> !m
        %P = diagram.cast %p : !S -> !P
        %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
        %o = diagram.map (%a = %sum : !A, %whole = %l : !m) -> !A {
          %share = arith.divf %a, %whole : f32
          diagram.yield %share : f32
        }
        hierarchy.yield %o : !A
      }
      func.return %O : !O
    }
    ```

    Legal where

    - all sums that follow the maximum are repaired by one factor `exp(c (before - after))`, and are sums of what goes
      with it as that does (`streams.lagging`);
    - all that is known at the end stays as it is whatever they are told from, as a quotient of two of these sums does,
      or `c m + log l`; so the maximum itself is no result, nor is a sum alone, nor does a later stream read them;
    - a maximum with other numbers, as `max(c m, k)` with a sink `k`, goes along by some amount. It is the same wherever
      that is computed, and cancels out where powers and sinks are told from it alike (`streams.ways`);
    - powers that are 2^8 times as large (2^12 where the slope of a large maximum stands for its factor) have room in
      the formats that they are rounded to: in f16 and bf16, not in f8.

    Where a maximum is so large that its neighbours are apart by what powers double at, or is no number, it does not lag
    (`expressions.lagging`). A row of `-inf` stays one.

    Done for accumulators of 32 columns and more; the others are repaired with one multiply-add as they grow."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for kernel in kernels(function):
                if kernel.schedule is not None and not kernel.is_expanded:
                    _let_lag(kernel)


def _let_lag(kernel: KernelOp) -> None:
    assert kernel.schedule is not None
    for axis in kernel.schedule.stream.as_dict():
        for found in candidates(StreamPlan(part_of_kernel(kernel), axis)):
            subject = f"the sums of @{kernel.kernel_name.data} along {axis}"
            if isinstance(found, Lagging):
                let_lag(found.extremum, found.slack)
                sums = ", ".join(map(label, found.accumulators))
                moved = f"when {label(found.extremum.result)} has moved by more than {found.slack:.4g}"
                reason = f"{sums} multiplied only {moved}, powers by 2^{GROWTH}"
                note(function_of(kernel), PASS, subject, LAW, reason)
            else:
                note(function_of(kernel), f"decline {PASS}", subject, LAW, str(found))
