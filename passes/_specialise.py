"""Make of a kernel, as it was lowered, one whose warps have roles: a producer that copies, consumers that compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntAttr, MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.compiler.lowering.barriers import insert_barriers
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import MOST_ROWS, boxes_layout
from treadle.dialects.cuda.rings import BARRIER_BYTES
from treadle.dialects.cuda.roles import WARPGROUP
from treadle.dialects.cuda.shared import place_tiles
from treadle.dialects.cuda.tensor_maps import MOST_AXES
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, is_buffer, is_shared, rows_of, tile_bytes
from treadle.dialects.cuda.warpgroups import why_no_product
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, sizes_of

STAGES = (4, 2, 1)
"""Places of a streamed tile, the most for which there is room: powers of two, so that the stage of a turn is a mask."""

REGISTERS = {1: (0, 0), 2: (24, 240), 3: (32, 160)}
"""Registers of a thread of the producer's warpgroup and of a consumer, by the number of consumer warpgroups: with one,
every thread has as many as there can be."""


@dataclass(frozen=True)
class Reason:
    """Why a kernel keeps one role: the law that is missing, and the fact that shows it."""

    law: str
    fact: str


@dataclass(frozen=True)
class Specialised:
    """A kernel with roles."""

    kernel: cuda.KernelOp
    kept: tuple[int, ...]
    """Arguments of the source kernel that it takes, by position."""
    maps: tuple[tuple[int, cuda.TensorMapType], ...]
    """After those: the tensor maps of arguments of the source kernel."""
    summary: str


def inward_copies(kernel: cuda.KernelOp) -> list[cuda.CopyOp]:
    return [op for op in kernel.walk() if isinstance(op, cuda.CopyOp) and not op.is_outward]


def _is_inward(op: Operation) -> bool:
    return isinstance(op, cuda.CopyOp) and not op.is_outward


def why_not(kernel: cuda.KernelOp) -> Reason | None:
    """Why the warps of a kernel cannot have roles; None if they can."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
    copies = inward_copies(kernel)
    if not any(loop.is_ancestor(copy) for loop in loops for copy in copies):
        return Reason("a producer overlaps copies with computation", "no loop of the kernel copies tiles")
    for reason in (
        *(_copy_problem(copy) for copy in copies),
        *(_product_problem(op) for op in kernel.walk() if isinstance(op, cuda.ProductOp)),
        *(_use_problem(tile) for tile in dict.fromkeys(copy.tile for copy in copies)),
        _turns_problem(kernel, copies),
    ):
        if reason is not None:
            return reason
    groups = kernel.threads.data // WARPGROUP
    if kernel.threads.data % WARPGROUP or groups not in REGISTERS:
        fact = f"{kernel.threads.data} threads are not one, two or three warpgroups"
        return Reason("consumers are whole warpgroups", fact)
    return None


def _copy_problem(copy: cuda.CopyOp) -> Reason | None:
    law = "a producer's copies are described by tensor maps"
    name, type = f"%{copy.buffer.name_hint}", copy.tile.type
    sizes = sizes_of(type)
    wide = [axis for axis, size in sizes.items() if size != 1]
    if not 2 <= len(sizes) <= MOST_AXES:
        return Reason(law, f"{name} has {len(sizes)} axes: a tensor map has 2 to {MOST_AXES}")
    if format_bytes(type) != 2:
        return Reason("warpgroups multiply values of 16 bits", f"{name} holds {format_of(type)}")
    if len(wide) != 2 or wide[-1] != axes_of(type)[-1]:
        return Reason(law, f"pieces of {name} are no rows of neighbours: they have elements along {wide}")
    if rows_of(type).shape != tuple(sizes.values()):
        return Reason(law, f"the tile of {name} is padded, from {list(sizes.values())} to {list(rows_of(type).shape)}")
    if boxes_layout(tuple(sizes.values()), 2) is None:
        return Reason(law, f"rows of {2 * sizes[wide[-1]]} bytes of {name} are no multiple of 32")
    if sizes[wide[0]] > MOST_ROWS:
        return Reason(law, f"a box has at most {MOST_ROWS} rows, pieces of {name} {sizes[wide[0]]}")
    return None


def _product_problem(op: cuda.ProductOp) -> Reason | None:
    law = "warpgroups multiply"
    if op.instruction.data != "m16n8k16":
        return Reason(law, f"the product over '{op.axis}' runs on {op.instruction.data}")
    for tile in (_left(op), op.rhs):
        if is_shared(tile.type) and not _is_copied(tile):
            fact = f"%{tile.name_hint} is written by the consumers"
            return Reason("what warpgroups multiply comes by tensor copies", fact)
    problem = why_no_product(_left(op).type, op.rhs.type, op.result.type, op.axis)
    return None if problem is None else Reason(law, f"over '{op.axis}': {problem}")


def _left(op: cuda.ProductOp) -> SSAValue:
    """The left operand of a product: the tile, if it is read only for products."""
    owner = op.lhs.owner
    return owner.source if isinstance(owner, cuda.ReadOp) else op.lhs


def _use_problem(tile: SSAValue) -> Reason | None:
    for use in tile.uses:
        op = use.operation
        users = [each.operation for each in op.results[0].uses] if isinstance(op, cuda.ReadOp) else [op]
        for user in users:
            as_left = not isinstance(op, cuda.ReadOp) or (isinstance(user, cuda.ProductOp) and user.lhs is op.result)
            if not isinstance(user, cuda.ProductOp | cuda.CopyOp) or not as_left:
                fact = f"%{tile.name_hint} is also used by '{user.name}'"
                return Reason("what a producer brings is read by products alone", fact)
    return None


def _is_copied(tile: SSAValue) -> bool:
    return any(_is_inward(use.operation) for use in tile.uses)


def _turns_problem(kernel: cuda.KernelOp, copies: Sequence[cuda.CopyOp]) -> Reason | None:
    """Turns of a ring are counted: a copy in a branch must be the last of its tile, loops begin at 0."""
    law = "the turns of a ring can be counted"
    block, branched = kernel.body.block, set[SSAValue]()
    for copy in copies:
        if copy.tile in branched:
            return Reason(law, f"%{copy.tile.name_hint} is copied again after a copy that may not happen")
        parent = copy.parent_op()
        if parent is kernel:
            continue
        if not isinstance(parent, scf.ForOp | scf.IfOp) or parent.parent is not block:
            return Reason(law, f"%{copy.tile.name_hint} is copied in a loop in a loop")
        if isinstance(parent, scf.IfOp):
            branched.add(copy.tile)
        elif constant_of(parent.lb) != 0 or constant_of(parent.step) is None:
            return Reason(law, "a loop that copies begins elsewhere than at 0")
    for tile in dict.fromkeys(copy.tile for copy in copies):
        places = [copy.parent for copy in copies if copy.tile is tile]
        if len(places) != len(set(places)):
            return Reason(law, f"%{tile.name_hint} is copied twice in a turn")
    return None


def constant_of(value: SSAValue) -> int | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp):
        return getattr(getattr(owner.value, "value", None), "data", None)
    return None


def specialise(kernel: cuda.KernelOp, name: str, shared_limit: int) -> Specialised | Reason:
    """The kernel with roles, of that name. `why_not` must have found nothing."""
    copies = inward_copies(kernel)
    tiles = list(dict.fromkeys(copy.tile for copy in copies))
    streamed = {copy.tile for copy in copies if isinstance(copy.parent_op(), scf.ForOp)}
    stages = _stages(kernel, tiles, streamed, shared_limit)
    if stages is None:
        fact = f"one place for each piece takes more than the {shared_limit:,} bytes of shared memory of a block"
        return Reason("every stage has its place", fact)
    return _Builder(kernel, name, tiles, {tile: stages if tile in streamed else 1 for tile in tiles}).build()


def _stages(kernel: cuda.KernelOp, tiles: Sequence[SSAValue], streamed: set[SSAValue], limit: int) -> int | None:
    """The most places of a streamed tile for which there is room; None if there is none for one."""
    others = [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp) and op.result not in tiles]
    own = sum(op.stage_bytes for op in others if op.alias is None)
    leaving = max((op.stage_bytes for op in others if op.alias is not None), default=0)
    for stages in STAGES:
        boxed = sum(_boxed_bytes(tile) * (stages if tile in streamed else 1) for tile in tiles)
        rings = 2 * BARRIER_BYTES * stages * len(tiles)
        if max(own + boxed, leaving) + rings <= limit:
            return stages
    return None


def _boxed_bytes(tile: SSAValue) -> int:
    return tile_bytes(boxed_type(tile))


def boxed_type(tile: SSAValue) -> MemRefType:
    """The type of a tile when tensor copies bring it."""
    extents = tuple(sizes_of(tile.type).values())
    layout = boxes_layout(extents, format_bytes(tile.type))
    assert layout is not None
    return MemRefType(format_of(tile.type), extents, memory_space=ArrayEncoding(axes_of(tile.type), "shared", layout))


@dataclass
class _Builder:
    """The rewrite of one kernel."""

    kernel: cuda.KernelOp
    name: str
    tiles: Sequence[SSAValue]
    stages: dict[SSAValue, int]
    top: Block = field(default_factory=Block)
    common: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Values of the source that both roles know: arguments, and index arithmetic before any loop."""
    maps: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Tensor maps, by tile."""
    shared: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    rings: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    first_turns: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """The turn of a copy, in a loop that of its first turn."""
    groups: int = 0

    def build(self) -> Specialised:
        source = self.kernel.body.block
        self.groups = self.kernel.threads.data // WARPGROUP
        kept, mapped = self._arguments()
        others = self._declare(source)
        for op in source.ops:  # sizes and places, which both roles need
            if op.dialect_name() == "arith" or isinstance(op, cuda.BlockIndexOp):
                self.top.add_op(clone := op.clone(value_mapper=self.common))
                self._remember(op, clone)
        self._count_turns(source)
        self.top.add_op(cuda.ReadyOp(list(self.rings.values())))
        producer, consumers = Block(), Block()
        Producer(self).fill(source, producer, dict(self.common))
        Consumers(self).fill(source, consumers, {**self.common, **others})
        roles = cuda.RolesOp(REGISTERS[self.groups], Region(producer), self.groups, Region(consumers))
        self.top.add_op(roles)
        shared_bytes = self._place()
        threads = WARPGROUP * (1 + self.groups)
        kernel = cuda.KernelOp(self.name, threads, shared_bytes, Region(self.top))
        kernel.location = self.kernel.location
        erase_unused(kernel)
        insert_barriers(self.top, consumers)
        return Specialised(kernel, kept, mapped, self._summary())

    def _remember(self, op: Operation, clone: Operation) -> None:
        for old, new in zip(op.results, clone.results, strict=True):
            self.common[old] = new
            new.name_hint = old.name_hint

    # -- arguments ---------------------------------------------------------------------------------

    def _arguments(self) -> tuple[tuple[int, ...], tuple[tuple[int, cuda.TensorMapType], ...]]:
        arguments = self.kernel.body.block.args
        kept: list[int] = []
        for i, arg in enumerate(arguments):
            if is_buffer(arg.type) and all(_is_inward(use.operation) for use in arg.uses):
                continue
            kept.append(i)
            self.common[arg] = self._argument(arg.type, arg.name_hint)
        mapped: list[tuple[int, cuda.TensorMapType]] = []
        known: dict[tuple[SSAValue, cuda.TensorMapType], SSAValue] = {}
        for copy in inward_copies(self.kernel):
            buffer = copy.buffer
            assert isinstance(buffer, BlockArgument)
            type = cuda.TensorMapType(boxes_of(boxed_type(copy.tile)).box, buffer.type)
            if (buffer, type) not in known:
                known[buffer, type] = self._argument(type, f"{buffer.name_hint}_map")
                mapped.append((buffer.index, type))
            self.maps[copy.tile] = known[buffer, type]
        return tuple(kept), tuple(mapped)

    def _argument(self, type: Attribute, name: str | None) -> SSAValue:
        arg = self.top.insert_arg(type, len(self.top.args))
        arg.name_hint = name
        return arg

    # -- shared memory -----------------------------------------------------------------------------

    def _declare(self, source: Block) -> dict[SSAValue, SSAValue]:
        """Tiles, those that tensor copies bring first, then rings; gives the other tiles, which consumers know."""
        for tile in self.tiles:
            op = cuda.SharedOp(0, boxed_type(tile), self.stages[tile])
            self.shared[tile] = self._named(op, tile.name_hint)
        others: dict[SSAValue, SSAValue] = {}
        for op in source.ops:
            if isinstance(op, cuda.SharedOp) and op.result not in self.shared:
                others[op.result] = self._named(op.clone(), op.result.name_hint)
        for tile in self.tiles:
            ring = cuda.RingOp(0, self.groups, self.stages[tile])
            self.rings[tile] = self._named(ring, f"{plain(tile)}_ring")
        return others

    def _named(self, op: Operation, name: str | None) -> SSAValue:
        self.top.add_op(op)
        op.results[0].name_hint = name
        return op.results[0]

    def _place(self) -> int:
        end = place_tiles(op for op in self.top.ops if isinstance(op, cuda.SharedOp))
        for op in self.top.ops:
            if isinstance(op, cuda.RingOp):
                op.offset = IntAttr(end)
                end += op.bytes
        return end

    # -- turns -------------------------------------------------------------------------------------

    def _count_turns(self, source: Block) -> None:
        """Before which turn of its ring each copy stands."""
        taken: dict[SSAValue, list[SSAValue]] = {tile: [] for tile in self.tiles}
        single = dict.fromkeys(self.tiles, 0)
        for op in source.ops:
            copies = [inner for inner in op.walk() if isinstance(inner, cuda.CopyOp) and not inner.is_outward]
            for copy in copies:
                base = self._constant(single[copy.tile])
                for count in taken[copy.tile]:
                    base = self._add(base, count)
                self.first_turns[copy] = base
            for copy in copies:
                if isinstance(op, scf.ForOp):
                    taken[copy.tile].append(self._trips(op))
                else:
                    single[copy.tile] += 1

    def _trips(self, loop: scf.ForOp) -> SSAValue:
        count = arith.CeilDivUIOp(self.common[loop.ub], self.common[loop.step])
        self.top.add_op(count)
        count.result.name_hint = "turns"
        return count.result

    def _constant(self, number: int) -> SSAValue:
        self.top.add_op(op := arith.ConstantOp.from_int_and_width(number, IndexType()))
        return op.result

    def _add(self, left: SSAValue, right: SSAValue) -> SSAValue:
        if constant_of(left) == 0:
            return right
        self.top.add_op(op := arith.AddiOp(left, right))
        return op.result

    def turn(self, copy: cuda.CopyOp, block: Block, mapping: dict[SSAValue, SSAValue]) -> SSAValue:
        """The turn of a copy, where a role has reached it."""
        loop, first = copy.parent_op(), self.first_turns[copy]
        if not isinstance(loop, scf.ForOp):
            return first
        turn: Operation = arith.DivUIOp(mapping[loop.body.block.args[0]], self.common[loop.step])
        block.add_op(turn)
        turn.results[0].name_hint = "turn"
        if constant_of(first) != 0:
            block.add_op(turn := arith.AddiOp(turn.results[0], first))
            turn.results[0].name_hint = "turn"
        return turn.results[0]

    def _summary(self) -> str:
        rings = ", ".join(f"{self.stages[tile]} of %{tile.name_hint}" for tile in self.tiles)
        given, taken = REGISTERS[self.groups]
        registers = f", {given} and {taken} registers a thread" if given else ""
        groups = f"{self.groups} consumer warpgroup{'s' * (self.groups > 1)}"
        return f"1 producer and {groups}{registers}; stages: {rings}"


@dataclass
class Producer:
    """Fills the producer's body: the copies, and the loops and branches around them."""

    builder: _Builder

    def fill(self, source: Block, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        for op in source.ops:
            match op:
                case cuda.CopyOp() if not op.is_outward:
                    self._copy(op, target, mapping)
                case scf.ForOp() if self._copies(op):
                    self._loop(op, target, mapping)
                case scf.IfOp() if self._copies(op):
                    self._branch(op, target, mapping)
                case _ if op.dialect_name() == "arith" and all(operand in mapping for operand in op.operands):
                    if op.results[0] not in mapping:
                        target.add_op(clone := op.clone(value_mapper=mapping))
                        mapping[op.results[0]] = clone.results[0]
                        clone.results[0].name_hint = op.results[0].name_hint
                case _:
                    pass

    def _copies(self, op: Operation) -> bool:
        return any(isinstance(inner, cuda.CopyOp) and not inner.is_outward for inner in op.walk())

    def _copy(self, op: cuda.CopyOp, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        builder, tile = self.builder, op.tile
        ring, turn = builder.rings[tile], builder.turn(op, target, mapping)
        place = stage_of(builder, tile, turn, target, "to")
        offsets = [mapping[offset] for offset in op.offsets]
        load = cuda.TensorLoadOp(builder.maps[tile], offsets, place, ring, turn)
        load.location = op.location
        target.add_ops([cuda.AcquireOp(ring, turn), cuda.ExpectOp(ring, turn, load.bytes), load])

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


@dataclass
class Consumers:
    """Fills the body of the consumers: all but the copies, for whose pieces they wait."""

    builder: _Builder

    def fill(self, source: Block, target: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        waiting: dict[SSAValue, cuda.CopyOp] = {}
        """Tiles whose copy stands before, and which nothing has used yet."""
        held: dict[SSAValue, SSAValue] = {}
        """Turns of tiles that this block has awaited, and not yet given back."""
        for op in source.ops:
            if isinstance(op, cuda.CopyOp) and not op.is_outward:
                waiting[op.tile] = op
                continue
            if isinstance(op, cuda.BarrierOp | cuda.SharedOp | cuda.ReadOp) and not self._is_kept(op):
                continue
            if any(result in mapping for result in op.results):
                continue
            for tile in [tile for tile in waiting if uses(op, tile)]:
                self._await(waiting.pop(tile), target, mapping, held)
            self._operation(op, target, mapping)
            for tile in [tile for tile in held if not used_after(op, tile)]:
                target.add_op(cuda.ReleaseOp(self.builder.rings[tile], held.pop(tile)))

    def _is_kept(self, op: Operation) -> bool:
        return isinstance(op, cuda.ReadOp) and op.source not in self.builder.rings

    def _await(
        self, copy: cuda.CopyOp, target: Block, mapping: dict[SSAValue, SSAValue], held: dict[SSAValue, SSAValue]
    ) -> None:
        builder, tile = self.builder, copy.tile
        turn = held[tile] = builder.turn(copy, target, mapping)
        target.add_op(cuda.AwaitOp(builder.rings[tile], turn))
        mapping[tile] = stage_of(builder, tile, turn, target, "now")

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
        fill = op.accumulator.owner
        fresh = isinstance(fill, FillOp) and fill.number == 0
        accumulator = None if fresh else mapping[op.accumulator]
        left = _left(op)
        product = cuda.WarpgroupProductOp(mapping[left], mapping[op.rhs], accumulator, op.axis, op.result.type)
        product.location = op.location
        product.result.name_hint = op.result.name_hint
        wait = cuda.WarpgroupWaitOp(product.result)
        wait.location = op.location
        wait.result.name_hint = op.result.name_hint
        target.add_ops([product, wait])
        mapping[op.result] = wait.result


def stage_of(builder: _Builder, tile: SSAValue, turn: SSAValue, block: Block, suffix: str) -> SSAValue:
    """The place of a tile in a turn."""
    stages, shared = builder.stages[tile], builder.shared[tile]
    if stages == 1:
        return shared
    count = arith.ConstantOp.from_int_and_width(stages, IndexType())
    index = arith.RemUIOp(turn, count.result)
    index.result.name_hint = "stage"
    stage = cuda.StageOp(shared, index.result)
    stage.result.name_hint = f"{plain(tile)}_{suffix}"
    block.add_ops([count, index, stage])
    return stage.result


def plain(tile: SSAValue) -> str:
    return (tile.name_hint or "tile").removesuffix("_shared")


def uses(op: Operation, tile: SSAValue) -> bool:
    """Whether an operation, or one inside it, reads a tile."""
    products = [inner for inner in op.walk() if isinstance(inner, cuda.ProductOp)]
    return any(tile in (_left(product), product.rhs) for product in products)


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


def erase_unused(kernel: cuda.KernelOp) -> None:
    """Erase arithmetic, constants and stages that nothing uses."""
    for op in reversed(list(kernel.walk())):
        is_pure = op.dialect_name() == "arith" or isinstance(op, FillOp | cuda.StageOp | cuda.BlockIndexOp)
        inside = isinstance(op.parent_op(), cuda.KernelOp | cuda.RolesOp | scf.ForOp | scf.IfOp)
        if is_pure and inside and not any(list(result.uses) for result in op.results):
            Rewriter.erase_op(op)
