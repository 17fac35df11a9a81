"""Let one piece of a persistent grid begin while another ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import InternalError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import check_lowered
from treadle.passes.grids.apart import LAW_APART, leave_apart, why_not_apart
from treadle.passes.grids.behind import LAW_BEHIND, bring_behind
from treadle.passes.grids.early import LAW, bring_early, why_not_early
from treadle.passes.grids.held import Held, held_of, loop_of_pieces
from treadle.passes.grids.two_places import LAW as LAW_OF_TWO
from treadle.passes.grids.two_places import hold_in_two, why_not_two
from treadle.passes.warps.laws import Reason


@dataclass(frozen=True)
class CudaOverlapPiecesPass(ModulePass):
    """Let one piece of a block begin while another ends, where blocks take several one after another.

    What a piece holds has one place, to which the producer brings that of the next when the consumers have given it
    back: behind all their loops, and behind it stands all else that it brings. Results leave through a tile around
    which all warpgroups meet, so that one that is ahead waits for the others. Meanwhile no product runs. So:

    - What pieces hold has two places, if shared memory has room for both beside as many blocks, so that the producer
      brings that of the next piece while this one is computed (`passes/grids/two_places.py`). Legal always: turn by
      turn, which are pieces, its ring takes one and the other. Each warp gives a place back for itself.
    - Else it comes when the last product of a piece has read it (`passes/grids/early.py`). Legal if all that reads it
      are products with a turn of one ring each. When that ring has its last turn of the piece back, all of these are
      done; so the producer waits for that, and the consumers give the tile itself back no more. It comes behind those
      turns of the ring whose places are free before. A piece that has no turn of the ring has no such product, and its
      tile is not brought.
    - What pieces read behind their loops alone is brought behind what the loops read (`passes/grids/behind.py`). Legal
      always: the order in which a producer brings tiles of different rings is its own, if none is awaited before one
      that comes later.
    - Each warpgroup sends its own rows of a result (`passes/grids/apart.py`). Legal if it has written just those: rows
      of warpgroups are shares of the boxes of tensor copies. Then it fences, meets among itself, sends them, and waits
      before it writes there again.

    Each takes place wherever it is legal: none of them adds an instruction to a turn of a loop. The model counts what
    is lost between pieces (`compiler/cost/timing/between.py`).

    Before:
    ```
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
    !K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
    !Q_map = !cuda.tensor_map<[64, 64], !Q>
    !K_map = !cuda.tensor_map<[64, 64], !K>
    !Qs = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
    !Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
    !s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    cuda.kernel @scores (%Q_map: !Q_map, %K_map: !K_map, %pieces: index) threads 256 shared 24624 {
      %Q_shared = cuda.shared at 0 : !Qs
      %K_shared = cuda.shared at 8192 stages 2 : !Ks
      %Q_ring = cuda.ring at 24576 consumers 1 : !cuda.ring<1>
      %K_ring = cuda.ring at 24592 consumers 1 : !cuda.ring<2>
      %block = cuda.block_index
      %blocks = cuda.grid_size
      %none = arith.constant 0 : index
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %rows = arith.constant 64 : index
      %turns = arith.constant 16 : index
      cuda.ready %Q_ring, %K_ring : !cuda.ring<1>, !cuda.ring<2>
      cuda.roles registers 0, 0 producer {
        %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks
            iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
          %q0 = arith.muli %number, %rows : index
          %Q_turn = arith.addi %none, %Q_done : index
          cuda.acquire %Q_ring[%Q_turn] : !cuda.ring<1>
          cuda.expect %Q_ring[%Q_turn] bytes 8192 : !cuda.ring<1>
          cuda.tensor_load %Q_map[%q0, %none] into %Q_shared signals %Q_ring[%Q_turn] : !Q_map, !Qs, !cuda.ring<1>
          scf.for %k = %none to %turns step %one {
            %x0 = arith.muli %k, %rows : index
            %K_turn = arith.addi %k, %K_done : index
            %stage = arith.remui %K_turn, %two : index
            %K_to = cuda.stage %K_shared[%stage] : !Ks
            cuda.acquire %K_ring[%K_turn] : !cuda.ring<2>
            cuda.expect %K_ring[%K_turn] bytes 8192 : !cuda.ring<2>
            cuda.tensor_load %K_map[%x0, %none] into %K_to signals %K_ring[%K_turn] : !K_map, !Ks, !cuda.ring<2>
          }
          %Q_next = arith.addi %Q_done, %one : index
          %K_next = arith.addi %K_done, %turns : index
          scf.yield %Q_next, %K_next : index, index
        } {narrow}
      } consumers 1 {
        %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks
            iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
          %Q_turn = arith.addi %none, %Q_done : index
          cuda.await %Q_ring[%Q_turn] : !cuda.ring<1>
          scf.for %k = %none to %turns step %one {
            %K_turn = arith.addi %k, %K_done : index
            cuda.await %K_ring[%K_turn] : !cuda.ring<2>
            %stage = arith.remui %K_turn, %two : index
            %K_now = cuda.stage %K_shared[%stage] : !Ks
            %S_started = cuda.warpgroup_product %Q_shared, %K_now over [d] : !Qs, !Ks -> !s
            %S = cuda.warpgroup_wait %S_started pending 0 : !s
            cuda.release %K_ring[%K_turn] : !cuda.ring<2>
          }
          cuda.release %Q_ring[%Q_turn] : !cuda.ring<1>
          %Q_next = arith.addi %Q_done, %one : index
          %K_next = arith.addi %K_done, %turns : index
          scf.yield %Q_next, %K_next : index, index
        } {narrow}
      }
    }
    func.func @host(%Q: !Q, %K: !K, %pieces: index) {
      %Q_map = cuda.tensor_map %Q : !Q_map
      %K_map = cuda.tensor_map %K : !K_map
      cuda.launch @scores grid %pieces aligned %pieces (%Q_map, %K_map, %pieces) : !Q_map, !K_map, index
      func.return
    }
    ```

    After:
    ```
    #scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !Q = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
    !K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
    !Q_map = !cuda.tensor_map<[64, 64], !Q>
    !K_map = !cuda.tensor_map<[64, 64], !K>
    !Qs = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
    !Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
    !s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
    cuda.kernel @scores (%Q_map: !Q_map, %K_map: !K_map, %pieces: index) threads 256 shared 32832 {
      %Q_shared = cuda.shared at 0 stages 2 : !Qs
      %K_shared = cuda.shared at 16384 stages 2 : !Ks
      %Q_ring = cuda.ring at 32768 consumers 1 by warps : !cuda.ring<2>
      %K_ring = cuda.ring at 32800 consumers 1 : !cuda.ring<2>
      %block = cuda.block_index
      %blocks = cuda.grid_size
      %none = arith.constant 0 : index
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %rows = arith.constant 64 : index
      %turns = arith.constant 16 : index
      cuda.ready %Q_ring, %K_ring : !cuda.ring<2>, !cuda.ring<2>
      cuda.roles registers 0, 0 producer {
        %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks
            iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
          %q0 = arith.muli %number, %rows : index
          %Q_turn = arith.addi %none, %Q_done : index
          %both = arith.constant 2 : index
          %Q_stage = arith.remui %Q_turn, %both {narrow} : index
          %Q_to = cuda.stage %Q_shared[%Q_stage] : !Qs
          cuda.acquire %Q_ring[%Q_turn] : !cuda.ring<2>
          cuda.expect %Q_ring[%Q_turn] bytes 8192 : !cuda.ring<2>
          cuda.tensor_load %Q_map[%q0, %none] into %Q_to signals %Q_ring[%Q_turn] : !Q_map, !Qs, !cuda.ring<2>
          scf.for %k = %none to %turns step %one {
            %x0 = arith.muli %k, %rows : index
            %K_turn = arith.addi %k, %K_done : index
            %stage = arith.remui %K_turn, %two : index
            %K_to = cuda.stage %K_shared[%stage] : !Ks
            cuda.acquire %K_ring[%K_turn] : !cuda.ring<2>
            cuda.expect %K_ring[%K_turn] bytes 8192 : !cuda.ring<2>
            cuda.tensor_load %K_map[%x0, %none] into %K_to signals %K_ring[%K_turn] : !K_map, !Ks, !cuda.ring<2>
          }
          %Q_next = arith.addi %Q_done, %one : index
          %K_next = arith.addi %K_done, %turns : index
          scf.yield %Q_next, %K_next : index, index
        } {narrow}
      } consumers 1 {
        %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks
            iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
          %Q_turn = arith.addi %none, %Q_done : index
          %both = arith.constant 2 : index
          %Q_stage = arith.remui %Q_turn, %both {narrow} : index
          %Q_now = cuda.stage %Q_shared[%Q_stage] : !Qs
          cuda.await %Q_ring[%Q_turn] : !cuda.ring<2>
          scf.for %k = %none to %turns step %one {
            %K_turn = arith.addi %k, %K_done : index
            cuda.await %K_ring[%K_turn] : !cuda.ring<2>
            %stage = arith.remui %K_turn, %two : index
            %K_now = cuda.stage %K_shared[%stage] : !Ks
            %S_started = cuda.warpgroup_product %Q_now, %K_now over [d] : !Qs, !Ks -> !s
            %S = cuda.warpgroup_wait %S_started pending 0 : !s
            cuda.release %K_ring[%K_turn] : !cuda.ring<2>
          }
          cuda.release %Q_ring[%Q_turn] : !cuda.ring<2>
          %Q_next = arith.addi %Q_done, %one : index
          %K_next = arith.addi %K_done, %turns : index
          scf.yield %Q_next, %K_next : index, index
        } {narrow}
      }
    }
    func.func @host(%Q: !Q, %K: !K, %pieces: index) attributes {derivation = [
        #hierarchy.step<"cuda-overlap-pieces", "@scores",
          "a turn of a ring is its own place until its consumers give it back",
          "%Q_shared has two places, a piece's and the next one's">]} {
      %Q_map = cuda.tensor_map %Q : !Q_map
      %K_map = cuda.tensor_map %K : !K_map
      cuda.launch @scores grid %pieces aligned %pieces (%Q_map, %K_map, %pieces) : !Q_map, !K_map, index
      func.return
    }
    ```
    """

    name = "cuda-overlap-pieces"

    twice: bool = True
    """Whether what a piece holds has two places, where shared memory has room."""
    early: bool = True
    """Whether what a piece holds comes while the one before it still computes."""
    apart: bool = True
    """Whether warpgroups send their results by themselves."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        machine = machine_of(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or not launches or loop_of_pieces(roles.consumers.block) is None:
                continue
            steps = [*self._held(kernel, roles, machine), *self._behind(roles), *self._apart(kernel, roles)]
            subject = f"@{kernel.sym_name.data}"
            name = "cuda-overlap-pieces"
            told = [StepAttr(name if done else f"decline {name}", subject, why.law, why.fact) for done, why in steps]
            record(function_of(launches[0]).attributes, told)
            if problems := ring_problems(kernel):
                raise InternalError(f"{subject}: {problems[0]}")

    def _held(self, kernel: cuda.KernelOp, roles: cuda.RolesOp, machine: Machine) -> Iterator[tuple[bool, Reason]]:
        """In two places where there is room, else early in one."""
        for held in list(held_of(roles)) if self.twice or self.early else ():
            if isinstance(held, Reason):
                yield False, held
                continue
            reason = why_not_two(kernel, roles, held, machine) if self.twice else None
            if self.twice and reason is None:
                hold_in_two(kernel, roles, held)
                yield True, Reason(LAW_OF_TWO, f"%{held.tile.name_hint} has two places, a piece's and the next one's")
                continue
            if reason is not None:
                yield False, reason
            yield from self._early(roles, held)

    def _early(self, roles: cuda.RolesOp, held: Held) -> Iterator[tuple[bool, Reason]]:
        if not self.early:
            return
        reason = why_not_early(held)
        if reason is None:
            assert held.beside is not None
            bring_early(roles, held)
            reason = Reason(LAW, f"%{held.tile.name_hint} comes with the turns of %{held.beside.name_hint}")
            yield True, reason
            return
        yield False, reason

    def _behind(self, roles: cuda.RolesOp) -> Iterator[tuple[bool, Reason]]:
        moved = bring_behind(roles) if self.early else []
        if moved:
            yield True, Reason(LAW_BEHIND, f"{' and '.join(moved)} turns behind those of loops")

    def _apart(self, kernel: cuda.KernelOp, roles: cuda.RolesOp) -> Iterator[tuple[bool, Reason]]:
        groups = roles.consumer_groups.data
        if not self.apart or groups < 2:
            return
        reason = why_not_apart(roles)
        if reason is None:
            leave_apart(kernel, roles)
        yield reason is None, reason or Reason(LAW_APART, f"{groups} warpgroups do not meet at the end of a piece")
