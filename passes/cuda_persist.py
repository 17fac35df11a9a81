"""Let a grid no larger than the machine take all pieces, one after another, so that one leaves while the next comes."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from treadle.compiler.cost.timing.tile_order import best_section, longest
from treadle.compiler.errors import InternalError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import blocks_that_share, turns_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._decisions import decide
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import check_lowered, lowered_kernels
from treadle.passes.grids.coordinates import number_of_unit
from treadle.passes.grids.persistent import Persistent, parts_for, why_not
from treadle.passes.grids.sharing import numbers_of_host, sharing
from treadle.passes.grids.tile_order import TileOrder, Told, check_section
from treadle.passes.warps.laws import Reason

SECOND = "a block takes a second piece where there are more pieces than processors"


@dataclass(frozen=True)
class CudaPersistPass(ModulePass):
    """Launch no more blocks than the machine has processors, or than share them: each role loops over the pieces of its
    block, and the producer brings the next piece while the consumers finish this one and it leaves.

    Legal if the turns of each ring that a piece takes can be counted before it, since turns then count on from piece to
    piece, and if what a piece leaves from has room of its own beside the stages: where the whole has none, the result
    leaves in 2, 4 or 8 parts through the room of one. Pieces are taken in any order (groups are independent): in
    sections of rows that stay in the L2 cache, and where pieces differ the longest first, dealt to blocks there and
    back so that all have about as much to do; both by the cost model (`cost/timing/tile_order.py`) or by the options.
    The pass declines, with its reason in the derivation, where that does not hold, where every block would have one
    piece, and where the model found that several blocks on an SM take less time (`compiler/cost/timing/turns.py`).

    Before:
    ```
    !A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
    !A_map = !cuda.tensor_map<[64, 64], !A>
    !As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
    cuda.kernel @read (%A_map: !A_map) threads 256 shared 8208 {
      %A_shared = cuda.shared at 0 : !As
      %A_ring = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
      %block = cuda.block_index
      %rows = arith.constant 64 : index
      %m0 = arith.muli %block, %rows : index
      %zero = arith.constant 0 : index
      cuda.ready %A_ring : !cuda.ring<1>
      cuda.roles registers 0, 0 producer {
        cuda.acquire %A_ring[%zero] : !cuda.ring<1>
        cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
        cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] : !A_map, !As, !cuda.ring<1>
      } consumers 1 {
        cuda.await %A_ring[%zero] : !cuda.ring<1>
        cuda.release %A_ring[%zero] : !cuda.ring<1>
      }
    }
    func.func @host(%A: !A) attributes {sizes = #diagram.sizes<m = 64000>} {
      %first = arith.constant 0 : index
      %m = memref.dim %A, %first : !A
      %piece = arith.constant 64 : index
      %blocks = arith.ceildivui %m, %piece : index
      %A_map = cuda.tensor_map %A : !A_map
      cuda.launch @read grid %blocks aligned %blocks (%A_map) : !A_map
      func.return
    }
    ```

    After:
    ```
    !A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
    !A_map = !cuda.tensor_map<[64, 64], !A>
    !As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
    cuda.kernel @read (%A_map: !A_map, %pieces: index) threads 256 shared 8208 {
      %A_shared = cuda.shared at 0 : !As
      %A_ring = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
      %block = cuda.block_index
      %blocks = cuda.grid_size
      %rows = arith.constant 64 : index
      %zero = arith.constant 0 : index
      cuda.ready %A_ring : !cuda.ring<1>
      %turns = arith.constant 1 : index
      cuda.roles registers 0, 0 producer {
        %none = arith.constant 0 : index
        %all_of_it = scf.for %number = %block to %pieces step %blocks iter_args(%A_ring_done = %none) -> (index) {
          %m0 = arith.muli %number, %rows : index
          %turn = arith.addi %zero, %A_ring_done : index
          cuda.acquire %A_ring[%turn] : !cuda.ring<1>
          %turn_1 = arith.addi %zero, %A_ring_done : index
          cuda.expect %A_ring[%turn_1] bytes 8192 : !cuda.ring<1>
          %turn_2 = arith.addi %zero, %A_ring_done : index
          cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%turn_2] : !A_map, !As, !cuda.ring<1>
          %next = arith.addi %A_ring_done, %turns : index
          scf.yield %next : index
        } {narrow}
      } consumers 1 {
        %none_1 = arith.constant 0 : index
        %all = scf.for %number_1 = %block to %pieces step %blocks iter_args(%A_ring_done_1 = %none_1) -> (index) {
          %m0_1 = arith.muli %number_1, %rows : index
          %turn_3 = arith.addi %zero, %A_ring_done_1 : index
          cuda.await %A_ring[%turn_3] : !cuda.ring<1>
          %turn_4 = arith.addi %zero, %A_ring_done_1 : index
          cuda.release %A_ring[%turn_4] : !cuda.ring<1>
          %next_1 = arith.addi %A_ring_done_1, %turns : index
          scf.yield %next_1 : index
        } {narrow}
      }
    }
    func.func @host(%A: !A) attributes {sizes = #diagram.sizes<m = 64000>, derivation = [
        #hierarchy.step<"cuda-persist", "@read",
          "groups are independent, and the turns of a ring count on from piece to piece",
          "108 blocks for 1,000 pieces">]} {
      %first = arith.constant 0 : index
      %m = memref.dim %A, %first : !A
      %piece = arith.constant 64 : index
      %blocks = arith.ceildivui %m, %piece : index
      %A_map = cuda.tensor_map %A : !A_map
      %processors = arith.constant 108 : index
      %grid = arith.minsi %blocks, %processors : index
      cuda.launch @read grid %grid aligned %blocks (%A_map, %blocks) : !A_map, index
      func.return
    }
    ```
    """

    name = "cuda-persist"

    section: int | None = None
    """Rows of pieces, or of clusters that lie along another axis than the last, that are taken together; by default
    what the cost model finds."""
    longest: Told | None = None
    """Which pieces of a row take longest, and so come first; by default what the copies of pieces tell."""
    turns: bool | None = None
    """Whether a block takes several pieces; by default as it was decided with the sizes, where that is known."""
    kernel: str = ""
    """The one kernel that is concerned; by default all are."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        check_section(self.section)
        machine = machine_of(op)
        for kernel in lowered_kernels(op, self.kernel):
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or len(launches) != 1:
                continue
            function = function_of(launches[0])
            record(function.attributes, [self._try(kernel, roles, launches[0], machine)])

    def _try(self, kernel: cuda.KernelOp, roles: cuda.RolesOp, launch: cuda.LaunchOp, machine: Machine) -> StepAttr:
        subject = f"@{kernel.sym_name.data}"
        found = numbers_of_host(function_of(launch))
        pieces = found.get(launch.grid)
        limit, at_a_time = int(machine.shared_of_block(blocks_that_share(kernel))), _at_a_time(kernel, machine)
        reason = why_not(kernel, roles, limit) or self._why_one_each(pieces, kernel, machine)
        if reason is not None:
            return StepAttr("decline cuda-persist", subject, reason.law, reason.fact)
        arguments = zip(kernel.body.block.args, launch.arguments, strict=True)
        order = self._order(kernel, {arg: found[given] for arg, given in arguments if given in found}, pieces, machine)
        decide(kernel, section=order.section, longest=order.told)
        stores = [op for op in roles.consumers.walk() if isinstance(op, cuda.TensorStoreOp)]
        parts = parts_for(kernel, stores, limit)
        assert parts is not None
        Persistent(kernel, roles, order, parts).run()
        if problems := ring_problems(kernel):
            raise InternalError(f"{subject}: {problems[0]}")
        _launch_fewer(launch, at_a_time)
        law = "groups are independent, and the turns of a ring count on from piece to piece"
        many = "all" if pieces is None else f"{pieces:,}"
        told = f"{at_a_time} blocks for {many} pieces{_told(order, kernel)}"
        return StepAttr("cuda-persist", subject, law, told + (f"; results leave in {parts} parts" if parts > 1 else ""))

    def _why_one_each(self, pieces: int | None, kernel: cuda.KernelOp, machine: Machine) -> Reason | None:
        """Why each piece is to have a block of its own, though blocks could take several."""
        if self.turns is not None:
            asked = Reason("each piece may have a block of its own", "so it was asked for: turns=false")
            return _only(kernel) if self.turns else asked
        reason = _too_few(pieces, kernel, machine) or _decided(kernel) or _only(kernel)
        if turns_of(kernel) is None or pieces is None:
            decide(kernel, turns=reason is None)
        return reason

    def _order(
        self,
        kernel: cuda.KernelOp,
        arguments: dict[SSAValue, int],
        pieces: int | None,
        machine: Machine,
    ) -> TileOrder:
        shared = None if pieces is None else sharing(kernel, arguments, pieces, _at_a_time(kernel, machine))
        section, first = self.section, self.longest
        if shared is not None:
            section = best_section(shared, machine.levels["l2"].capacity) if section is None else section
            first = longest(shared) if first is None else first
        is_numbered = isinstance(number_of_unit(kernel), cuda.ClusterIndexOp)
        return TileOrder(section or 1, None if first == "none" else first, 1 if is_numbered else kernel.cluster)


def _at_a_time(kernel: cuda.KernelOp, machine: Machine) -> int:
    """Blocks that run at a time: one on each processor, or as many as share it."""
    return machine.blocks_at_a_time(kernel.cluster) * blocks_that_share(kernel)


def _decided(kernel: cuda.KernelOp) -> Reason | None:
    """Whether it was decided with the sizes that each piece has a block of its own."""
    if turns_of(kernel) != 0:
        return None
    return Reason("each piece may have a block of its own", "so it was decided with the sizes: turns = 0")


def _too_few(pieces: int | None, kernel: cuda.KernelOp, machine: Machine) -> Reason | None:
    """Turns that were decided stay, for few pieces as well: a derivation makes the same kernel at any size."""
    if pieces is None:
        return Reason(SECOND, "how many pieces there are is not known")
    fits = not turns_of(kernel) and pieces <= machine.sms
    return Reason(SECOND, f"{pieces} pieces, {machine.sms} processors") if fits else None


def _only(kernel: cuda.KernelOp) -> Reason | None:
    """Whether no block asks which piece it has."""
    return (
        None if number_of_unit(kernel) is not None else Reason(SECOND, "there is one piece, whatever a launch brings")
    )


def _told(order: TileOrder, kernel: cuda.KernelOp) -> str:
    rows = "rows of clusters" if isinstance(number_of_unit(kernel), cuda.ClusterIndexOp) else "rows"
    section = f", in sections of {order.section} {rows}" if order.section > 1 else ""
    return section + (", the longest first and dealt there and back" if order.longest else "")


def _launch_fewer(launch: cuda.LaunchOp, processors: int) -> None:
    """At most a block a processor; the kernel is told how many pieces there are."""
    count = arith.ConstantOp.from_int_and_width(processors, IndexType())
    grid = arith.MinSIOp(launch.grid, count.result)
    grid.result.name_hint = "grid"
    new = cuda.LaunchOp(
        launch.kernel.root_reference.data, grid.result, launch.alignment, [*launch.arguments, launch.grid]
    )
    new.location = launch.location
    Rewriter.replace_op(launch, [count, grid, new], [])
