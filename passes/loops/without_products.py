"""How the pieces of streams without products come ahead of the turns that need them.

A turn that computes no product (a part of a softmax, of a norm, of any sum along a long row) loads its pieces to
registers, and waits for them. Three ways lead ahead of that wait:

- by *registers*: a turn begins with the loads of the next one, so that these are on their way while it computes. A
  thread then holds two pieces at a time.
- by *shared memory*: loads become asynchronous copies to tiles, and reads of these. A thread holds one piece.
- by *nvcc*: where no turn meets, it lays several side by side, and their loads before all that they compute. More
  pieces are under way so than one ahead, and either other way would take turns apart.

The first is taken if it leaves as many blocks on a multiprocessor as the kernel states, the second if the first is not
and as many blocks have the memory. The turns of a recurrence are shorter than memory takes, and their results, which
they save, keep nvcc from loading before them: shared memory, which holds many of its pieces, comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntAttr, MemRefType, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.conversions import staging_rows
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.kernel import TURN_REGISTERS
from treadle.dialects.cuda.roles import register_cap
from treadle.dialects.cuda.tiles import layout_of, tile_bytes
from treadle.dialects.cuda.transfers import IN_VECTORS
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, sizes_of
from treadle.dialects.hierarchy.stream import RECURS
from treadle.passes.loops.ahead import are_known_ahead, constant_of, step_of
from treadle.passes.loops.load_ahead import MOST_WORDS, Loads
from treadle.passes.staging.always import always_dealt, always_staged

TWO = 2
"""Stages that registers give: the piece of this turn, and that of the next one."""

FEWER = 4
"""Registers by which ptxas may take fewer than the cost model counts, so that a multiprocessor holds more blocks than
the kernel states. With that, ptxas 13.0 gives no example fewer blocks for its stages than it gave it without them."""

Kind = Literal["registers", "shared", "declined"]

Tile = tuple[SSAValue, MemRefType]
"""The array of which a tile in shared memory has a piece at a time, and its type."""


@dataclass(frozen=True)
class Way:
    """What is done for one loop; if nothing, what law keeps it from that, and by which numbers."""

    loads: Loads
    kind: Kind
    law: str = ""
    reason: str = ""


def ways_of(kernel: cuda.KernelOp, stages: int, machine: Machine, has_copies: bool) -> list[Way]:
    """The way of each loop of a kernel without products that copies nothing to shared memory. `has_copies` says whether
    the machine copies asynchronously."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
    found: list[Way] = []
    tiles: set[Tile] = set()
    for loop in loops:
        if any(isinstance(op, cuda.CopyOp | cuda.ProductOp) for op in loop.walk()):
            continue
        way = _Choice(kernel, stages, machine, has_copies, frozenset(tiles)).way(loop)
        tiles |= set(map(_tile_of, way.loads.loads)) if way.kind == "shared" else set()
        found.append(way)
    return found


@dataclass(frozen=True)
class _Choice:
    """What decides on one loop."""

    kernel: cuda.KernelOp
    stages: int
    machine: Machine
    has_copies: bool
    tiles: frozenset[Tile]
    """Of the loops before: those of one stream follow each other, and share them."""

    def way(self, loop: scf.ForOp) -> Way:
        every = [op for op in loop.walk() if isinstance(op, cuda.LoadOp)]
        loads = Loads(loop, tuple(op for op in every if _may_be_ahead(op, loop)), is_early=True)
        if not every:
            return Way(loads, "declined", "what is ahead is loaded", "a turn loads nothing")
        if not loads.loads:
            law = "loads depend on nothing the loop computes"
            return Way(loads, "declined", law, f"those of {_names(every)} do")
        if (turns := _turns_of(loop)) is not None and turns < TWO:
            return Way(loads, "declined", "a turn has a next one", f"the loop of {loads.names} has {turns} turn")
        if recurs(loop):
            if not self._why_not_copied(loads):
                return Way(loads, "shared")
            return replace(self, stages=TWO)._way_of_two(loads, loop)
        return self._way_of_two(loads, loop)

    def _way_of_two(self, loads: Loads, loop: scf.ForOp) -> Way:
        through = [op for op in loads.loads if always_staged(op, self.kernel)]
        if self.stages == TWO and not through and not meets(loop):
            told = f"nvcc lays turns that do not meet side by side, with their loads of {loads.names} in front"
            return Way(loads, "declined", "no turn waits alone", f"{told}, {loads.words} registers each")
        if not (no_registers := self._why_not_in_registers(loads, through)):
            return Way(loads, "registers")
        if not (no_room := self._why_not_copied(loads)):
            return Way(loads, "shared")
        return Way(loads, "declined", "an SM holds as many blocks", f"{no_registers}; {no_room}")

    @property
    def _blocks(self) -> int:
        """That a multiprocessor is to hold."""
        return 1 if self.kernel.resident is None else self.kernel.resident.data

    @property
    def _most_blocks(self) -> int:
        """That it holds if the kernel takes a few registers fewer than were counted."""
        loops = (op for op in self.kernel.body.block.ops if isinstance(op, scf.ForOp))
        counted = max(filter(None, map(_counted, loops)), default=0)
        if counted <= FEWER or self.kernel.resident is None:
            return self._blocks
        held = self.machine.blocks_on_sm(self.kernel.threads.data // WARP, counted - FEWER, 0)
        return max(self._blocks, int(held))

    def _why_not_in_registers(self, loads: Loads, through: Sequence[cuda.LoadOp]) -> str:
        """Why a thread does not hold what is ahead; nothing if it does. `through` are those of the loads that go
        through shared memory anyway."""
        if through:
            return f"copies of {_names(through)} go through shared memory"
        if self.stages > TWO:
            return f"registers hold {TWO} stages"
        if loads.words > MOST_WORDS:
            return f"{loads.names} of the next turn in {loads.words} registers, of {MOST_WORDS} at most"
        counted, most = _counted(loads.loop), register_cap(self.kernel.threads.data, self._blocks)
        if counted is None or counted + loads.words <= most:
            return ""
        told = f"{counted} registers of a thread, and {loads.words} for {loads.names} of the next turn"
        return f"{told}, of {most} beside {self._blocks} blocks"

    def _why_not_copied(self, loads: Loads) -> str:
        """Why loads do not become copies to stages in shared memory; nothing if they do."""
        if not self.has_copies:
            return f"{self.machine.name}, {self.machine.arch}, copies nothing asynchronously"
        if any(load.place is not None for load in loads.loads):
            return "what lies where data say is not copied ahead"
        if dealt := [op for op in loads.loads if always_dealt(op, self.kernel)]:
            return f"copies of {_names(dealt)} look where sectors begin, in registers that nobody counts"
        capacity, limits, blocks = int(self.machine.levels["shared"].capacity), self.machine.limits, self._most_blocks
        room = min(capacity // blocks - limits.shared_reserved, limits.shared_per_block)
        tiles = self.tiles | set(map(_tile_of, loads.loads))
        needed = self.kernel.shared_bytes.data + self.stages * sum(tile_bytes(type) for _, type in tiles)
        if needed <= room:
            return ""
        return f"{self.stages} stages take {needed:,} bytes of shared memory a block, {blocks} have {room:,} each"


def _counted(loop: scf.ForOp) -> int | None:
    """Registers of a thread in a turn, where the cost model has counted them."""
    match loop.attributes.get(TURN_REGISTERS):
        case IntAttr(data=int(counted)):
            return counted
        case _:
            return None


def _names(loads: Sequence[cuda.LoadOp]) -> str:
    return ", ".join(f"%{op.source.name_hint}" for op in loads)


def _may_be_ahead(load: cuda.LoadOp, loop: scf.ForOp) -> bool:
    """Whether a load stands in every turn, and its place depends on nothing but the position."""
    return load.parent is loop.body.block and bool(list(load.result.uses)) and are_known_ahead(load.operands, loop)


def _turns_of(loop: scf.ForOp) -> int | None:
    """How many there are, where the bounds are constants."""
    if not all(isinstance(value.owner, arith.ConstantOp) for value in (loop.lb, loop.ub)):
        return None
    return -(-max(constant_of(loop.ub) - constant_of(loop.lb), 0) // step_of(loop))


def recurs(op: Operation) -> bool:
    """Whether it is the loop of a recurrence, which takes a position each turn."""
    return RECURS in op.attributes


def meets(loop: scf.ForOp) -> bool:
    """Whether threads wait for each other in a turn: at a barrier, or where lanes exchange what they reduce."""
    return any(isinstance(op, cuda.BarrierOp) or _exchanges(op) for op in loop.walk())


def _exchanges(op: object) -> bool:
    if isinstance(op, cuda.CombineOp):
        return True
    if not isinstance(op, ReduceOp) or PARTIAL in op.attributes:
        return False
    return bool(lane_masks(layout_of(op.operand.type), op.over_axes))


def _tile_of(load: cuda.LoadOp) -> Tile:
    return load.source, _tile_type(load)


def _tile_type(load: cuda.LoadOp) -> MemRefType:
    """The tile in shared memory that a load goes through: as `coalescing` lays it, without conflicts of banks."""
    type, layout = load.result.type, layout_of(load.result.type)
    encoding = ArrayEncoding(axes_of(type), "shared", staging_rows(layout, layout, type))
    return MemRefType(format_of(type), tuple(sizes_of(type).values()), memory_space=encoding)


def copy_ahead(kernel: cuda.KernelOp, loads: Sequence[cuda.LoadOp]) -> None:
    """Make loads copies to tiles, and reads of these, for `pipelining` to make asynchronous. A last piece goes through
    the tile of the others if it went through shared memory anyway."""
    through = {load for load in loads if always_staged(load, kernel)}
    tiles: dict[Tile, SSAValue] = {}
    for load in loads:
        place = _tile_of(load)
        tiles[place] = tiles[place] if place in tiles else _allocate(kernel, load)
        alike = [op for op in kernel.walk() if isinstance(op, cuda.LoadOp) and _is_last_piece_of(op, load)]
        for each in (load, *(alike if load in through else ())):
            _copy(each, tiles[place])


def _is_last_piece_of(op: cuda.LoadOp, load: cuda.LoadOp) -> bool:
    """Whether a load brings what is left of an array behind the loop of another one."""
    around = op.parent_op()
    if (
        not isinstance(around, scf.IfOp)
        or op.place is not None
        or (op.source, op.result.type) != (load.source, load.result.type)
    ):
        return False
    loop = load.parent_op()
    return loop is not None and around.parent is loop.parent and loop.is_before_in_block(around)


def _allocate(kernel: cuda.KernelOp, load: cuda.LoadOp) -> SSAValue:
    """A tile behind those that the kernel has."""
    tile = cuda.SharedOp(kernel.shared_bytes.data, _tile_type(load))
    tile.result.name_hint = f"{load.source.name_hint or 'tile'}_staged"
    tile.location = load.location
    block = kernel.body.block
    first, before = block.first_op, [op for op in block.ops if isinstance(op, cuda.SharedOp)]
    assert first is not None
    Rewriter.insert_op(tile, InsertPoint.after(before[-1]) if before else InsertPoint.before(first))
    return tile.result


def _copy(load: cuda.LoadOp, tile: SSAValue) -> None:
    bounds = tuple(zip(load.bound_axes, load.limits, strict=True))
    begins = tuple(zip(load.begun_axes, load.begins, strict=True))
    copy = cuda.CopyOp(load.source, load.offsets, tile, bounds, begins=begins, padding=load.padding)
    copy.partial, copy.location = load.partial, load.location
    copy.attributes[IN_VECTORS] = UnitAttr()
    read = cuda.ReadOp(tile, load.result.type)
    read.location, read.result.name_hint = load.location, load.result.name_hint
    Rewriter.insert_op(copy, InsertPoint.before(load))
    Rewriter.replace_op(load, read)
