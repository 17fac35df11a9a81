"""The body of the consumers: all of a kernel but the copies, for whose pieces they wait."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.diagram import FillOp
from treadle.passes.warps.laws import is_kept, left_of
from treadle.passes.warps.tiles import Turns, stage_of


@dataclass
class Consumers:
    """Fills the body of the consumers: all but the copies, for whose pieces they wait."""

    turns: Turns

    def fill(self, source: Block, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        waiting: dict[SSAValue, cuda.CopyOp] = {}
        """Tiles whose copy stands before, and which nothing has used yet."""
        held: dict[SSAValue, SSAValue] = {}
        """Turns of tiles that this block has awaited, and not yet given back."""
        read: set[SSAValue] = set()
        """Tiles that products read whose sums nobody awaits yet."""
        to_come = {op.tile for op in source.ops if isinstance(op, cuda.CopyOp) and not op.is_outward}
        """Tiles that this block has not awaited, whether their copy stands before or behind."""
        rings = self.turns.rings
        for op in source.ops:
            if isinstance(op, cuda.CopyOp) and not op.is_outward:
                waiting[op.tile] = op
                continue
            if isinstance(op, cuda.BarrierOp | cuda.SharedOp) or (isinstance(op, cuda.ReadOp) and not self._reads(op)):
                continue
            if any(result in mapping for result in op.results):
                continue
            for tile in [tile for tile in waiting if uses(op, tile)]:
                self._await(waiting.pop(tile), target, mapping, held)
                to_come.discard(tile)
            self._operation(op, target, mapping)
            if isinstance(op, cuda.ProductOp):
                read = read | {left_of(op), op.rhs} if next_of_sum(op) is not None else set[SSAValue]()
            needed = (each for each in held if each in read or used_after(op, each))
            left = {rings[tile] for tile in (*to_come, *needed)}
            for ring in dict.fromkeys(rings[tile] for tile in held):
                if ring in left:
                    continue
                given_back = [held.pop(tile) for tile in list(held) if rings[tile] is ring]
                target.add_op(cuda.ReleaseOp(ring, given_back[0]))

    def _reads(self, op: cuda.ReadOp) -> bool:
        return op.source not in self.turns.rings or is_kept(op)

    def _await(
        self, copy: cuda.CopyOp, target: Block, mapping: dict[SSAValue, SSAValue], held: dict[SSAValue, SSAValue]
    ) -> None:
        turns, tile = self.turns, copy.tile
        ring = turns.rings[tile]
        turn = next((turn for other, turn in held.items() if turns.rings[other] is ring), None)
        if turn is None:
            turn = turns.turn(copy, target, mapping)
            assert isinstance(ring.owner, cuda.RingOp)
            target.add_op(cuda.AwaitOp(ring, turn, ring.owner.needs_fence))
        held[tile] = turn
        mapping[tile] = stage_of(turns, tile, turn, target, "now")

    def _operation(self, op: Operation, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        match op:
            case cuda.ProductOp():
                self._product(op, target, mapping)
            case scf.ForOp() | scf.IfOp():
                clone = op.clone_without_regions(value_mapper=mapping)
                for region, empty in zip(op.regions, clone.regions, strict=True):
                    if region.blocks:
                        empty.add_block(self._body(region.block, mapping))
                self._add(op, clone, target, mapping)
            case _:
                self._add(op, op.clone(value_mapper=mapping), target, mapping)

    def _add(self, op: Operation, clone: Operation, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        clone.location = op.location
        target.add_op(clone)
        for old, new in zip(op.results, clone.results, strict=True):
            mapping[old] = new
            new.name_hint = old.name_hint

    def _body(self, source: Block, mapping: dict[SSAValue, SSAValue]) -> Block:
        block = Block(arg_types=[arg.type for arg in source.args])
        inner = dict(mapping)
        for old, new in zip(source.args, block.args, strict=True):
            inner[old] = new
            new.name_hint = old.name_hint
        self.fill(source, block, inner)
        return block

    def _product(self, op: cuda.ProductOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        if op.promote is not None:
            self._promoted_product(op, op.promote.data, target, mapping)
            return
        fill = op.accumulator.owner
        fresh = isinstance(fill, FillOp) and fill.number == 0
        accumulator = None if fresh else mapping[op.accumulator]
        left = left_of(op)
        product = cuda.WarpgroupProductOp(mapping[left], mapping[op.rhs], accumulator, op.axis, op.result.type)
        product.location = op.location
        product.result.name_hint = op.result.name_hint
        if next_of_sum(op) is not None:  # products that add to the same registers keep their order
            target.add_op(product)
            mapping[op.result] = product.result
            return
        wait = cuda.WarpgroupWaitOp(product.result)
        wait.location = op.location
        wait.result.name_hint = op.result.name_hint
        target.add_ops([product, wait])
        mapping[op.result] = wait.result

    def _promoted_product(
        self, op: cuda.ProductOp, every: int, target: Block, mapping: dict[SSAValue, SSAValue]
    ) -> None:
        lhs, rhs, accumulator = (mapping[value] for value in (left_of(op), op.rhs, op.accumulator))
        product = cuda.PromotedProductOp(lhs, rhs, accumulator, op.axis, every, op.result.type)
        self._add(op, product, target, mapping)


def next_of_sum(op: cuda.ProductOp) -> cuda.ProductOp | None:
    """The product that adds to the sum of this one before anything else happens, so that nobody awaits it (PTX ISA
    9.7.15.6.2: those that add to the same registers, of one shape, may be in flight together)."""
    if len(list(op.result.uses)) != 1 or op.promote is not None:
        return None
    later = op.next_op
    while later is not None and (isinstance(later, _BETWEEN) or later.dialect_name() == "arith"):
        later = later.next_op
    if not isinstance(later, cuda.ProductOp) or later.accumulator is not op.result or later.promote is not None:
        return None
    return later if later.instruction == op.instruction else None


_BETWEEN = (cuda.CopyOp, cuda.BarrierOp, cuda.SharedOp)
"""What producers do, or nobody."""


def uses(op: Operation, tile: SSAValue) -> bool:
    """Whether an operation, or one inside it, reads a tile."""
    for inner in op.walk():
        if isinstance(inner, cuda.ProductOp) and tile in (left_of(inner), inner.rhs):
            return True
        if isinstance(inner, cuda.ReadOp) and inner.source is tile and is_kept(inner):
            return True
    return False


def used_after(op: Operation, tile: SSAValue) -> bool:
    """Whether an operation of the same block after this one reads a tile before it is copied again."""
    later = op.next_op
    while later is not None:
        if uses(later, tile):
            return not any(isinstance(each, cuda.CopyOp) and each.tile is tile for each in later.walk())
        if isinstance(later, cuda.CopyOp) and later.tile is tile:
            return False
        later = later.next_op
    return False
