"""Make of a kernel, as it was lowered, one whose warps have roles: a producer that copies, consumers that compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.compiler.lowering.barriers import insert_barriers
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import TURNS, blocks_that_share
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.rings import place_shared
from treadle.dialects.cuda.roles import WARPGROUP
from treadle.dialects.cuda.tensor_maps import rows_types
from treadle.dialects.cuda.tiles import boxes_of, is_buffer, is_line
from treadle.dialects.diagram import FillOp
from treadle.passes.loops.turns import count_turns, is_number_loaded, known_to_all, needed_for
from treadle.passes.warps.consumers import Consumers
from treadle.passes.warps.laws import (
    BUSY,
    BY_LANES,
    REGISTERS,
    Reason,
    constant_of,
    ends_of,
    inward_copies,
    is_by_rows,
    reads_of,
    row_of,
    run_of,
    shares_of_blocks,
    tiles_by_lanes,
    why_no_map,
)
from treadle.passes.warps.producer import Producer
from treadle.passes.warps.tiles import boxed_type, brought_type, filled_together, plain, stages_for

PRODUCER_WARPS = WARPGROUP // LANES
"""Warps of a producer whose lanes copy tiles: all of the warpgroup that it has anyway, one on each part of an SM."""


@dataclass(frozen=True)
class Specialised:
    """A kernel with roles."""

    kernel: cuda.KernelOp
    kept: tuple[int, ...]
    """Arguments of the source kernel that it takes, by position."""
    maps: tuple[tuple[int, cuda.TensorMapType], ...]
    """After those: the tensor maps of arguments of the source kernel."""
    summary: str


def specialise(kernel: cuda.KernelOp, name: str, machine: Machine) -> Specialised | Reason:
    """The kernel with roles, of that name. `why_not` must have found nothing."""
    kernel = kernel.clone()
    if blocks_that_share(kernel) > 1 and _needs_its_registers(kernel):
        kernel.attributes[TURNS] = IntAttr(1)
    count_turns(dict.fromkeys(copy.parent_op() for copy in inward_copies(kernel)))
    copies = inward_copies(kernel)
    by_lanes = tiles_by_lanes(copies)
    tiles = list(dict.fromkeys(copy.tile for copy in copies))
    streamed = {copy.tile for copy in copies if isinstance(copy.parent_op(), scf.ForOp)}
    resident = blocks_that_share(kernel)
    shared_limit = int(machine.shared_of_block(resident))
    stages = stages_for(kernel, tiles, streamed, shared_limit, apart=resident > 1)
    if stages is None:
        fact = f"one place for each piece takes more than the {shared_limit:,} bytes of shared memory of a block"
        return Reason("every stage has its place", fact)
    return Builder(kernel, name, tiles, by_lanes, {tile: stages if tile in streamed else 1 for tile in tiles}).build()


def _needs_its_registers(kernel: cuda.KernelOp) -> bool:
    """Whether a producer does more than start copies, so that it cannot give most of its registers to consumers."""
    by_lanes = tiles_by_lanes(inward_copies(kernel))
    return bool(by_lanes) or _is_busy(kernel, by_lanes)


def _is_busy(kernel: cuda.KernelOp, by_lanes: frozenset[SSAValue]) -> bool:
    """Whether a producer loads where loops end, or walks runs of rows."""
    copies = inward_copies(kernel)
    loads = any(isinstance(op, cuda.LoadOp | cuda.SelectOp) for op in needed_for(ends_of(copies, by_lanes)))
    return loads or any(copy.place is not None for copy in copies)


@dataclass
class Builder:
    """The rewrite of one kernel."""

    kernel: cuda.KernelOp
    name: str
    tiles: Sequence[SSAValue]
    by_lanes: frozenset[SSAValue]
    stages: dict[SSAValue, int]
    top: Block = field(default_factory=Block)
    common: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Values of the source that both roles know: arguments, and index arithmetic before any loop."""
    maps: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Tensor maps, by tile."""
    row_maps: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    """Those of its rows, of a tile that is copied before a position."""
    run_maps: dict[Operation, list[SSAValue]] = field(default_factory=dict[Operation, list[SSAValue]])
    shared: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    rings: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    first_turns: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """The turn of a copy, in a loop that of its first turn."""
    groups: int = 0
    registers: tuple[int, int] = (0, 0)

    def build(self) -> Specialised:
        source = self.kernel.body.block
        self.groups = self.kernel.threads.data // WARPGROUP
        kept, mapped = self._arguments()
        others = self._declare(source)
        known, needed = known_to_all(source), needed_for(ends_of(inward_copies(self.kernel), self.by_lanes))
        is_busy = _is_busy(self.kernel, self.by_lanes)
        copying = PRODUCER_WARPS if any(not is_line(tile.type) for tile in self.by_lanes) else 1
        shares = BY_LANES if copying > 1 else BUSY if is_busy else REGISTERS
        resident = blocks_that_share(self.kernel)
        alone = shares.get(self.groups, REGISTERS[self.groups])
        self.registers = shares_of_blocks(resident) if resident > 1 else alone
        for op in source.ops:  # sizes and places, which both roles need
            is_number = op.dialect_name() == "arith" or isinstance(op, cuda.BlockIndexOp) or op in needed
            if is_number and known.issuperset(op.results):
                self.top.add_op(clone := op.clone(value_mapper=self.common))
                self._remember(op, clone)
                if isinstance(op, cuda.SelectOp):
                    self.top.add_op(cuda.BarrierOp())  # all that follows, both roles too, may read the list
        self._count_turns(source)
        self.top.add_op(cuda.ReadyOp(list(dict.fromkeys(self.rings.values()))))
        producer, consumers = Block(), Block()
        Producer(self, needed).fill(source, producer, dict(self.common))
        Consumers(self).fill(source, consumers, {**self.common, **others})
        roles = cuda.RolesOp(self.registers, Region(producer), self.groups, Region(consumers), copying)
        self.top.add_op(roles)
        shared_bytes = place_shared(self.top)
        threads = WARPGROUP * (1 + self.groups)
        kernel = cuda.KernelOp(self.name, threads, shared_bytes, Region(self.top))
        kernel.attributes |= self.kernel.attributes
        kernel.resident = IntAttr(resident) if resident > 1 else None
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
            if is_buffer(arg.type) and all(self._is_mapped(use.operation, arg) for use in arg.uses):
                continue
            kept.append(i)
            self.common[arg] = self._argument(arg.type, arg.name_hint)
        mapped: list[tuple[int, cuda.TensorMapType]] = []
        known: dict[tuple[SSAValue, cuda.TensorMapType], SSAValue] = {}

        def map_of(buffer: SSAValue, type: cuda.TensorMapType, name: str) -> SSAValue:
            assert isinstance(buffer, BlockArgument)
            if (buffer, type) not in known:
                known[buffer, type] = self._argument(type, f"{buffer.name_hint}_{name}")
                mapped.append((buffer.index, type))
            return known[buffer, type]

        for copy in inward_copies(self.kernel):
            if copy.tile in self.by_lanes:
                continue
            boxes = boxes_of(boxed_type(copy.tile))
            if copy.place is not None:
                self.run_maps[copy] = [map_of(copy.buffer, run := run_of(copy), "map")]
                if is_by_rows(copy) and (row := row_of(copy)) != run:
                    self.run_maps[copy].append(map_of(copy.buffer, row, "row"))
                continue
            type = cuda.TensorMapType(boxes.box, copy.buffer.type, boxes.order)
            self.maps[copy.tile] = map_of(copy.buffer, type, "map")
            if is_by_rows(copy):
                of_rows = zip(rows_types(type, boxes), ("rows", "row"), strict=True)
                self.row_maps[copy.tile] = [map_of(copy.buffer, each, name) for each, name in of_rows]
        return tuple(kept), tuple(mapped)

    def _is_mapped(self, op: Operation, buffer: SSAValue) -> bool:
        """Whether an operation is a copy of a buffer that a tensor map describes."""
        if not isinstance(op, cuda.CopyOp) or op.is_outward or op.tile in self.by_lanes:
            return False
        return op.buffer is buffer and buffer not in op.entries

    def _argument(self, type: Attribute, name: str | None) -> SSAValue:
        arg = self.top.insert_arg(type, len(self.top.args))
        arg.name_hint = name
        return arg

    # -- shared memory -----------------------------------------------------------------------------

    def _declare(self, source: Block) -> dict[SSAValue, SSAValue]:
        """Tiles, those that the producer brings first, then rings; gives the other tiles, which consumers know."""
        for tile in self.tiles:
            op = cuda.SharedOp(0, brought_type(tile), self.stages[tile])
            self.shared[tile] = self._named(op, tile.name_hint)
        others: dict[SSAValue, SSAValue] = {}
        for op in source.ops:
            if isinstance(op, cuda.SharedOp) and op.result not in self.shared:
                is_list = any(isinstance(use.operation, cuda.SelectOp) for use in op.result.uses)
                place = self.common if is_list else others
                place[op.result] = self._named(op.clone(), op.result.name_hint)
        for tiles in filled_together(self.tiles):
            tile, *_ = tiles
            by_warps, by_lanes = any(reads_of(tile)), tile in self.by_lanes
            ring = cuda.RingOp(0, self.groups, self.stages[tile], by_warps=by_warps, by_lanes=by_lanes)
            self.rings |= dict.fromkeys(tiles, self._named(ring, f"{plain(tile)}_ring"))
        return others

    def _named(self, op: Operation, name: str | None) -> SSAValue:
        self.top.add_op(op)
        op.results[0].name_hint = name
        return op.results[0]

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
                    taken[copy.tile].append(self.common[op.ub])
                else:
                    single[copy.tile] += 1

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
        turn = mapping[loop.body.block.args[0]]
        if constant_of(first) == 0:
            return turn
        block.add_op(later := arith.AddiOp(first, turn))
        later.result.name_hint = "turn"
        return later.result

    def _summary(self) -> str:
        rings = ", ".join(f"{self.stages[tile]} of %{tile.name_hint}" for tile in self.tiles)
        given, taken = self.registers
        resident = blocks_that_share(self.kernel)
        beside = f" of {resident} blocks on a multiprocessor" if resident > 1 else ""
        registers = f", {given} and {taken} registers a thread{beside}" if given else ""
        groups = f"{self.groups} consumer warpgroup{'s' * (self.groups > 1)}"
        lanes = [tile for tile in self.tiles if tile in self.by_lanes and not is_line(tile.type)]
        copied = f", whose {PRODUCER_WARPS * LANES} lanes copy {_named(lanes)} ({_why(lanes[0])})" if lanes else ""
        return f"1 producer{copied} and {groups}{registers}; stages: {rings}"


def _named(tiles: Sequence[SSAValue]) -> str:
    return " and ".join(f"%{tile.name_hint}" for tile in tiles)


def _why(tile: SSAValue) -> str:
    """Why no tensor copies bring a tile."""
    copies = (use.operation for use in tile.uses)
    problems = (why_no_map(copy) for copy in copies if isinstance(copy, cuda.CopyOp) and not copy.is_outward)
    return next(problem.fact for problem in problems if problem is not None)


UNUSED = FillOp | cuda.StageOp | cuda.BlockIndexOp | cuda.SelectedOp
"""What goes where nothing uses it, beside arithmetic."""


def erase_unused(kernel: cuda.KernelOp) -> None:
    """Erase arithmetic, constants and stages that nothing uses, and numbers loaded for copies alone."""
    for op in reversed(list(kernel.walk())):
        is_pure = op.dialect_name() == "arith" or isinstance(op, UNUSED) or is_number_loaded(op)
        inside = isinstance(op.parent_op(), cuda.KernelOp | cuda.RolesOp | scf.ForOp | scf.IfOp)
        if is_pure and inside and not any(list(result.uses) for result in op.results):
            Rewriter.erase_op(op)
