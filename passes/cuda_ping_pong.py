"""Let the consumer warpgroups of a block take turns at starting products, so that one computes while another's run."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.cost.timing.ping_pong import turns_of
from treadle.compiler.errors import InternalError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._decisions import decide
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import check_lowered, lowered_kernels
from treadle.passes.warps.laws import Reason
from treadle.passes.warps.ping_pong import Runs, bracket, runs_of, take_turns

LAW = "all warpgroups take as many turns, and products keep their order within each"


@dataclass(frozen=True)
class CudaPingPongPass(ModulePass):
    """Let the consumer warpgroups of a block take turns at starting products (FlashAttention-3, arXiv 2407.08608,
    section 3.1: ping-pong scheduling).

    Warpgroups that begin together wait for their products together, and then compute together, while the tensor cores
    stand still. In turns, a warpgroup starts the products of its step, hands the turn on, and computes while those of
    the others run. A run of products is what a step of a loop starts without computing numbers in between; a run at the
    end of a step goes on with that at the start of the next. Before a run a warpgroup waits for its turn, and after it
    the next warpgroup has it, at a named barrier of each.

    Legal for any loop of two or more consumer warpgroups: the turn changes nothing that is computed, and everybody gets
    it if all take as many turns. They do where nothing but sizes and numbers of blocks decides how often the loops
    around run, which the pass asks for; the static check then walks each warpgroup with the barriers of the rings. It
    takes place where the schedule of a step (`cost/timing/ping_pong.py`) is a twentieth shorter in turns, or where it
    is asked for; else the pass declines and says why.

    Before:
    ```
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:8:16]>
    #sums = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:8:16]>
    #Q_boxes = #cuda.boxes<extents = [128, 64], span = 64>
    #K_boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<128x64xf16, #diagram.array<[q, d], level = shared, layout = #Q_boxes>>
    !K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #K_boxes>>
    !s = tensor<128x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    !l = tensor<128xf32, #diagram.array<[q], level = register, layout = #sums>>
    cuda.kernel @sums (%x: index) threads 384 shared 24576 {
      %Q_shared = cuda.shared at 0 : !Q
      %K_shared = cuda.shared at 16384 : !K
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      cuda.roles registers 0, 0 producer {
      } consumers 2 {
        %none = diagram.fill 0.000000e+00 : f32 -> !l
        %l = scf.for %x0 = %zero to %x step %piece iter_args(%l_so_far = %none) -> (!l) {
          %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
          %S = cuda.warpgroup_wait %S_started pending 0 : !s
          %P = diagram.map (%score = %S : !s) -> !s {
            %power = math.exp2 %score : f32
            diagram.yield %power : f32
          }
          %l_new = diagram.reduce add %P over [x] into %l_so_far {partial} : !s -> !l
          scf.yield %l_new : !l
        }
      }
    }
    func.func @host(%x: index) {
      cuda.launch @sums grid %x aligned %x (%x) : index
      func.return
    }
    ```

    After:
    ```
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:8:16]>
    #sums = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:8:16]>
    #Q_boxes = #cuda.boxes<extents = [128, 64], span = 64>
    #K_boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<128x64xf16, #diagram.array<[q, d], level = shared, layout = #Q_boxes>>
    !K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #K_boxes>>
    !s = tensor<128x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    !l = tensor<128xf32, #diagram.array<[q], level = register, layout = #sums>>
    cuda.kernel @sums (%x: index) threads 384 shared 24576 {
      %Q_shared = cuda.shared at 0 : !Q
      %K_shared = cuda.shared at 16384 : !K
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      cuda.roles registers 0, 0 producer {
      } consumers 2 {
        cuda.order_begin
        %none = diagram.fill 0.000000e+00 : f32 -> !l
        %l = scf.for %x0 = %zero to %x step %piece iter_args(%l_so_far = %none) -> (!l) {
          cuda.order_wait
          %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
          cuda.order_arrive
          %S = cuda.warpgroup_wait %S_started pending 0 : !s
          %P = diagram.map (%score = %S : !s) -> !s {
            %power = math.exp2 %score : f32
            diagram.yield %power : f32
          }
          %l_new = diagram.reduce add %P over [x] into %l_so_far {partial} : !s -> !l
          scf.yield %l_new : !l
        }
        cuda.order_end
      }
    }
    func.func @host(%x: index) attributes {derivation = [
        #hierarchy.step<"cuda-ping-pong", "@sums",
          "all warpgroups take as many turns, and products keep their order within each",
          "a step of 2 warpgroups: 768 clocks side by side, 512 in turns">]} {
      cuda.launch @sums grid %x aligned %x (%x) : index
      func.return
    }
    ```
    """

    name = "cuda-ping-pong"

    turns: bool | None = None
    """Whether warpgroups take turns; by default where the schedule of a step says that it pays."""
    kernel: str = ""
    """The one kernel that is concerned; by default all are."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        if self.turns is False:
            return
        machine = machine_of(op)
        for kernel in lowered_kernels(op, self.kernel):
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or not launches or roles.consumer_groups.data < 2:
                continue
            step = self._try(kernel, roles, machine)
            if step is not None:
                record(function_of(launches[0]).attributes, [step])

    def _try(self, kernel: cuda.KernelOp, roles: cuda.RolesOp, machine: Machine) -> StepAttr | None:
        subject = f"@{kernel.sym_name.data}"
        found = [each for op in roles.consumers.walk() if isinstance(op, scf.ForOp) and (each := runs_of(op))]
        chosen = [each for each in found if isinstance(each, Runs)]
        if not chosen:
            reasons = [each for each in found if isinstance(each, Reason)]
            return StepAttr("decline cuda-ping-pong", subject, reasons[0].law, reasons[0].fact) if reasons else None
        groups = roles.consumer_groups.data
        clocks = [turns_of(each.loop, groups, machine) for each in chosen]
        told = f"a step of {groups} warpgroups: {', or '.join(dict.fromkeys(map(str, clocks)))}"
        pays = {found.pays for found in clocks}
        if len(pays) == 1 and self.turns is None:
            decide(kernel, turns=pays.pop())
        chosen = [each for each, found in zip(chosen, clocks, strict=True) if self.turns or found.pays]
        if not chosen:
            return StepAttr("decline cuda-ping-pong", subject, "taking turns saves a twentieth of a step", told)
        for each in chosen:
            take_turns(each)
        bracket(roles.consumers.block)
        if problems := ring_problems(kernel):
            raise InternalError(f"{subject}: {problems[0]}")
        return StepAttr("cuda-ping-pong", subject, LAW, told)
