"""Let a turn take its powers from the maximum of the turns before, and look afterwards whether that was right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.machines import Machine, machine_of
from treadle.dialects import cuda
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._functions import function_of, label, launches_of_kernel
from treadle.passes._levels import check_lowered
from treadle.passes.speculation.law import Speculation, speculation
from treadle.passes.speculation.registers import Registers, needed_registers
from treadle.passes.speculation.rewrite import speculate
from treadle.passes.warps.laws import Reason

LAW = "powers whose sum is within the slack are told from a maximum within the slack"


@dataclass(frozen=True)
class CudaSpeculatePass(ModulePass):
    """Let a turn take its powers from the maximum of the turns before, and look afterwards whether that was right.

    Powers wait for the maximum of their turn: for a comparison of each score, and two rounds of shuffles. But where
    a maximum may lag (`hierarchy-rescale-lazily`), that of most turns changes nothing. So a turn takes its powers
    from the maximum that the stream keeps, while its scores stay in registers, and adds up those of each lane. No
    power is below zero, so none is above that sum. If the sums of all lanes of a warp are at most 2 to what powers
    may grow by, no score is above the kept maximum by more than the slack: the stream would keep it, and the turn
    is done. Else, or if a sum is no number, the warp (`cuda.exceeds`, one vote) finds the maximum and makes the
    turn's powers anew.

    What is told from the maximum alone (slopes, offsets) goes from turn to turn. Of a maximum that may not lag, as
    minus infinity, no number, or one so large that powers have another slope, the offset that goes on is minus
    infinity: every power is then infinite or no number, and the turn is made anew.

    Legal if one maximum lags in the loop, which the stream keeps and nothing else reads; if powers of just its
    scores are added up, `exp2(slope s - offset)` with the slope times the kept maximum for an offset, which nothing
    but powers is told from; and if all that is told from the maximum is told from what the stream keeps of it. It
    is done if a warp finds its maximum by itself, if products of warpgroups run meanwhile, and if registers hold a
    turn's scores beside its powers and leave as many blocks on a multiprocessor as without, which the kernel then
    states (`resident`). Of the loops that a condition parts it is done in those whose turns test their elements
    least: others are few. What the maximum moved by, `exp2(c (before - now))`, is one if it stays.

    States that are made of powers have two arrays (`side_by_side`): products still read that of the turn before.

    Before:
    ```
    #rows = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #powers = #cuda.layout<register = [x:4:16, x:2:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #sums = #cuda.layout<register = [e:8:8, q:2:8, e:2:1], lane = [q:8:1, e:4:2], warp = [q:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
    !K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
    !V = memref<64x64xf16, #diagram.array<[x, e], level = shared, layout = #boxes>>
    !m = tensor<64xf32, #diagram.array<[q], level = register, layout = #rows>>
    !s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    !p = tensor<64x64xf16, #diagram.array<[q, x], level = register, layout = #powers>>
    !o = tensor<64x64xf32, #diagram.array<[q, e], level = register, layout = #sums>>
    cuda.kernel @sums (%x: index) threads 256 shared 24576 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      %Q_shared = cuda.shared at 0 : !Q
      %K_shared = cuda.shared at 8192 : !K
      %V_shared = cuda.shared at 16384 : !V
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %m_none = diagram.fill 0xFF800000 : f32 -> !m
        %l_none = diagram.fill 0.0 : f32 -> !m
        %O_none = diagram.fill 0.0 : f32 -> !o
        %P_none = diagram.fill 0.0 : f16 -> !p
        %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece
            iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none)
            -> (!m, !m, !o, !p) {
          %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
          %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
          %S = cuda.warpgroup_wait %S_started pending 1 : !s
          %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
          %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
            %growth = arith.subf %new, %before : f32
            %slack = arith.constant 8.0 : f32
            %is_near = arith.cmpf ole, %growth, %slack : f32
            %size = math.absf %before : f32
            %fine = arith.constant 8388608.0 : f32
            %is_fine = arith.cmpf olt, %size, %fine : f32
            %stays = arith.andi %is_near, %is_fine : i1
            %kept = arith.select %stays, %before, %new : f32
            diagram.yield %kept : f32
          }
          %offset = diagram.map (%kept = %m_kept : !m) -> !m {
            %slope = arith.constant 1.0 : f32
            %product = arith.mulf %kept, %slope : f32
            diagram.yield %product : f32
          }
          %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
            %slope = arith.constant 1.0 : f32
            %less = arith.negf %from : f32
            %exponent = math.fma %score, %slope, %less : f32
            %power = math.exp2 %exponent : f32
            diagram.yield %power : f32
          }
          %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
            %move = arith.subf %before, %kept : f32
            %factor = math.exp2 %move : f32
            diagram.yield %factor : f32
          }
          %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
            %product = arith.mulf %sum, %factor : f32
            diagram.yield %product : f32
          }
          %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
          %P16 = diagram.cast %P : !s -> !p
          %O = cuda.warpgroup_wait %O_started pending 0 : !o
          %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
            %product = arith.mulf %sum, %factor : f32
            diagram.yield %product : f32
          }
          scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
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
    #rows = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #powers = #cuda.layout<register = [x:4:16, x:2:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #sums = #cuda.layout<register = [e:8:8, q:2:8, e:2:1], lane = [q:8:1, e:4:2], warp = [q:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
    !K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
    !V = memref<64x64xf16, #diagram.array<[x, e], level = shared, layout = #boxes>>
    !m = tensor<64xf32, #diagram.array<[q], level = register, layout = #rows>>
    !s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    !p = tensor<64x64xf16, #diagram.array<[q, x], level = register, layout = #powers>>
    !o = tensor<64x64xf32, #diagram.array<[q, e], level = register, layout = #sums>>
    cuda.kernel @sums (%x: index) threads 256 shared 24576 resident 2 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      %Q_shared = cuda.shared at 0 : !Q
      %K_shared = cuda.shared at 8192 : !K
      %V_shared = cuda.shared at 16384 : !V
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %m_none = diagram.fill 0xFF800000 : f32 -> !m
        %l_none = diagram.fill 0.0 : f32 -> !m
        %O_none = diagram.fill 0.0 : f32 -> !o
        %P_none = diagram.fill 0.0 : f16 -> !p
        %offset = diagram.map (%kept = %m_none : !m) -> !m {
          %slope = arith.constant 1.0 : f32
          %product = arith.mulf %kept, %slope : f32
          diagram.yield %product : f32
        }
        %offset_kept = diagram.map (%m_none_1 = %m_none : !m, %offset_1 = %offset : !m) -> !m {
          %0 = math.absf %m_none_1 : f32
          %1 = arith.constant 8388608.0 : f32
          %2 = arith.cmpf olt, %0, %1 : f32
          %3 = arith.constant 0xFF800000 : f32
          %4 = arith.select %2, %offset_1, %3 : f32
          diagram.yield %4 : f32
        }
        %m, %l, %O_sum, %P_last, %0 = scf.for %x0 = %zero to %x step %piece
            iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none,
                  %offset_kept_1 = %offset_kept)
            -> (!m, !m, !o, !p, !m) {
          %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
          %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
          %S = cuda.warpgroup_wait %S_started pending 1 : !s
          %P = diagram.map (%score = %S : !s, %from = %offset_kept_1 : !m) -> !s {
            %slope = arith.constant 1.0 : f32
            %less = arith.negf %from : f32
            %exponent = math.fma %score, %slope, %less : f32
            %power = math.exp2 %exponent : f32
            diagram.yield %power : f32
          }
          %l_new = diagram.reduce add %P over [x] {partial} : !s -> !m
          %P16 = diagram.cast %P : !s -> !p
          %moved_one = diagram.fill 1.0 : f32 -> !m
          %grown = cuda.exceeds %l_new limit 256.0 : !m
          %m_kept, %moved, %l_new_1, %P16_1, %offset_1 = scf.if %grown -> (!m, !m, !m, !p, !m) {
            %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
            %m_kept_1 = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
              %growth = arith.subf %new, %before : f32
              %slack = arith.constant 8.0 : f32
              %is_near = arith.cmpf ole, %growth, %slack : f32
              %size = math.absf %before : f32
              %fine = arith.constant 8388608.0 : f32
              %is_fine = arith.cmpf olt, %size, %fine : f32
              %stays = arith.andi %is_near, %is_fine : i1
              %kept = arith.select %stays, %before, %new : f32
              diagram.yield %kept : f32
            }
            %offset_2 = diagram.map (%kept = %m_kept_1 : !m) -> !m {
              %slope = arith.constant 1.0 : f32
              %product = arith.mulf %kept, %slope : f32
              diagram.yield %product : f32
            }
            %P_1 = diagram.map (%score = %S : !s, %from = %offset_2 : !m) -> !s {
              %slope = arith.constant 1.0 : f32
              %less = arith.negf %from : f32
              %exponent = math.fma %score, %slope, %less : f32
              %power = math.exp2 %exponent : f32
              diagram.yield %power : f32
            }
            %moved_1 = diagram.map (%before = %m_before : !m, %kept = %m_kept_1 : !m) -> !m {
              %move = arith.subf %before, %kept : f32
              %factor = math.exp2 %move : f32
              diagram.yield %factor : f32
            }
            %l_new_2 = diagram.reduce add %P_1 over [x] {partial} : !s -> !m
            %P16_2 = diagram.cast %P_1 : !s -> !p
            %offset_kept_2 = diagram.map (%m_kept_2 = %m_kept_1 : !m, %offset_3 = %offset_2 : !m) -> !m {
              %1 = math.absf %m_kept_2 : f32
              %2 = arith.constant 8388608.0 : f32
              %3 = arith.cmpf olt, %1, %2 : f32
              %4 = arith.constant 0xFF800000 : f32
              %5 = arith.select %3, %offset_3, %4 : f32
              diagram.yield %5 : f32
            }
            scf.yield %m_kept_1, %moved_1, %l_new_2, %P16_2, %offset_kept_2 : !m, !m, !m, !p, !m
          } else {
            scf.yield %m_before, %moved_one, %l_new, %P16, %offset_kept_1 : !m, !m, !m, !p, !m
          }
          %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
            %product = arith.mulf %sum, %factor : f32
            diagram.yield %product : f32
          }
          %l_new_3 = diagram.map (%l_repaired_1 = %l_repaired : !m, %l_new_4 = %l_new_1 : !m) -> !m {
            %1 = arith.addf %l_repaired_1, %l_new_4 : f32
            diagram.yield %1 : f32
          }
          %O = cuda.warpgroup_wait %O_started pending 0 : !o
          %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
            %product = arith.mulf %sum, %factor : f32
            diagram.yield %product : f32
          }
          scf.yield %m_kept, %l_new_3, %O_repaired, %P16_1, %offset_1 : !m, !m, !o, !p, !m
        } {side_by_side = array<i64: 3>}
      }
    }
    func.func @host(%x: index) attributes {derivation = [
        #hierarchy.step<"cuda-speculate", "@sums",
          "powers whose sum is within the slack are told from a maximum within the slack",
          "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">]} {
      cuda.launch @sums grid %x aligned %x (%x) : index
      func.return
    }
    ```
    """

    name = "cuda-speculate"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        machine = machine_of(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or not launches:
                continue
            steps = list(_speculate(kernel, roles, machine))
            if steps:
                record(function_of(launches[0]).attributes, steps)


def _speculate(kernel: cuda.KernelOp, roles: cuda.RolesOp, machine: Machine) -> Iterator[StepAttr]:
    subject, registers = f"@{kernel.sym_name.data}", Registers(kernel, roles, machine)
    loops = [inner for inner in roles.consumers.walk() if isinstance(inner, scf.ForOp)]
    every = [each for loop in loops if (each := _decided(loop, registers)) is not None]
    found = [each for each in every if isinstance(each, Speculation)]
    fewest = min((each.tests for each in found), default=0)  # of the turns that are whole, where others are cut
    most = max((needed_registers(each) for each in found if each.tests == fewest), default=0)
    for each in every:
        if isinstance(each, Reason):
            yield StepAttr("decline cuda-speculate", subject, each.law, each.fact)
        elif each.tests > fewest:
            fact = f"%{each.extremum.operand.name_hint} has absent elements in each turn of its loop"
            yield StepAttr(
                "decline cuda-speculate", subject, "turns that conditions cut are few where they are peeled", fact
            )
        else:
            told = _told(each, registers.blocks(most))
            speculate(each)
            yield StepAttr("cuda-speculate", subject, LAW, told)
    if most:
        registers.state(most)


def _decided(loop: scf.ForOp, registers: Registers) -> Speculation | Reason | None:
    found = speculation(loop)
    return found if not isinstance(found, Speculation) else registers.why_not(found) or found


def _told(found: Speculation, blocks: int) -> str:
    power, extremum = label(found.sum.operand), label(found.extremum.result)
    several = f", {blocks} blocks on an SM" if blocks > 1 else ""
    return (
        f"{power} before {extremum} is known, again where a lane's sum is above {found.limit:g}; "
        f"{needed_registers(found)} registers{several}"
    )
