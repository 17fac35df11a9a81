"""Copy the next pieces of a stream while this one is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntAttr, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.levels.memory import STAGES
from treadle.compiler.errors import InternalError, Refusal
from treadle.compiler.lowering.barriers import PIPELINED, accesses, base_of, insert_barriers
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.machines.machine import FIRST_WITH_ASYNCHRONOUS_COPIES
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.shared import place_tiles
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._levels import check_lowered
from treadle.passes.loops.ahead import (
    are_known_ahead,
    brought_ahead,
    constant,
    constant_of,
    named,
    position_ahead,
    step_of,
)
from treadle.passes.loops.carry import delay_products
from treadle.passes.loops.in_flight import let_products_run
from treadle.passes.loops.in_place import Phase, phases_of
from treadle.passes.loops.load_ahead import MOST_WORDS, loads_to_move, move_ahead
from treadle.passes.loops.without_products import copy_ahead, ways_of


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
    carry: bool = True
    """Whether a delayed product is carried from loop to loop of a stream, where loops follow each other."""
    delay: bool = True
    """Whether a product that only feeds the state of a stream is delayed by one turn, in a kernel with roles."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.stages < 1:
            raise PassFailedException(f"stages={self.stages}: a tile has 1 place or more")
        check_lowered(op)
        machine = machine_of(op)
        arch = int(machine.arch.removeprefix("sm_").rstrip("af"))
        steps: list[StepAttr] = []
        for kernel in op.body.block.ops:
            if not isinstance(kernel, cuda.KernelOp) or self.stages == 1:
                continue
            if cuda.roles_of(kernel) is not None:
                steps += _delay(kernel, self.carry, self.delay)
                continue
            if not _multiplies(kernel):
                steps += _bring_ahead(kernel, self.stages, machine, arch >= FIRST_WITH_ASYNCHRONOUS_COPIES)
            if arch < FIRST_WITH_ASYNCHRONOUS_COPIES:
                name, reason = f"@{kernel.sym_name.data}", f"the machine {machine.name} is {machine.arch}"
                steps.append(StepAttr("decline pipelining", name, "copies are asynchronous from sm_80 on", reason))
            else:
                steps += pipeline_kernel(kernel, self.stages, machine.limits.shared_per_block)
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
        _Pipeline(loop, movable_copies(loop), stages).build()
    shared = [op for op in block.ops if isinstance(op, cuda.SharedOp)]
    kernel.shared_bytes = IntAttr(place_tiles(shared))
    _meet_anew(block)
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
        _InPlace(loop, [copy for phase in phases for copy in phase.copies], 1, phases).build()
    _meet_anew(kernel.body.block)
    tiles = dict.fromkeys(f"%{copy.tile.name_hint}" for _, phases in found for phase in phases for copy in phase.copies)
    law = "what nobody reads any more may be overwritten"
    return [StepAttr("pipelining", name, law, f"{no_room}; {', '.join(tiles)} come in turn, in one place each")]


def _meet_anew(block: Block) -> None:
    """Place the barriers of a kernel anew, and start its other copies without waiting."""
    remove_barriers_but(block)
    insert_barriers(block)
    for each in (block, *(op.true_region.block for op in block.ops if isinstance(op, scf.IfOp))):
        _ask_for_the_last(each)


def movable_copies(loop: scf.ForOp) -> list[cuda.CopyOp]:
    """Copies to shared memory in the body of a loop that depend on nothing that it computes but its position."""
    return [
        op
        for op in loop.body.block.ops
        if isinstance(op, cuda.CopyOp)
        and not op.is_outward
        and op.asynchronous is None
        and are_known_ahead(op.operands, loop)
    ]


def remove_barriers_but(block: Block) -> None:
    """Remove all barriers but those that stand right after the wait of a pipelined loop."""
    for op in [op for op in block.walk() if isinstance(op, cuda.BarrierOp)]:
        if not (isinstance(op.prev_op, cuda.WaitOp) and PIPELINED in (op.parent_op() or op).attributes):
            Rewriter.erase_op(op)


def _ask_for_the_last(block: Block) -> None:
    """Make the copies outside of loops asynchronous, too, up to the barrier after which they are read: on their way
    through registers they would take those of everything that is alive, where a kernel has none left."""
    pending = False
    for op in list(block.ops):
        if isinstance(op, cuda.CopyOp) and not op.is_outward and op.asynchronous is None:
            op.asynchronous = UnitAttr()
            pending = True
        elif pending and (isinstance(op, cuda.BarrierOp) or _may_read(op) or op is block.last_op):
            Rewriter.insert_op([cuda.CommitOp(), cuda.WaitOp(0)], InsertPoint.before(op))
            pending = False


def _may_read(op: Operation) -> bool:
    """Whether what is inside of an operation may read tiles; what selects pieces reads none."""
    return bool(op.regions) and not isinstance(op, cuda.SelectOp)


@dataclass
class _Pipeline:
    """The rewrite of one loop."""

    loop: scf.ForOp
    copies: Sequence[cuda.CopyOp]
    stages: int

    def build(self) -> None:
        early = self._make_earlier_copies_asynchronous()
        self._prologue(early)
        self._turn()
        self.loop.attributes[PIPELINED] = UnitAttr()
        Rewriter.insert_op(cuda.WaitOp(0), InsertPoint.after(self.loop))

    # -- before the loop ---------------------------------------------------------------------------

    def _make_earlier_copies_asynchronous(self) -> Operation:
        """Start the copies before the loop without waiting, as the oldest group; gives where the first pieces are to
        be asked for: before what reads those copies, or else before the loop."""
        block = self.loop.parent
        assert block is not None
        copied: set[SSAValue] = set()
        place: Operation = self.loop
        for op in self._since_other_loops(block):
            if isinstance(op, cuda.CopyOp) and not op.is_outward:
                op.asynchronous = UnitAttr()
                copied.add(base_of(op.tile))
            elif accesses(op)[1] & copied:
                place = op
                break
        return place

    def _since_other_loops(self, block: Block) -> list[Operation]:
        """What stands before the loop, but after every other loop and branch, and after all that read shared memory to
        find where this one begins and ends."""
        found: list[Operation] = []
        for op in block.ops:
            if op is self.loop:
                break
            found = [] if isinstance(op, scf.ForOp | scf.IfOp) else [*found, op]
        wanted = self._needed()
        for i, op in reversed(list(enumerate(found))):
            if wanted & set(op.results):
                if any(accesses(op)):
                    return found[i + 1 :]
                wanted |= set(op.operands)
        return found

    def _needed(self) -> set[SSAValue]:
        """What the prologue asks for: bounds, and where copies begin and end."""
        return {
            *(self.loop.lb, self.loop.ub, self.loop.step),
            *(value for copy in self.copies for value in copy.operands),
        }

    def _prologue(self, place: Operation) -> None:
        """Close the group of the earlier copies, ask for the first pieces, and wait for the earlier copies where they
        are read before the loop."""
        ops: list[Operation] = [cuda.CommitOp()]
        asked = self._ask_for_the_first(ops)
        if place is not self.loop:
            ops.append(cuda.WaitOp(asked))
        self._hoist_bounds(place)
        Rewriter.insert_op(ops, InsertPoint.before(place))

    def _ask_for_the_first(self, ops: list[Operation]) -> int:
        """Start the copies of the first pieces; how many groups they are."""
        turn, count = self._first_turn(ops)
        for stage in range(self.stages - 1):
            ops += self._ask(self.loop.lb, stage, turn, count)
            ops.append(cuda.CommitOp())
        return self.stages - 1

    def _first_turn(self, ops: list[Operation]) -> tuple[SSAValue | None, SSAValue | None]:
        """The number of the first turn, and of stages, where the loop does not begin with turn 0."""
        if _is_zero(self.loop.lb):
            return None, None
        step, count = constant(step_of(self.loop)), named(constant(self.stages), "stages")
        turn = named(arith.DivUIOp(self.loop.lb, step.result), "turn")
        ops += [step, count, turn]
        return turn.results[0], count.results[0]

    def _hoist_bounds(self, place: Operation) -> None:
        """What the prologue needs must stand before it: sizes and positions are computed from arguments alone."""
        block = place.parent
        assert block is not None
        late: list[Operation] = []
        for op in list(block.ops):
            if op is self.loop:
                break
            if op is place or late:
                late.append(op)
        moved = _closure(late, self._needed())
        for op in moved:
            op.detach()
        Rewriter.insert_op(moved, InsertPoint.before(place))

    # -- in the loop -------------------------------------------------------------------------------

    def _turn(self) -> None:
        body = self.loop.body.block
        position = body.args[0]
        turn = named(arith.DivUIOp(position, self.loop.step), "turn")
        count = named(constant(self.stages), "stages")
        stage = named(arith.RemUIOp(turn.results[0], count.results[0]), "stage")
        ahead = self._ask(position, self.stages - 1, turn.results[0], count.results[0])
        views = [named(cuda.StageOp(copy.tile, stage.results[0]), f"{_plain(copy.tile)}_now") for copy in self.copies]
        first = body.first_op
        assert first is not None
        for copy, view in zip(self.copies, views, strict=True):
            for use in list(copy.tile.uses):
                if self.loop.is_ancestor(use.operation) and use.operation not in (copy, *views, *_inside(ahead)):
                    use.operation.operands[use.index] = view.results[0]
        for copy in self.copies:
            Rewriter.erase_op(copy)
        head: list[Operation] = [turn, count, stage, cuda.WaitOp(self.stages - 2), cuda.BarrierOp(), *ahead]
        begin = body.first_op
        assert begin is not None
        Rewriter.insert_op([*head, cuda.CommitOp(), *views], InsertPoint.before(begin))

    def _ask(self, position: SSAValue, turns: int, turn: SSAValue | None, count: SSAValue | None) -> list[Operation]:
        """Start the copies of the piece so many turns ahead, if there is one."""
        found, there, test = position_ahead(self.loop, position, turns * step_of(self.loop))
        block = Block()
        if turn is None or count is None:
            place = named(constant(turns), "place")
            block.add_op(place)
        else:
            one = constant(turns)
            later = arith.AddiOp(turn, one.results[0])
            place = named(arith.RemUIOp(later.result, count), "place")
            block.add_ops([one, later, place])
        for copy in self.copies:
            stage = named(cuda.StageOp(copy.tile, place.results[0]), f"{_plain(copy.tile)}_ahead")
            block.add_op(stage)
            self._clone_copy(copy, there, stage.results[0], block)
        block.add_op(scf.YieldOp())
        branch = scf.IfOp(test, [], Region(block))
        branch.location = self.loop.location
        return [*found, branch]

    def _clone_copy(self, copy: cuda.CopyOp, position: SSAValue, tile: SSAValue, block: Block) -> None:
        mapping = brought_ahead(copy.operands, self.loop, position, block) | {copy.tile: tile}
        clone = copy.clone(value_mapper=mapping)
        clone.asynchronous = UnitAttr()
        block.add_op(clone)


@dataclass
class _InPlace(_Pipeline):
    """The rewrite of one loop whose tiles have one place each. Before each phase the block waits for its tiles, meets,
    and asks for those of the phase before, which all warps have read: for this turn's of the last phase where a turn
    begins, and else for the next turn's."""

    phases: Sequence[Phase]

    def _ask_for_the_first(self, ops: list[Operation]) -> int:
        for phase in self.phases[:-1]:
            ops += [*self._ask_in_place(phase, self.loop.lb, 0), cuda.CommitOp()]
        return len(self.phases) - 1

    def _turn(self) -> None:
        body = self.loop.body.block
        position = body.args[0]
        for number, phase in enumerate(self.phases):
            if number:
                asks = self._ask_in_place(self.phases[number - 1], position, step_of(self.loop))
            else:
                asks = self._copies(self.phases[-1], position)
            # As many groups as there are phases less two are younger than the one that is waited for.
            meeting = [cuda.WaitOp(len(self.phases) - 2), cuda.BarrierOp(), *asks, cuda.CommitOp()]
            Rewriter.insert_op(meeting, InsertPoint.before(phase.first))
        for copy in self.copies:
            Rewriter.erase_op(copy)

    def _ask_in_place(self, phase: Phase, position: SSAValue, distance: int) -> list[Operation]:
        """Start the copies of a phase so far ahead, if the loop reaches that."""
        found, there, test = position_ahead(self.loop, position, distance)
        branch = scf.IfOp(test, [], Region(Block([*self._copies(phase, there), scf.YieldOp()])))
        branch.location = self.loop.location
        return [*found, branch]

    def _copies(self, phase: Phase, position: SSAValue) -> list[Operation]:
        block = Block()
        for copy in phase.copies:
            self._clone_copy(copy, position, copy.tile, block)
        ops = list(block.ops)
        for op in ops:
            op.detach()
        return ops


def _closure(ops: Sequence[Operation], needed: set[SSAValue]) -> list[Operation]:
    """Of these operations, those that the needed values depend on, in order; all must be pure arithmetic."""
    wanted = set(needed)
    found: list[Operation] = []
    for op in reversed(ops):
        if wanted & set(op.results):
            if any(accesses(op)) or op.regions:
                raise Refusal(op, f"the bounds of a stream depend on '{op.name}', which cannot move before it")
            found.insert(0, op)
            wanted |= set(op.operands)
    return found


def _inside(ops: Sequence[Operation]) -> list[Operation]:
    return [inner for op in ops for inner in op.walk()]


def _is_zero(value: SSAValue) -> bool:
    return isinstance(value.owner, arith.ConstantOp) and constant_of(value) == 0


def _plain(tile: SSAValue) -> str:
    return (tile.name_hint or "tile").removesuffix("_shared")
