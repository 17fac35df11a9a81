"""The tiles that a producer brings: their types, how many places each has, and the place of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import boxes_layout, reach_of_row
from treadle.dialects.cuda.layout import Mode
from treadle.dialects.cuda.rings import BARRIER_BYTES
from treadle.dialects.cuda.shared import BOXES_UNIT
from treadle.dialects.cuda.tiles import WORD, format_bytes, is_boxed, is_line, tile_bytes
from treadle.dialects.cuda.warpgroups import depth_of, row_order
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, sizes_of

STAGES = (4, 2, 1)
"""Places of a streamed tile, the most for which there is room: powers of two, so that the stage of a turn is a mask."""


def filled_together(tiles: Sequence[SSAValue]) -> list[list[SSAValue]]:
    """Tiles by the rings that they have: lines that are copied in the same places come by one, since a wait for each
    would take more instructions than what is read of it. Lanes arrive otherwise behind words, whose copies are under
    way, than behind what they have stored."""
    found: dict[tuple[object, ...], list[SSAValue]] = {}
    for tile in tiles:
        copies = (use.operation for use in tile.uses if isinstance(use.operation, cuda.CopyOp))
        places = frozenset(copy.parent for copy in copies)
        kind = (places, format_bytes(tile.type) < WORD) if is_line(tile.type) else (tile,)
        found.setdefault(kind, []).append(tile)
    return list(found.values())


class Turns(Protocol):
    """What filling the bodies of the roles needs to know of a kernel's tiles and their turns."""

    stages: dict[SSAValue, int]
    by_lanes: frozenset[SSAValue]
    """The tiles that lanes copy."""
    shared: dict[SSAValue, SSAValue]
    rings: dict[SSAValue, SSAValue]
    maps: dict[SSAValue, SSAValue]
    """Each by the tile of the source kernel; lines that are copied together have one ring."""
    row_maps: dict[SSAValue, list[SSAValue]]
    """Of those that are copied before a position."""
    run_maps: dict[Operation, list[SSAValue]]
    """Of the runs of each copy whose rows lie where data say, and of its rows where it ends at a position."""

    def turn(self, copy: cuda.CopyOp, block: Block, mapping: dict[SSAValue, SSAValue]) -> SSAValue:
        """The turn of a copy, where a role has reached it."""
        ...


def stages_for(
    kernel: cuda.KernelOp, tiles: Sequence[SSAValue], streamed: set[SSAValue], limit: int, apart: bool = False
) -> int | None:
    """The most places of a streamed tile for which there is room; None if there is none for one. `apart`: beside what
    leaves, which else lies where the tiles were."""
    others = [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp) and op.result not in tiles]
    own = sum(op.stage_bytes for op in others if op.alias is None)
    leaving = max((op.stage_bytes for op in others if op.alias is not None), default=0)
    for stages in STAGES:
        brought = 0  # one after the other, as `place_tiles` does it
        for tile in tiles:
            type = brought_type(tile)
            begin = -(-brought // BOXES_UNIT) * BOXES_UNIT if is_boxed(type) else brought
            brought = begin + tile_bytes(type) * (stages if tile in streamed else 1)
        turns = sum(stages if streamed.intersection(each) else 1 for each in filled_together(tiles))
        rings = 2 * BARRIER_BYTES * turns
        size = own + brought + leaving if apart else max(own + brought, leaving)
        if size + rings <= limit:
            return stages
    return None


def brought_type(tile: SSAValue) -> Attribute:
    """The type of a tile when a producer brings it: by tensor copies, or by its lanes as a block's threads do."""
    return tile.type if is_line(tile.type) else boxed_type(tile)


def boxed_type(tile: SSAValue) -> MemRefType:
    """The type of a tile when tensor copies bring it."""
    sizes = tuple(sizes_of(tile.type).values())
    layout = boxes_layout(extents_in_boxes(tile), format_bytes(tile.type), order_of(tile))
    assert layout is not None
    return MemRefType(format_of(tile.type), sizes, memory_space=ArrayEncoding(axes_of(tile.type), "shared", layout))


def extents_in_boxes(tile: SSAValue) -> tuple[int, ...]:
    """How far the boxes of a tile reach along each axis: as far as products sum, and rows to the end of a box."""
    sizes, bytes, step = sizes_of(tile.type), format_bytes(tile.type), depth_of(tile.type)
    summed = {product.axis for product in products_of(tile)}
    row = next((axis for axis in reversed(sizes) if sizes[axis] != 1), None)
    reach = {axis: -(-size // step) * step if axis in summed else size for axis, size in sizes.items()}
    if row is not None:
        reach[row] = reach_of_row(sizes[row], bytes)
    return tuple(reach.values())


def products_of(tile: SSAValue) -> list[cuda.ProductOp]:
    """Those that multiply a tile, from shared memory or from registers."""
    users = [use.operation for use in tile.uses]
    users += [use.operation for read in users if isinstance(read, cuda.ReadOp) for use in read.result.uses]
    return [user for user in users if isinstance(user, cuda.ProductOp)]


def order_of(tile: SSAValue) -> tuple[Mode, ...]:
    """In which order products want the rows of a tile: that of the columns of what they make (`why_not` has seen that
    they agree)."""
    products = [use.operation for use in tile.uses if isinstance(use.operation, cuda.ProductOp)]
    return next((row_order(op.result.type) for op in products if op.rhs is tile), ())


def stage_of(turns: Turns, tile: SSAValue, turn: SSAValue, block: Block, suffix: str) -> SSAValue:
    """The place of a tile in a turn."""
    stages, shared = turns.stages[tile], turns.shared[tile]
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
