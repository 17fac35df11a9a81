"""Make of a kernel with roles one whose blocks take one piece after another, until all are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntAttr, MemRefType, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.timing.turns import PARTS
from treadle.compiler.lowering.barriers import base_of
from treadle.compiler.ring_events import ON_RING
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import boxes_layout
from treadle.dialects.cuda.kernel import NARROW
from treadle.dialects.cuda.rings import place_shared
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, is_boxed, layout_of
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, sizes_of
from treadle.passes.grids.arithmetic import Arithmetic
from treadle.passes.grids.coordinates import number_of_unit
from treadle.passes.grids.tile_order import TileOrder, Units, Walk
from treadle.passes.loops.delay import rings_of_tiles
from treadle.passes.warps.laws import Reason, constant_of


def why_not(kernel: cuda.KernelOp, roles: cuda.RolesOp, limit: int) -> Reason | None:
    """Why blocks cannot take several pieces; None if they can."""
    stores, brought = _stores(roles), rings_of_tiles(roles)
    for tile in _tiles(kernel):
        staged = any(base_of(store.tile) is tile.result for store in stores)
        if tile.alias is not None and not staged:
            fact = f"%{tile.result.name_hint} lies where the copies of the next piece go"
            return Reason("what a piece leaves from is not overwritten by the next", fact)
        if not is_boxed(tile.result.type) and tile.result not in brought:
            return Reason("what warps exchange is theirs until all have read it", f"%{tile.result.name_hint} is one")
    if any(store.parent_op() is not roles for store in stores):
        return Reason("a piece leaves once, after all loops", "a tensor store stands in a loop or a branch")
    if parts_for(kernel, stores, limit) is None:
        fact = "no part of the results has room beside the stages"
        return Reason("what a piece leaves from is not overwritten by the next", fact)
    if any(isinstance(op, ReduceOp) for op in kernel.body.block.ops):
        return Reason("one thread of the producer walks the pieces", "a warp finds together where a loop ends")
    for op in roles.producer.block.ops:
        if isinstance(op, scf.ForOp) and constant_of(op.lb) != 0:
            return Reason("the turns of a piece can be counted before it", "a loop begins elsewhere than at 0")
        if isinstance(op, scf.ForOp) and any(_is_inside(value, roles) for value in (op.ub, op.step)):
            return Reason("the turns of a piece can be counted before it", "a loop has a bound of its own")
        if isinstance(op, scf.IfOp) and _is_inside(op.cond, roles):
            return Reason("the turns of a piece can be counted before it", "a branch has a condition of its own")
    return None


def _tiles(kernel: cuda.KernelOp) -> list[cuda.SharedOp]:
    return [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp)]


def _stores(roles: cuda.RolesOp) -> list[cuda.TensorStoreOp]:
    return [op for op in roles.consumers.walk() if isinstance(op, cuda.TensorStoreOp)]


def _is_inside(value: SSAValue, roles: cuda.RolesOp) -> bool:
    owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    return owner is not None and roles.is_ancestor(owner)


def parts_for(kernel: cuda.KernelOp, stores: Sequence[cuda.TensorStoreOp], limit: int) -> int | None:
    """In how few parts the results leave so that a part has room of its own; None if none has."""
    staged = {base_of(store.tile) for store in stores}
    others = sum(tile.stages.data * tile.stage_bytes for tile in _tiles(kernel) if tile.result not in staged)
    rings = sum(op.bytes for op in kernel.body.block.ops if isinstance(op, cuda.RingOp))
    for parts in PARTS:
        types = [_part_type(store, parts) for store in stores]
        if None not in types and others + rings + sum(_bytes(type) for type in types if type is not None) <= limit:
            return parts
    return None


def _part_type(store: cuda.TensorStoreOp, parts: int) -> MemRefType | None:
    """The tile of one of so many parts of a result, whose boxes are those of the whole; None if there is none."""
    write, type = _write(store), store.tile.type
    mode = next(iter(_register_modes(write)))
    sizes = dict(sizes_of(type))
    if parts > 1 and mode.size % (2 * parts):
        return None
    sizes[mode.axis] //= parts
    layout = boxes_of(type) if parts == 1 else boxes_layout(tuple(sizes.values()), format_bytes(type))
    if layout is None or layout.box != boxes_of(type).box:
        return None
    return MemRefType(
        format_of(type), tuple(sizes.values()), memory_space=ArrayEncoding(axes_of(type), "shared", layout)
    )


def _register_modes(write: cuda.WriteOp) -> cuda.ModesAttr:
    return layout_of(write.value.type).register


def _bytes(type: MemRefType) -> int:
    return boxes_of(type).elements * format_bytes(type)


def _write(store: cuda.TensorStoreOp) -> cuda.WriteOp:
    return next(use.operation for use in store.tile.uses if isinstance(use.operation, cuda.WriteOp))


@dataclass
class Persistent:
    """The rewrite of one kernel; its last argument becomes the number of pieces."""

    kernel: cuda.KernelOp
    roles: cuda.RolesOp
    order: TileOrder
    parts: int
    counts: list[tuple[SSAValue, str]] = field(default_factory=list[tuple[SSAValue, str]])
    """Turns that a piece takes of rings, each count once, with the name of the ring."""
    counted: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """For each ring the number of its count."""
    rings: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """The ring of each tile that the producer brings."""

    def run(self) -> None:
        top = self.kernel.body.block
        self.rings = dict(rings_of_tiles(self.roles))
        unit = number_of_unit(self.kernel)
        assert unit is not None
        pieces = top.insert_arg(IndexType(), len(top.args))
        pieces.name_hint = "pieces"
        self._count_turns()
        for store in _stores(self.roles):
            self._leave_in_parts(store)
        grid = cuda.GridSizeOp()
        grid.result.name_hint = "blocks"
        Rewriter.insert_op(grid, InsertPoint.after(unit))
        moved = _depending_ops(top, unit.result)
        units, at_a_time = self._units(unit, pieces, grid)
        column = next((op.rhs for op in moved if isinstance(op, arith.RemUIOp) and op.lhs is unit.result), units)
        given = Units(unit.result, units, column, at_a_time)
        walk = self.order.walk(given, Arithmetic.before(self.roles))
        for role in (self.roles.producer.block, self.roles.consumers.block):
            self._loop(role, unit.result, walk, moved)
        last = self.roles.consumers.block
        if _stores(self.roles):
            last.add_op(cuda.TensorWaitOp())
        for op in reversed(moved):
            Rewriter.erase_op(op)
        self.kernel.shared_bytes = IntAttr(place_shared(top))

    def _units(self, unit: Operation, pieces: SSAValue, grid: cuda.GridSizeOp) -> tuple[SSAValue, SSAValue]:
        """How many units of work there are, and how many are worked on at a time: pieces, or those of clusters whose
        number is split into coordinates."""
        if not isinstance(unit, cuda.ClusterIndexOp):
            return pieces, grid.result
        size = arith.ConstantOp.from_int_and_width(self.kernel.cluster, IndexType())
        clusters, at_a_time = arith.DivUIOp(pieces, size.result), arith.DivUIOp(grid.result, size.result)
        clusters.result.name_hint, at_a_time.result.name_hint = "clusters", "at_a_time"
        Rewriter.insert_op([size, clusters, at_a_time], InsertPoint.after(grid))
        return clusters.result, at_a_time.result

    # -- turns -------------------------------------------------------------------------------------

    def _count_turns(self) -> None:
        """Before the roles, the turns that a piece takes of each ring."""
        rings = [op.result for op in self.kernel.body.block.ops if isinstance(op, cuda.RingOp)]
        known: dict[tuple[int, ...], int] = {}
        for ring in rings:
            terms = [op for op in self.roles.producer.walk() if isinstance(op, cuda.AcquireOp) and op.ring is ring]
            key = tuple(id(op.parent) for op in terms)
            if key not in known:
                known[key] = len(self.counts)
                self.counts.append((self._sum(terms), ring.name_hint or "ring"))
            self.counted[ring] = known[key]

    def _sum(self, acquired: Sequence[cuda.AcquireOp]) -> SSAValue:
        total: SSAValue | None = None
        for each in acquired:
            parent = each.parent_op()
            if isinstance(parent, scf.ForOp):
                whole = constant_of(parent.step) == 1
                term = parent.ub if whole else self._before(arith.CeilDivUIOp(parent.ub, parent.step))
            else:
                term = self._constant(1)
                if isinstance(parent, scf.IfOp):
                    term = self._before(arith.SelectOp(parent.cond, term, self._constant(0)))
            total = term if total is None else self._before(arith.AddiOp(total, term))
        assert total is not None
        total.name_hint = total.name_hint or "turns"
        return total

    def _constant(self, number: int) -> SSAValue:
        return self._before(arith.ConstantOp.from_int_and_width(number, IndexType()))

    def _before(self, op: Operation) -> SSAValue:
        Rewriter.insert_op(op, InsertPoint.before(self.roles))
        return op.results[0]

    # -- one role ----------------------------------------------------------------------------------

    def _loop(self, role: Block, block: SSAValue, walk: Walk, moved: Sequence[Operation]) -> None:
        """Put the body of a role into a loop over the pieces of this block, or of its cluster."""
        body = Block(arg_types=[IndexType(), *(IndexType() for _ in self.counts)])
        number, *done = body.args
        number.name_hint = walk.name
        for arg, (_, ring) in zip(done, self.counts, strict=True):
            arg.name_hint = f"{ring}_done"
        inside: dict[SSAValue, SSAValue] = {block: walk.piece(Arithmetic.at_end(body), number)}
        for op in moved:
            clone = op.clone(value_mapper=inside)
            body.add_op(clone)
            for old, new in zip(op.results, clone.results, strict=True):
                inside[old] = new
                new.name_hint = old.name_hint
        for op in body.ops:
            if isinstance(op, arith.DivUIOp | arith.RemUIOp):
                op.attributes[NARROW] = UnitAttr()
        for op in list(role.ops):
            op.detach()
            _replace(op, inside)
            body.add_op(op)
        self._advance_turns(body, done)
        totals = [inside.get(count, count) for count, _ in self.counts]
        sums = [arith.AddiOp(arg, total) for arg, total in zip(done, totals, strict=True)]
        body.add_ops([*sums, scf.YieldOp(*(each.result for each in sums))])
        zero = arith.ConstantOp.from_int_and_width(0, IndexType())
        loop = scf.ForOp(walk.begin, walk.end, walk.step, [zero.result] * len(done), body)
        loop.attributes[NARROW] = UnitAttr()
        role.add_ops([zero, loop])

    def _advance_turns(self, body: Block, done: Sequence[SSAValue]) -> None:
        """Turns, and the stages that they take, count on from those of the pieces before."""
        for op in list(body.walk()):
            if isinstance(op, ON_RING):
                sum = arith.AddiOp(op.turn, done[self.counted[op.ring]])
                sum.result.name_hint = "turn"
                Rewriter.insert_op(sum, InsertPoint.before(op))
                op.operands[list(op.operands).index(op.turn)] = sum.result
            elif isinstance(op, cuda.StageOp) and op.tile in self.rings:
                owner = op.tile.owner
                assert isinstance(owner, cuda.SharedOp)
                count = arith.ConstantOp.from_int_and_width(owner.stages.data, IndexType())
                sum = arith.AddiOp(op.index, done[self.counted[self.rings[op.tile]]])
                stage = arith.RemUIOp(sum, count)
                stage.result.name_hint = "stage"
                Rewriter.insert_op([count, sum, stage], InsertPoint.before(op))
                op.operands[1] = stage.result

    # -- results -----------------------------------------------------------------------------------

    def _leave_in_parts(self, store: cuda.TensorStoreOp) -> None:
        """Wait for the copies of the piece before only where the tile is written again, part by part."""
        write, old = _write(store), store.tile.owner
        type = _part_type(store, self.parts)
        assert isinstance(old, cuda.SharedOp)
        assert type is not None
        shared = cuda.SharedOp(0, type)
        shared.result.name_hint = old.result.name_hint
        Rewriter.insert_op(shared, InsertPoint.before(old))
        axis = next(iter(_register_modes(write))).axis
        number, length = axes_of(type).index(axis), sizes_of(type)[axis]
        for part in range(self.parts):
            offsets = list(store.offsets)
            if part:
                step = arith.ConstantOp.from_int_and_width(part * length, IndexType())
                offset = arith.AddiOp(offsets[number], step)
                Rewriter.insert_op([step, offset], InsertPoint.before(store))
                offsets[number] = offset.result
            written = cuda.WriteOp(write.value, shared.result, (part, self.parts) if self.parts > 1 else None)
            copied = cuda.TensorStoreOp(shared.result, store.map, offsets)
            written.location, copied.location = write.location, store.location
            ops = [
                cuda.TensorWaitOp(),
                cuda.BarrierOp(),
                written,
                cuda.TensorFenceOp(),
                cuda.BarrierOp(),
                copied,
            ]
            Rewriter.insert_op(ops, InsertPoint.before(store))
        _erase_old(write, store)
        Rewriter.erase_op(old)


def _erase_old(write: cuda.WriteOp, store: cuda.TensorStoreOp) -> None:
    """The write of the whole, its fence, and the barriers and the wait around."""
    for around in (write.prev_op, *_between(write, store), store.next_op):
        if isinstance(around, cuda.BarrierOp | cuda.TensorFenceOp | cuda.TensorWaitOp):
            Rewriter.erase_op(around)
    Rewriter.erase_op(write)
    Rewriter.erase_op(store)


def _between(write: cuda.WriteOp, store: cuda.TensorStoreOp) -> list[Operation]:
    """Up to the first operation that a part of the result begins with."""
    found: list[Operation] = []
    op = write.next_op
    while op is not None and op is not store and not isinstance(op, cuda.TensorWaitOp):
        found.append(op)
        op = op.next_op
    return found


def _depending_ops(block: Block, value: SSAValue) -> list[Operation]:
    """What is computed before the roles and depends on a value, in order."""
    known, found = {value}, list[Operation]()
    for op in block.ops:
        if op.results and any(operand in known for operand in op.operands):
            known.update(op.results)
            found.append(op)
    return found


def _replace(around: Operation, inside: Mapping[SSAValue, SSAValue]) -> None:
    for op in around.walk():
        for i, operand in enumerate(op.operands):
            if operand in inside:
                op.operands[i] = inside[operand]
