"""The body of the producer: the copies, and the loops and branches around them. A thread starts tensor copies; what
these do not bring, and lines of words, the lanes of its warps copy, with no more alignment than that of an element."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import is_extent
from treadle.passes.warps.laws import begin_of, inward_copies, is_inward, stop_of
from treadle.passes.warps.tiles import Turns, stage_of


@dataclass
class Producer:
    """Fills the producer's body: the copies, and the loops and branches around them."""

    turns: Turns
    needed: Set[Operation]
    """What says how far copies go."""

    def fill(self, source: Block, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        for op in source.ops:
            match op:
                case cuda.CopyOp() if not op.is_outward and op.tile in self.turns.by_lanes:
                    self._copy_by_lanes(op, target, mapping)
                case cuda.CopyOp() if not op.is_outward:
                    self._copy(op, target, mapping)
                case scf.ForOp() if self._copies(op):
                    self._loop(op, target, mapping)
                case scf.IfOp() if self._copies(op):
                    self._branch(op, target, mapping)
                case _ if (is_number(op) or op in self.needed) and all(operand in mapping for operand in op.operands):
                    if op.results[0] not in mapping:
                        target.add_op(clone := op.clone(value_mapper=mapping))
                        mapping[op.results[0]] = clone.results[0]
                        clone.results[0].name_hint = op.results[0].name_hint
                case _:
                    pass

    def _copies(self, op: Operation) -> bool:
        return any(is_inward(inner) for inner in op.walk())

    def _copy(self, op: cuda.CopyOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        turns, tile = self.turns, op.tile
        ring, turn = turns.rings[tile], turns.turn(op, target, mapping)
        place = stage_of(turns, tile, turn, target, "to")
        if op.place is not None:
            return self._gather(op, place, turn, target, mapping)
        offsets = [mapping[offset] for offset in op.offsets]
        begin, stop = begin_of(op), stop_of(op)
        before = None if stop is None else self._before(stop, target, mapping)
        after = None if begin is None else mapping[begin]
        rows = () if after is before is None else turns.row_maps[tile]
        load = cuda.TensorLoadOp(turns.maps[tile], offsets, place, ring, turn, False, before, rows, after)
        load.location = op.location
        target.add_ops([cuda.AcquireOp(ring, turn), cuda.ExpectOp(ring, turn, load.bytes), load])

    def _gather(
        self, op: cuda.CopyOp, place: SSAValue, turn: SSAValue, target: Block, mapping: dict[SSAValue, SSAValue]
    ) -> None:
        """A copy whose rows lie where data say."""
        turns, ring, scatter = self.turns, self.turns.rings[op.tile], op.scatter
        assert scatter is not None
        offsets = [mapping[offset] for offset in op.offsets]
        bounds = [(axis, mapping[limit]) for axis, limit in zip(op.bound_axes, op.limits, strict=True)]
        begins = [(axis, mapping[begin]) for axis, begin in zip(op.begun_axes, op.begins, strict=True)]
        padding = [(form, mapping[length]) for form, length in op.padding]
        scatter = cuda.Scatter(scatter.place, {name: mapping[each] for name, each in scatter.entries.items()})
        map, *row_maps = turns.run_maps[op]
        row_map = row_maps[0] if row_maps else None
        gather = cuda.TensorGatherOp(map, offsets, place, ring, turn, scatter, bounds, begins, padding, row_map)
        gather.location = op.location
        target.add_ops([cuda.AcquireOp(ring, turn), cuda.ExpectOp(ring, turn, gather.bytes), gather])

    def _copy_by_lanes(self, op: cuda.CopyOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        """With the first of those that have a ring together, all of them: of this block, not of loops in it."""
        turns, ring = self.turns, self.turns.rings[op.tile]
        assert op.parent is not None
        copies = [each for each in inward_copies(op.parent) if each.parent is op.parent]
        copies = [each for each in copies if turns.rings[each.tile] is ring]
        if op is not copies[0]:
            return
        turn = turns.turn(op, target, mapping)
        clones: list[Operation] = []
        for copy in copies:
            self._know(copy, target, mapping)
            place = stage_of(turns, copy.tile, turn, target, "to")
            clone = copy.clone(value_mapper=mapping | {copy.tile: place})
            clone.asynchronous, clone.location = UnitAttr(), copy.location
            clones.append(clone)
        target.add_ops([cuda.AcquireOp(ring, turn), *clones, cuda.ArriveOp(ring, turn)])

    def _know(self, op: Operation, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        """Compute what an operation is given, if that stands between the first of its copies and itself."""
        for value in op.operands:
            owner = value.owner
            if value not in mapping and isinstance(owner, Operation) and is_number(owner):
                self._know(owner, target, mapping)
                target.add_op(clone := owner.clone(value_mapper=mapping))
                mapping[value] = clone.results[0]

    def _before(self, stop: SSAValue, target: Block, mapping: dict[SSAValue, SSAValue]) -> SSAValue:
        """The position before which a copy ends; beyond all where that is the end of the array, at which every copy
        ends by itself."""
        least = stop.owner  # of what conditions leave and the end of the array, in this order (`runs`)
        if not isinstance(least, arith.MinSIOp) or not is_extent(least.rhs):
            return mapping[stop]
        is_before = arith.CmpiOp(mapping[stop], mapping[least.rhs], "slt")
        never = arith.ConstantOp.from_int_and_width(2**31 - 1, IndexType())
        before = arith.SelectOp(is_before.result, mapping[stop], never.result)
        before.result.name_hint = stop.name_hint
        target.add_ops([is_before, never, before])
        return before.result

    def _loop(self, op: scf.ForOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        body = Block(arg_types=[IndexType()])
        body.args[0].name_hint = op.body.block.args[0].name_hint
        self.fill(op.body.block, body, {**mapping, op.body.block.args[0]: body.args[0]})
        body.add_op(scf.YieldOp())
        loop = scf.ForOp(mapping[op.lb], mapping[op.ub], mapping[op.step], [], body)
        loop.location = op.location
        loop.attributes |= op.attributes
        target.add_op(loop)

    def _branch(self, op: scf.IfOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        block = Block()
        self.fill(op.true_region.block, block, dict(mapping))
        block.add_op(scf.YieldOp())
        branch = scf.IfOp(mapping[op.cond], [], Region(block))
        branch.location = op.location
        branch.attributes |= op.attributes
        target.add_op(branch)


def is_number(op: Operation) -> bool:
    """Whether an operation is arithmetic on numbers, or looks one up in a list of pieces."""
    return op.dialect_name() == "arith" or isinstance(op, cuda.SelectedOp)
