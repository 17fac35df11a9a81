"""Copies of a loop to shared memory, so many turns ahead of their use, or in a place that a turn reads no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.barriers import PIPELINED, accesses, base_of
from treadle.dialects import cuda
from treadle.passes.loops.ahead import (
    are_known_ahead,
    brought_ahead,
    constant,
    constant_of,
    named,
    position_ahead,
    step_of,
)
from treadle.passes.loops.in_place import Phase
from treadle.passes.loops.turns import is_number_loaded


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


def _erase_unused_numbers(block: Block) -> None:
    """Erase what says in a turn how far its copies go, where that is loaded, once they are asked for ahead."""
    if not any(map(is_number_loaded, block.ops)):
        return
    for op in list(block.ops)[::-1]:
        is_number = op.dialect_name() == "arith" or is_number_loaded(op)
        if is_number and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)


@dataclass
class StagedCopies:
    """The rewrite of one loop."""

    loop: scf.ForOp
    copies: Sequence[cuda.CopyOp]
    stages: int

    def build(self) -> None:
        early = self._make_earlier_copies_asynchronous()
        self._prologue(early)
        self._turn()
        _erase_unused_numbers(self.loop.body.block)
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
class CopiesInPlace(StagedCopies):
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
