"""`hierarchy-share-reciprocals`: one reciprocal for several elements, where special functions take the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.dialects.diagram.sharing import SCALES
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import function_of, functions, kernels, label, note
from treadle.passes.kernels.sharing import Candidate, candidates, clocks_of
from treadle.passes.kernels.trial import alone

PASS = "hierarchy-share-reciprocals"

LAW = "1 / a = b / (a b)"
TESTED_LAW = "1 / a = b / (a b), tested: each has its own where a product is NaN or too large"
WORTH = 0.98
"""At most so much of the time a kernel takes for its reciprocals to be shared: each is off by more roundings then."""


@dataclass(frozen=True)
class HierarchyShareReciprocalsPass(ModulePass):
    """Let 2 or 4 neighbours along a streamed axis share a reciprocal: `1 / a` is `b` times that of `a b`. The special-
    function unit makes one in place of 2 or 4, the other units 3 or 9 products. Done where the model finds that the
    kernel takes less time; for `most` neighbours at most, or, with `most=1`, never. Behind the stream of a product, as
    in gates, any 4 elements of a thread share one (`diagram.shared = 4 : i64`), if their divisors pass a test.

    Before, for `set-machine{name=h100}`:

    ```
    !Q = tensor<4096x64xf16, #diagram.array<[q, d]>>
    !K = tensor<4096x64xf16, #diagram.array<[x, d]>>
    !Qd = tensor<4096x64xf16, #diagram.array<[q, d], level = device>>
    !Kd = tensor<4096x64xf16, #diagram.array<[x, d], level = device>>
    !Sr = tensor<4096x4096xf32, #diagram.array<[q, x], level = register>>
    !l = tensor<4096xf32, #diagram.array<[q]>>
    !lr = tensor<4096xf32, #diagram.array<[q], level = register>>
    func.func @powers(%Q: !Q, %K: !K) -> !l {
      %l = hierarchy.kernel @powers (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!l)
          schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64]> {
        %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !Sr
        %p = diagram.map (%s = %S : !Sr) -> !Sr {
          %t = math.tanh %s fastmath<afn> : f32
          %e = math.exp %t : f32
          diagram.yield %e : f32
        }
        %sum = diagram.reduce add %p over [x] : !Sr -> !lr
        hierarchy.yield %sum : !lr
      }
      func.return %l : !l
    }
    ```

    After:

    ```
    !Q = tensor<4096x64xf16, #diagram.array<[q, d]>>
    !K = tensor<4096x64xf16, #diagram.array<[x, d]>>
    !Qd = tensor<4096x64xf16, #diagram.array<[q, d], level = device>>
    !Kd = tensor<4096x64xf16, #diagram.array<[x, d], level = device>>
    !Sr = tensor<4096x4096xf32, #diagram.array<[q, x], level = register>>
    !l = tensor<4096xf32, #diagram.array<[q]>>
    !lr = tensor<4096xf32, #diagram.array<[q], level = register>>
    func.func @powers(%Q: !Q, %K: !K) -> !l {
      %l = hierarchy.kernel @powers (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!l)
          schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64]> {
        %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !Sr
        %p = diagram.map (%s = %S : !Sr) -> !Sr {
          %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 4>} : f32
          %e = math.exp %t : f32
          diagram.yield %e : f32
        }
        %sum = diagram.reduce add %p over [x] : !Sr -> !lr
        hierarchy.yield %sum : !lr
      }
      func.return %l : !l
    }
    ```

    Legal where

    - the divisors are at least 1 (or another power of two, by which they are scaled), as `1 + exp(x)` is. They are
      multiplied by 2^-62, or by 2^-30 where 4 share, and clipped at 1: then no product of theirs leaves the normal
      numbers. A reciprocal below 2^-62 (2^-30) counts as that: of `tanh` 2^-20 is allowed, and a quotient has to be
      rounded to f16, where both are 0;
    - all that is made of a neighbour is summed along the axis: its NaN, which others get, is in these sums anyway. In
      pieces with absent elements, which are in no sum, each element has its own reciprocal;
    - there is room for the roundings: powers of `tanh` are off by 2^-14 at most, a quotient by 2 ulp, of which 2 share.

    Behind a test legal where

    - the divisors are at least 1/4, so that no product of quarters of them is below the normal numbers. Where one is
      NaN or above 2^96 each element has its own reciprocal, so that none is what another makes of it;
    - the result is rounded to 16 bits or fewer: quotients are off by 3.5 ulp of f32.

    Done where the instructions of the map then take a warp fewer clocks, for nothing hides them behind a product.
    """

    name = PASS

    most: int = max(SCALES)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.most not in (1, *SCALES):
            raise Refusal(op, f"most={self.most}: 2 or 4 neighbours share a reciprocal, or each has its own (1)")
        for function in functions(op):
            for kernel in kernels(function):
                if kernel.schedule is not None and not kernel.is_expanded:
                    self._share(op, kernel)

    def _share(self, module: ModuleOp, kernel: KernelOp) -> None:
        found = list(candidates(kernel))
        for each in [each for each in found if each.axis is None]:
            self._share_tested(module, kernel, each)
        self._share_clipped(module, kernel, [each for each in found if each.axis is not None])

    def _share_tested(self, module: ModuleOp, kernel: KernelOp, found: Candidate) -> None:
        """Behind products, which wait for it, so that its own time counts."""
        count = min(self.most, found.most)
        if count == 1:
            return
        own = clocks_of(found.map, machine_of(module))
        found.share(count)
        together = clocks_of(found.map, machine_of(module))
        told = f"{together:.3g} clocks of a warp an element where {count} share one, {own:.3g} where each has its own"
        subject = f"{label(found.map.result)} of @{kernel.kernel_name.data}"
        if together <= WORTH * own:
            return note(function_of(kernel), PASS, subject, TESTED_LAW, told)
        found.unshare()
        note(function_of(kernel), f"decline {PASS}", subject, "what is shared must save time", told)

    def _share_clipped(self, module: ModuleOp, kernel: KernelOp, found: Sequence[Candidate]) -> None:
        counts = [n for n in SCALES if n <= min(self.most, max((each.most for each in found), default=1))]
        if not counts:
            return
        times = {n: _time(module, kernel, n) for n in (1, *counts)}
        best = min(counts, key=lambda n: times[n])
        subject = f"{', '.join(label(each.map.result) for each in found)} of @{kernel.kernel_name.data}"
        told = ", ".join(f"{time:.3g} us where {n} share one" for n, time in times.items() if n > 1)
        told = f"estimated {told}, {times[1]:.3g} us where each has its own"
        if times[best] > WORTH * times[1]:
            return note(function_of(kernel), f"decline {PASS}", subject, "what is shared must save time", told)
        for each in found:
            each.share(best)
        note(function_of(kernel), PASS, subject, LAW, told)


def _time(module: ModuleOp, kernel: KernelOp, count: int) -> float:
    """In microseconds, as the model chooses sizes; infinite if none fit the machine."""
    # imported here, for it comes later in the pipeline
    from treadle.passes.hierarchy_choose_sizes import choice_for

    copy = kernel.clone()
    for each in candidates(copy):
        if each.axis is not None:
            each.share(count)
    assert copy.schedule is not None
    apart, _ = alone(module, function_of(kernel), copy)
    try:
        choice = choice_for(copy, copy.schedule, machine_of(apart))
    except (PassFailedException, TreadleError):
        return inf
    return choice.estimate.time_us
