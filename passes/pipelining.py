"""Copy the next pieces of a stream while this one is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.levels.memory import POSITION_STAGES, STAGES
from treadle.compiler.errors import InternalError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.machines.machine import FIRST_WITH_ASYNCHRONOUS_COPIES
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.shared import place_tiles
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._levels import check_lowered
from treadle.passes.loops.carry import delay_products
from treadle.passes.loops.in_flight import let_products_run
from treadle.passes.loops.in_place import phases_of
from treadle.passes.loops.load_ahead import MOST_WORDS, loads_to_move, move_ahead
from treadle.passes.loops.meet_anew import meet_anew
from treadle.passes.loops.staged_copies import CopiesInPlace, StagedCopies, movable_copies
from treadle.passes.loops.without_products import copy_ahead, recurs, ways_of


@dataclass(frozen=True)
class PipeliningPass(ModulePass):
    """Make the copies to shared memory of a stream's loop asynchronous, so many stages ahead of their use.

    Each tile that the loop copies gets `stages` places. Before the loop the first `stages - 1` pieces are asked for;
    every turn waits for its own piece, meets, asks for the piece `stages - 1` turns ahead, whose place the turn before
    has left, and computes. Copies that stand before the loop become asynchronous, too, and older than all of these.
    Copies after it, of a last piece, are waited for at the next barrier.

    Legal if the place of every copy depends on nothing that the loop computes but its own position: then a copy may
    move ahead of the turns before it. A wait counts groups, so each turn closes one, empty or not. The one barrier a
    turn orders both the arrival of its piece and the end of the reads of the place that it overwrites.

    Where the stages would not fit into a block's shared memory, and a turn reads its tiles one after another, each has
    one place and comes while the others are read (`passes/loops/in_place.py`): before it reads a tile the block waits
    for that one, meets, and asks for the one before. Asynchronous copies are declined below sm_80, and where a turn
    without room for stages reads all tiles at a time.

    What a turn loads to registers and needs before its first product is loaded in the turn before
    (`passes/loops/load_ahead.py`), right after the last use of what that turn has itself; the first piece is loaded
    before the loop. Legal on the same condition, and declined where a thread would hold more than 32 registers ahead.

    Of a kernel without products, a turn that meets begins with the loads of the next one, if as many blocks have the
    registers; else its loads become such copies, if as many have the shared memory, or it is declined with the numbers
    (`passes/loops/without_products.py`).

    In a kernel with roles copies are ahead already. There a product that only feeds the state of the stream is delayed
    by one turn (`passes/loops/delay.py`): a turn starts its own first product and the product of the turn before, waits
    for its own alone, and has the other's sum where it repairs the state; the last product stands after the loop. Where
    conditions part a stream into loops of whole pieces and of pieces that are tested, the product is carried from loop
    to loop (`passes/loops/carry.py`): the first turn of one starts the last product of another. Legal if a loop begins
    with the states and the turn of the ring with which the other ends. Then the first turn that there is, of whichever
    loop has one, stands before all of them, and the last product after all. Where a turn does nothing but products that
    add to its states, they run on into the next turn, which starts its own before it waits for them
    (`passes/loops/in_flight.py`).

    Before:
    ```
    #rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
    !K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
    !Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #rows>>
    #fragment = #cuda.layout<register = [x:8:8, d:16:4], lane = [x:8:1, d:4:1], warp = []>
    !f = tensor<64x64xf16, #diagram.array<[x, d], level = register, layout = #fragment>>
    cuda.kernel @step_kernel (%K: !K, %x: index) threads 32 shared 8192 {
      %K_shared = cuda.shared at 0 : !Ks
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      scf.for %x0 = %zero to %x step %piece {
        cuda.barrier
        cuda.copy %K[%x0, %zero] into %K_shared : !K, !Ks
        cuda.barrier
        %f = cuda.read %K_shared : !Ks -> !f
      }
    }
    ```

    After:
    ```
    #rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
    #fragment = #cuda.layout<register = [x:8:8, d:16:4], lane = [x:8:1, d:4:1], warp = []>
    !Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #rows>>
    !K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
    !f = tensor<64x64xf16, #diagram.array<[x, d], level = register, layout = #fragment>>
    cuda.kernel @step_kernel (%K: !K, %x: index) threads 32 shared 16384 {
      %K_shared = cuda.shared at 0 stages 2 : !Ks
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      cuda.commit
      %ahead = arith.constant 0 : index
      %x0_ahead = arith.addi %zero, %ahead : index
      %is_there = arith.cmpi ult, %x0_ahead, %x : index
      scf.if %is_there {
        %place = arith.constant 0 : index
        %K_ahead = cuda.stage %K_shared[%place] : !Ks
        cuda.copy async %K[%x0_ahead, %zero] into %K_ahead : !K, !Ks
      }
      cuda.commit
      scf.for %x0 = %zero to %x step %piece {
        %turn = arith.divui %x0, %piece : index
        %stages = arith.constant 2 : index
        %stage = arith.remui %turn, %stages : index
        cuda.wait pending 0
        cuda.barrier
        %ahead_1 = arith.constant 64 : index
        %x0_ahead_1 = arith.addi %x0, %ahead_1 : index
        %is_there_1 = arith.cmpi ult, %x0_ahead_1, %x : index
        scf.if %is_there_1 {
          %0 = arith.constant 1 : index
          %1 = arith.addi %turn, %0 : index
          %place_1 = arith.remui %1, %stages : index
          %K_ahead_1 = cuda.stage %K_shared[%place_1] : !Ks
          cuda.copy async %K[%x0_ahead_1, %zero] into %K_ahead_1 : !K, !Ks
        }
        cuda.commit
        %K_now = cuda.stage %K_shared[%stage] : !Ks
        %f = cuda.read %K_now : !Ks -> !f
      } {pipelined}
      cuda.wait pending 0
    }
    ```
    """

    name = "pipelining"

    stages: int = STAGES
    """Places for each tile: how many pieces may be in shared memory at once. 1 changes nothing."""
    positions: int = POSITION_STAGES
    """The same of a recurrence, whose turns are shorter than memory takes."""
    carry: bool = True
    """Whether a delayed product is carried from loop to loop of a stream, where loops follow each other."""
    delay: bool = True
    """Whether a product that only feeds the state of a stream is delayed by one turn, in a kernel with roles."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for option, places in (("stages", self.stages), ("positions", self.positions)):
            if places < 1:
                raise PassFailedException(f"{option}={places}: a tile has 1 place or more")
        check_lowered(op)
        machine = machine_of(op)
        arch = int(machine.arch.removeprefix("sm_").rstrip("af"))
        steps: list[StepAttr] = []
        for kernel in op.body.block.ops:
            if not isinstance(kernel, cuda.KernelOp):
                continue
            stages = self.positions if any(map(recurs, kernel.walk())) else self.stages
            if stages == 1:
                continue
            if cuda.roles_of(kernel) is not None:
                steps += _delay(kernel, self.carry, self.delay)
                continue
            if not _multiplies(kernel):
                steps += _bring_ahead(kernel, stages, machine, arch >= FIRST_WITH_ASYNCHRONOUS_COPIES)
            if arch < FIRST_WITH_ASYNCHRONOUS_COPIES:
                name, reason = f"@{kernel.sym_name.data}", f"the machine {machine.name} is {machine.arch}"
                steps.append(StepAttr("decline pipelining", name, "copies are asynchronous from sm_80 on", reason))
            else:
                steps += pipeline_kernel(kernel, stages, machine.limits.shared_per_block)
            steps += _load_ahead(kernel)
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                launched = {f"@{launch.kernel.root_reference.data}" for launch in _launches(function)}
                record(function.attributes, [step for step in steps if step.subject.data in launched])


def _delay(kernel: cuda.KernelOp, carries: bool, delays: bool) -> list[StepAttr]:
    """Delay products of a kernel with roles, and let others run on; the steps of the derivation."""
    name, steps = f"@{kernel.sym_name.data}", list[StepAttr]()
    if chains := delay_products(kernel, carries) if delays else []:
        law = "a turn needs the sum of the turn before only where it repairs it"
        sums = [sum for chain in chains for sum in chain]
        steps.append(StepAttr("pipelining", name, law, f"{', '.join(sums)} of a turn during the next turn"))
    for chain in chains:
        if len(chain) > 1:
            law = "the turns of a ring count on from loop to loop"
            told = f"{chain[0]} of the last turn of a loop during the first of the next, through {len(chain)} loops"
            steps.append(StepAttr("pipelining", name, law, told))
    if sums := let_products_run(kernel):
        law = "products that add to the same registers keep their order"
        steps.append(StepAttr("pipelining", name, law, f"{', '.join(sums)} of a turn run on into the next turn"))
    if not steps:
        reason = "a producer fills them while consumers compute"
        steps.append(StepAttr("decline pipelining", name, "rings have their places already", reason))
    elif problems := ring_problems(kernel):
        raise InternalError(f"{name}: {problems[0]}")
    return steps


def _multiplies(kernel: cuda.KernelOp) -> bool:
    return any(isinstance(op, cuda.ProductOp) for op in kernel.walk())


def _bring_ahead(kernel: cuda.KernelOp, stages: int, machine: Machine, has_copies: bool) -> Iterator[StepAttr]:
    """Bring what the turns of a kernel without products load ahead of them, each loop by its own way; the steps of the
    derivation, but those of copies, which are told where they become asynchronous."""
    name, copied = f"@{kernel.sym_name.data}", list[cuda.LoadOp]()
    for way in ways_of(kernel, stages, machine, has_copies):
        if way.kind == "declined":
            yield StepAttr("decline pipelining", name, way.law, way.reason)
        elif way.kind == "registers":
            move_ahead(way.loads)
            told = f"{way.loads.names} of the next turn in {way.loads.words} registers"
            yield StepAttr("pipelining", name, "loads depend on nothing the loop computes", told)
        else:
            copied += way.loads.loads
    copy_ahead(kernel, copied)


def _load_ahead(kernel: cuda.KernelOp) -> Iterator[StepAttr]:
    """Load to registers ahead in each loop of a kernel; the steps of the derivation."""
    name = f"@{kernel.sym_name.data}"
    for loads in loads_to_move(kernel):
        told = f"{loads.names} of the next turn in {loads.words} registers"
        if loads.words > MOST_WORDS:
            reason = f"{told}, of {MOST_WORDS} at most"
            yield StepAttr("decline pipelining", name, "what is ahead leaves registers to the products", reason)
            continue
        move_ahead(loads)
        yield StepAttr("pipelining", name, "loads depend on nothing the loop computes", told)


def _launches(function: FuncOp) -> list[cuda.LaunchOp]:
    return [op for op in function.walk() if isinstance(op, cuda.LaunchOp)]


def pipeline_kernel(kernel: cuda.KernelOp, stages: int, limit: int) -> list[StepAttr]:
    """Pipeline every loop of a kernel that copies; the step of the derivation, if there is such a loop."""
    block = kernel.body.block
    loops = [op for op in block.ops if isinstance(op, scf.ForOp) and movable_copies(op)]
    if not loops:
        return []
    name = f"@{kernel.sym_name.data}"
    tiles = dict.fromkeys(copy.tile.owner for loop in loops for copy in movable_copies(loop))
    staged = [tile for tile in tiles if isinstance(tile, cuda.SharedOp)]
    needed = kernel.shared_bytes.data + (stages - 1) * sum(tile.stage_bytes for tile in staged)
    if needed > limit:
        return _in_place(
            kernel, loops, f"{stages} stages take {needed:,} bytes of shared memory, a block has {limit:,}"
        )
    for tile in staged:
        tile.stages = IntAttr(stages)
    for loop in loops:
        StagedCopies(loop, movable_copies(loop), stages).build()
    shared = [op for op in block.ops if isinstance(op, cuda.SharedOp)]
    kernel.shared_bytes = IntAttr(place_tiles(shared))
    meet_anew(block)
    names = ", ".join(f"%{tile.result.name_hint}" for tile in staged)
    reason = f"{stages} stages of {names}, {stages - 1} ahead"
    return [StepAttr("pipelining", name, "copies depend on nothing the loop computes", reason)]


def _in_place(kernel: cuda.KernelOp, loops: Sequence[scf.ForOp], no_room: str) -> list[StepAttr]:
    """Ask for each tile where nobody reads it any more, in the loops whose tiles are read one after another; the step
    of the derivation."""
    name = f"@{kernel.sym_name.data}"
    found = [(loop, phases) for loop in loops if (phases := phases_of(loop, movable_copies(loop)))]
    if not found:
        reason = f"{no_room}, and a turn reads all tiles at a time"
        return [StepAttr("decline pipelining", name, "every stage has its place", reason)]
    for loop, phases in found:
        CopiesInPlace(loop, [copy for phase in phases for copy in phase.copies], 1, phases).build()
    meet_anew(kernel.body.block)
    tiles = dict.fromkeys(f"%{copy.tile.name_hint}" for _, phases in found for phase in phases for copy in phase.copies)
    law = "what nobody reads any more may be overwritten"
    return [StepAttr("pipelining", name, law, f"{no_room}; {', '.join(tiles)} come in turn, in one place each")]
