"""Delay the product of a stream that only feeds its state by one turn, so that it runs while the next turn computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import is_shared

Mapping = dict[SSAValue, SSAValue]


@dataclass
class Delayed:
    """A product of a loop's turn whose result the turn only hands on, with what belongs to it."""

    loop: scf.ForOp
    product: cuda.WarpgroupProductOp
    wait: cuda.WarpgroupWaitOp
    accumulator: SSAValue
    position: int
    """Of the state that it makes, among those of the loop."""
    ring: SSAValue
    """Which brings its right operand."""
    begin: tuple[Operation, ...]
    """What starts it: index arithmetic, the wait for its piece, the product."""
    release: tuple[Operation, ...]
    """What gives its piece back."""
    late: tuple[Operation, ...]
    """What computes nothing but its operands."""

    @property
    def carried(self) -> SSAValue:
        """The left operand, in registers, which the next turn must still have."""
        return self.product.lhs


def delayable(loop: scf.ForOp, tiles: Mapping) -> Delayed | None:
    """The product of a loop that can be delayed, and is worth it; None if there is none. `tiles` are those that rings
    bring, with their rings.

    It is one whose result the turn only yields, which accumulates on what the turn has made of the same state and
    awaited, whose left operand is in registers and whose right operand comes by a ring that no other product of the
    turn reads; and the turn has an earlier product, for whose sum it waits: that is what the delayed product runs
    beside."""
    body = loop.body.block
    products = [op for op in body.ops if isinstance(op, cuda.WarpgroupProductOp)]
    if len(products) < 2:
        return None
    product = products[-1]
    wait, state = _only_use(product.result), body.last_op
    if not isinstance(wait, cuda.WarpgroupWaitOp) or wait.pending.data != 0 or product.accumulator is None:
        return None
    if state is None or _only_use(wait.result) is not state or is_shared(product.lhs.type):
        return None
    if isinstance(product.accumulator.owner, cuda.WarpgroupProductOp):
        return None  # awaited a turn later, both would be, and the tiles of the other are given back by then
    ring = tiles.get(tile_of(product.rhs))
    if ring is None or any(tiles.get(tile_of(other.rhs)) is ring for other in products[:-1]):
        return None
    position = list(state.operands).index(wait.result)
    sum = product.accumulator
    if not _is_made_in(product.lhs, body) or not (_is_made_in(sum, body) or sum is body.args[1 + position]):
        return None
    on_ring = [op for op in body.ops if isinstance(op, cuda.AwaitOp | cuda.ReleaseOp) and op.ring is ring]
    waits = [op for op in on_ring if isinstance(op, cuda.AwaitOp)]
    needed = [value for op in waits for value in op.operands] + [product.rhs]
    before = closure(body, needed)
    if any(op.dialect_name() != "arith" and not isinstance(op, cuda.StageOp) for op in before):
        return None
    begin = [op for op in body.ops if op in before or op in waits]
    release = tuple(op for op in on_ring if isinstance(op, cuda.ReleaseOp))
    late = _feeding_only(body, product)
    first = next(op for op in body.ops if isinstance(op, cuda.WarpgroupWaitOp))
    if first is wait or first in late:
        return None
    return Delayed(loop, product, wait, sum, position, ring, (*begin, product), release, tuple(late))


def _only_use(value: SSAValue) -> Operation | None:
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 else None


def tile_of(value: SSAValue) -> SSAValue:
    """The tile, of all stages, that a value is a place of."""
    return value.owner.tile if isinstance(value.owner, cuda.StageOp) else value


def _is_made_in(value: SSAValue, body: Block) -> bool:
    return isinstance(value.owner, Operation) and value.owner.parent is body


def closure(body: Block, values: Iterable[SSAValue]) -> set[Operation]:
    """Operations of a body that make these values."""
    found: set[Operation] = set()
    waiting = list(values)
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, Operation) and owner.parent is body and owner not in found:
            found.add(owner)
            waiting += owner.operands
    return found


def clone_into(op: Operation, target: Block, mapping: Mapping) -> Operation:
    """Add a copy to a block, under its name, of what the operands are mapped to."""
    clone = op.clone(value_mapper=mapping)
    clone.location = op.location
    target.add_op(clone)
    for old, new in zip(op.results, clone.results, strict=True):
        new.name_hint = old.name_hint
    return clone


def last_position(loop: scf.ForOp, target: Block) -> SSAValue:
    """Where the last turn of a loop begins that has one, computed at the end of a block."""
    size = arith.SubiOp(loop.ub, loop.lb)
    turns = arith.CeilDivUIOp(size.result, loop.step)
    one = arith.ConstantOp.from_int_and_width(1, IndexType())
    before = arith.SubiOp(turns.result, one.result)
    distance = arith.MuliOp(before.result, loop.step)
    position = arith.AddiOp(loop.lb, distance.result)
    position.result.name_hint = f"last_{loop.body.block.args[0].name_hint or 'position'}"
    target.add_ops([size, turns, one, before, distance, position])
    return position.result


def _feeding_only(body: Block, product: cuda.WarpgroupProductOp) -> list[Operation]:
    """Operations of registers whose results nothing but the product needs, in order."""
    found: list[Operation] = []
    for op in reversed(list(body.ops)):
        users = [use.operation for result in op.results for use in result.uses]
        if op.dialect_name() == "diagram" and users and all(user is product or user in found for user in users):
            found.append(op)
    return found[::-1]


@dataclass
class Parts:
    """What a loop becomes: its first turn without the product, the turns after it with that of the turn before, and the
    last product after them (`passes/loops/carry.py` puts them together)."""

    what: Delayed
    dropped: set[Operation] = field(default_factory=set[Operation])

    def __post_init__(self) -> None:
        what = self.what
        self.dropped = {*what.begin, *what.release, what.wait}
        self.dropped -= self._also_needed()

    def _also_needed(self) -> set[Operation]:
        """Index arithmetic of the product that the rest of the turn needs, too."""
        body, dropped = self.what.loop.body.block, set(self.dropped)
        kept = [value for op in body.ops if op not in dropped and op is not body.last_op for value in op.operands]
        kept += [value for value in self._states({}) if value not in self.what.wait.results]
        return {op for op in closure(body, kept) if op.dialect_name() == "arith"}

    # -- the three parts ---------------------------------------------------------------------------

    def first_turn(self, target: Block, states: Sequence[SSAValue]) -> list[SSAValue]:
        """The states after the first turn without its product, and the product's left operand."""
        what, loop = self.what, self.what.loop
        body = loop.body.block
        mapping: Mapping = dict(zip(body.args, (loop.lb, *states), strict=True))
        for op in body.ops:
            if op not in self.dropped and op is not body.last_op:
                clone_into(op, target, mapping)
        return [*self._states(mapping), mapping[what.carried]]

    def _states(self, mapping: Mapping) -> list[SSAValue]:
        """What a turn hands on: in place of the product's sum, what it will be added to."""
        terminator = self.what.loop.body.block.last_op
        assert terminator is not None
        values = [self.what.accumulator if i == self.what.position else v for i, v in enumerate(terminator.operands)]
        return [mapping.get(value, value) for value in values]

    def loop(self, target: Block, start: SSAValue, carried: Sequence[SSAValue]) -> scf.ForOp:
        """The turns from one on that follow another: of states, and of the left operand of the turn before."""
        what, loop = self.what, self.what.loop
        body = loop.body.block
        block = Block(arg_types=[IndexType(), *(value.type for value in carried)])
        for old, new in zip((*body.args, what.carried), block.args, strict=True):
            new.name_hint = old.name_hint
        mapping: Mapping = dict(zip(body.args, block.args, strict=False))
        self._turn(block, mapping)
        block.add_op(scf.YieldOp(*self._states(mapping), mapping[what.carried]))
        main = scf.ForOp(start, loop.ub, loop.step, list(carried), block)
        main.location = loop.location
        main.attributes |= loop.attributes
        for old, new in zip(loop.results, main.results, strict=False):
            new.name_hint = old.name_hint
        target.add_op(main)
        return main

    def _turn(self, block: Block, mapping: Mapping) -> None:
        """A turn that starts the product of the turn before once its own first products run, and has its sum before
        that is used."""
        what, body = self.what, self.what.loop.body.block
        state, left = block.args[1 + what.position], block.args[-1]
        previous = arith.SubiOp(block.args[0], what.loop.step)
        previous.result.name_hint = f"{block.args[0].name_hint or 'position'}_before"
        sum: cuda.WarpgroupProductOp | None = None
        turn: Mapping = {}
        finished = False
        for op in body.ops:
            if op in self.dropped or op in what.late or op is body.last_op:
                continue
            if isinstance(op, cuda.WarpgroupWaitOp) and sum is None:
                block.add_op(previous)
                sum, turn = self._begin(block, previous.result, left, state)
            if sum is not None and not finished and body.args[1 + what.position] in op.operands:
                mapping[body.args[1 + what.position]] = self._finish(block, sum, turn)
                finished = True
            clone = clone_into(op, block, mapping)
            if isinstance(clone, cuda.WarpgroupWaitOp) and not finished and _started_before(clone, sum):
                clone.pending = type(clone.pending)(clone.pending.data + 1)
        assert sum is not None
        if not finished:
            mapping[body.args[1 + what.position]] = self._finish(block, sum, turn)
        for op in what.late:
            clone_into(op, block, mapping)

    def _begin(
        self, target: Block, position: SSAValue, left: SSAValue, state: SSAValue
    ) -> tuple[cuda.WarpgroupProductOp, Mapping]:
        """Start the product of the turn at that position."""
        what = self.what
        turn: Mapping = {what.loop.body.block.args[0]: position, what.carried: left, what.accumulator: state}
        for op in what.begin[:-1]:
            clone_into(op, target, turn)
        product = clone_into(what.product, target, turn)
        assert isinstance(product, cuda.WarpgroupProductOp)
        return product, turn

    def _finish(self, target: Block, product: cuda.WarpgroupProductOp, turn: Mapping) -> SSAValue:
        """Wait for the product, and give its piece back."""
        wait = cuda.WarpgroupWaitOp(product.result)
        wait.location = self.what.wait.location
        wait.result.name_hint = self.what.wait.result.name_hint
        target.add_op(wait)
        for op in self.what.release:
            clone_into(op, target, turn)
        return wait.result

    def last(self, target: Block, main: scf.ForOp) -> SSAValue:
        """The sum with the product of the last turn, after the loop."""
        what = self.what
        position = last_position(what.loop, target)
        product, turn = self._begin(target, position, main.results[-1], main.results[what.position])
        return self._finish(target, product, turn)


def _started_before(wait: cuda.WarpgroupWaitOp, product: Operation | None) -> bool:
    """Whether a wait is for a product that was started before another."""
    owner = wait.value.owner
    if product is None or not isinstance(owner, Operation) or owner.parent is not product.parent:
        return False
    return owner.is_before_in_block(product)


def rings_of_tiles(roles: Operation) -> Mapping:
    """The ring of each tile that a producer brings."""
    found: Mapping = {}
    for op in roles.walk():
        if isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp):
            found[tile_of(op.tile)] = op.ring
        elif isinstance(op, cuda.ArriveOp):
            copy = op.prev_op
            while isinstance(copy, cuda.CopyOp):
                found[tile_of(copy.tile)] = op.ring
                copy = copy.prev_op
    return found
