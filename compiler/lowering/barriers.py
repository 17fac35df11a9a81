"""Where a block must meet: between a write to shared memory and another thread's read, and the other way round.

The analysis follows the order of execution. It knows, for every tile, whether it was written or read since the last
barrier; an operation that reads a written tile, or writes a read or written one, needs a barrier before it. A loop is
entered with what reaches its beginning from before and from its own end. What an asynchronous copy brings is written
when the wait for it is over: a barrier before that shows nothing of it. Stages of a pipelined tile inside their own
loop are left to `pipelining`, which placed that loop's barriers."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import is_shared

PIPELINED = "pipelined"
"""Attribute of a loop whose stages `pipelining` synchronises."""


@dataclass
class _State:
    """Tiles written and read since the last barrier."""

    written: set[SSAValue] = field(default_factory=set[SSAValue])
    read: set[SSAValue] = field(default_factory=set[SSAValue])
    under_way: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Tiles that copies are on their way to, which no barrier makes seen before somebody waits for them; how many
    groups were closed since they began."""

    def copy(self) -> _State:
        return _State(set(self.written), set(self.read), dict(self.under_way))

    def join(self, other: _State) -> None:
        self.written |= other.written
        self.read |= other.read
        for tile, closed in other.under_way.items():
            self.under_way[tile] = min(closed, self.under_way.get(tile, closed))

    def met(self) -> _State:
        """After a barrier."""
        return _State(set(self.under_way), under_way=dict(self.under_way))

    def closed(self) -> None:
        self.under_way = {tile: closed + 1 for tile, closed in self.under_way.items()}

    def waited(self, pending: int) -> None:
        self.under_way = {tile: closed for tile, closed in self.under_way.items() if closed <= pending}


def base_of(tile: SSAValue) -> SSAValue:
    """The allocation that a tile, or a stage of it, belongs to."""
    while isinstance(tile.owner, cuda.StageOp):
        tile = tile.owner.tile
    return tile


def accesses(op: Operation) -> tuple[set[SSAValue], set[SSAValue]]:
    """Tiles that an operation writes and reads."""
    match op:
        case cuda.CopyOp():
            written = {base_of(op.destination)} if is_shared(op.destination.type) else set[SSAValue]()
            read = {base_of(op.source)} if is_shared(op.source.type) else set[SSAValue]()
            return written, read
        case cuda.WriteOp():
            return {base_of(op.destination)}, set()
        case cuda.ReadOp() | cuda.ReadClusterOp():
            return set(), {base_of(op.source)}
        case cuda.TensorStoreOp() | cuda.SelectedOp() | cuda.SelectedBeforeOp():
            return set(), {base_of(op.tile)}
        case cuda.SelectOp():
            return {base_of(op.tile)}, set()
        case cuda.ProductOp() | cuda.WarpgroupProductOp() | cuda.PromotedProductOp():
            return set(), {base_of(tile) for tile in (op.lhs, op.rhs) if is_shared(tile.type)}
        case _:
            return set(), set()


def insert_barriers(block: Block, role: Block | None = None) -> None:
    """Put a barrier wherever one is needed in the body of a kernel, or in that of one of its roles, whose warps meet
    among themselves."""
    _Walk(neighbours_of(block)).visit(role or block, _State(), set(), insert=True)


def neighbours_of(block: Block) -> dict[SSAValue, set[SSAValue]]:
    """For every tile, the tiles that share memory with it, itself among them."""
    tiles = [op for op in block.ops if isinstance(op, cuda.SharedOp)]

    def meet(one: cuda.SharedOp, other: cuda.SharedOp) -> bool:
        first, second = sorted((one, other), key=lambda op: op.offset.data)
        return second.offset.data < first.offset.data + first.stages.data * first.stage_bytes

    return {one.result: {other.result for other in tiles if other is one or meet(one, other)} for one in tiles}


@dataclass
class _Walk:
    """One walk over a kernel."""

    neighbours: dict[SSAValue, set[SSAValue]]

    def visit(self, block: Block, state: _State, ignored: set[SSAValue], insert: bool) -> _State:
        """Follow one block; with `insert`, mend it on the way. Gives the state at its end."""
        for op in list(block.ops):
            if isinstance(op, cuda.ClusterWaitOp) or (isinstance(op, cuda.BarrierOp) and op.by_groups is None):
                state = state.met()
            elif isinstance(op, cuda.CommitOp):
                state.closed()
            elif isinstance(op, cuda.WaitOp):
                state.waited(op.pending.data)
            elif isinstance(op, scf.ForOp):
                state = self._visit_loop(op, state, ignored, insert)
            elif isinstance(op, scf.IfOp):
                state = self._visit_branch(op, state, ignored, insert)
            else:
                state = self._visit_access(op, state, ignored, insert)
        return state

    def _visit_access(self, op: Operation, state: _State, ignored: set[SSAValue], insert: bool) -> _State:
        written, read = accesses(op)
        written = {other for tile in written - ignored for other in self.neighbours[tile]}
        read = {other for tile in read - ignored for other in self.neighbours[tile]}
        if read & state.written or written & (state.written | state.read):
            if insert:
                Rewriter.insert_op(cuda.BarrierOp(), InsertPoint.before(op))
            state = state.met()
        if isinstance(op, cuda.CopyOp) and op.asynchronous is not None:
            state.under_way |= dict.fromkeys(written, 0)
        state.written |= written
        state.read |= read
        return state

    def _visit_loop(self, op: scf.ForOp, state: _State, ignored: set[SSAValue], insert: bool) -> _State:
        body = op.body.block
        own = _staged_tiles(body) if PIPELINED in op.attributes else set[SSAValue]()
        entry = state.copy()
        for _ in range(2):  # what the end of a turn leaves reaches the next; once more finds nothing new
            entry.join(self.visit(body, entry.copy(), ignored | own, insert=False))
        after = self.visit(body, entry.copy(), ignored | own, insert)
        after.join(state)  # the loop may not run at all
        after.read |= own - ignored
        return after

    def _visit_branch(self, op: scf.IfOp, state: _State, ignored: set[SSAValue], insert: bool) -> _State:
        after = state.copy()
        for region in (op.true_region, op.false_region):
            if region.blocks:
                after.join(self.visit(region.block, state.copy(), ignored, insert))
        return after


def _staged_tiles(block: Block) -> set[SSAValue]:
    return {base_of(op.result) for op in block.walk() if isinstance(op, cuda.StageOp)}
