"""Values as fragments in a layout."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, scf
from xdsl.ir import Attribute, SSAValue

from treadle.compiler.lowering.absent import filler_beyond, is_made_of
from treadle.compiler.lowering.conversions import (
    is_exchanged,
    loaded_layout,
    renumbered,
    staging_rows,
    stays_in_threads,
)
from treadle.compiler.lowering.intervals import mask
from treadle.compiler.lowering.names import hinted, named, placed
from treadle.compiler.lowering.numbers import number_in
from treadle.compiler.lowering.pending import PendingFill, PendingIndex, PendingLoad
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import tile_of
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import is_line, is_shared, layout_of
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import Number, array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import StreamOp


def fragment_type(lowering: KernelLowering, value: SSAValue, layout: LayoutAttr) -> Attribute:
    return array_type(format_of(value.type), sizes_of(value.type), "register", layout)


def operand_of(lowering: KernelLowering, value: SSAValue, layout: LayoutAttr) -> SSAValue:
    """An operand of a map or cast, spread over the threads as `layout` is."""
    if not is_array(value.type):
        return lowering.scalar(value)
    wanted = layout.slice(axes_of(value.type))
    lowered = lowering.values[value]
    if isinstance(lowered, SSAValue) and not is_shared(lowered.type):
        found = layout_of(lowered.type)
        if found.spread() == wanted.spread():
            return lowered
    return fragment_of(lowering, value, wanted)


def fragment_of(lowering: KernelLowering, value: SSAValue, layout: LayoutAttr) -> SSAValue:
    """The value as fragments in exactly this layout."""
    lowered = lowering.values[value]
    type = fragment_type(lowering, value, layout)
    if isinstance(lowered, PendingFill):
        return fill(lowering, type, lowered.op.value, value)
    if isinstance(lowered, PendingIndex):
        return hinted(lowering.emit(cuda.IndexOp(lowered.offset, type)).result, value)
    if isinstance(lowered, PendingLoad):
        if type not in lowered.loaded:
            lowered.loaded[type] = _load_fragment(lowering, lowered, type, value)
        return lowered.loaded[type]
    if is_shared(lowered.type):
        return _read(lowering, lowered, type, value)
    if lowered.type == type:
        return lowered
    return _convert(lowering, value, lowered, type)


def _load_fragment(lowering: KernelLowering, pending: PendingLoad, type: Attribute, source: SSAValue) -> SSAValue:
    """Loaded as it is wanted, or in whole sectors and then exchanged among the lanes."""
    layout = layout_of(type) if pending.scatter is not None else loaded_layout(type, pending.buffer.type)
    with lowering.inside(pending.block):
        if (same := _loaded_alike(pending, type)) is not None:
            return hinted(lowering.emit(renumbered(same, type)).result, source)
        loaded = fragment_type(lowering, source, layout)
        load = lowering.emit(
            cuda.LoadOp(
                pending.buffer,
                pending.offsets,
                loaded,
                pending.bounds,
                begins=pending.begins,
                padding=pending.padding,
                scatter=pending.scatter,
            )
        )
        load.partial = lowering.partial_mark(pending.bounds)
        result = placed(load, pending.op, load.result, source)
        if layout != layout_of(type) and stays_in_threads(layout, layout_of(type)):
            result = hinted(lowering.emit(renumbered(result, type)).result, source)
        elif layout != layout_of(type):
            exchange = lowering.emit(cuda.ExchangeOp(result, type))
            result = placed(exchange, pending.op, exchange.result, source)
        ends = [axis for axis in axes_of(source.type) if _is_whole(lowering, axis)]
        return _filled_along(lowering, ends, source, result, layout_of(type))


def _loaded_alike(pending: PendingLoad, type: Attribute) -> SSAValue | None:
    """What was loaded already, if every thread has all that it needs of it."""
    of_same = (each for each in pending.loaded if stays_in_threads(layout_of(each), layout_of(type)))
    return next((pending.loaded[each] for each in of_same), None)


def _read(lowering: KernelLowering, tile: SSAValue, type: Attribute, source: SSAValue) -> SSAValue:
    """What is read of a line stays in registers for what is computed next; of other tiles a thread has more to hold."""
    if not is_line(tile.type):
        return hinted(lowering.emit(cuda.ReadOp(tile, type)).result, source)
    if (read := _read_before(lowering, tile, type)) is not None:
        return read
    if not _is_shared_by_steps(lowering, tile):
        return hinted(lowering.emit(cuda.ReadOp(tile, type)).result, source)
    if (tile, type) not in lowering.shared_reads:
        with lowering.inside(lowering.top):
            read = lowering.emit(cuda.ReadOp(tile, type))
        lowering.shared_reads[tile, type] = hinted(read.result, source)
    return lowering.shared_reads[tile, type]


def _is_shared_by_steps(lowering: KernelLowering, tile: SSAValue) -> bool:
    """Whether what is read of a tile within a loop is the same in all turns: nothing but copies before it fills it."""
    changing = lowering.offsets.keys() - lowering.plan.group_axes.keys()
    if lowering.block is lowering.top or changing & set(axes_of(tile.type)):
        return False
    fills = [use.operation for use in tile.uses if isinstance(use.operation, cuda.CopyOp | cuda.WriteOp)]
    return all(isinstance(op, cuda.CopyOp) and op.parent is lowering.top for op in fills)


def _read_before(lowering: KernelLowering, tile: SSAValue, type: Attribute) -> SSAValue | None:
    """The same, read since the last product and since the tile was filled."""
    op = lowering.block.last_op
    while op is not None and not isinstance(op, cuda.ProductOp | scf.ForOp | scf.IfOp):
        if isinstance(op, cuda.CopyOp | cuda.WriteOp) and tile in op.operands:
            return None
        if isinstance(op, cuda.ReadOp) and op.source is tile and op.result.type == type:
            return op.result
        op = op.prev_op
    return None


def _convert(lowering: KernelLowering, value: SSAValue, lowered: SSAValue, type: Attribute) -> SSAValue:
    """The same elements in another layout: in other registers of the same threads, in other lanes, or through shared
    memory, whichever is cheapest."""
    source, target = layout_of(lowered.type), layout_of(type)
    if stays_in_threads(source, target):
        return hinted(lowering.emit(renumbered(lowered, type)).result, value)
    if is_exchanged(source, target, type):
        return hinted(lowering.emit(cuda.ExchangeOp(lowered, type)).result, value)
    tile = tile_of(lowering, (value, "convert"), value, staging_rows(source, target, type))
    lowering.emit(cuda.WriteOp(lowered, tile))
    return _read(lowering, tile, type, value)


def fill(lowering: KernelLowering, type: Attribute, number: Number, source: SSAValue | None = None) -> SSAValue:
    fill = lowering.emit(FillOp(number, type))
    return fill.result if source is None else hinted(fill.result, source)


def masked(
    lowering: KernelLowering,
    value: SSAValue,
    axis: str,
    other: Number,
    layout: LayoutAttr,
    begin: SSAValue | None = None,
    stop: SSAValue | None = None,
) -> SSAValue:
    """Elements outside the axis, before `begin` or from `stop` on, replaced, where there may be any, and those past the
    piece that the layout has beyond it: the next piece brings them."""
    piece = lowering.plan.pieces[axis]
    if axis not in axes_of(value.type):
        return value
    overhangs = layout.extent(axis) > piece
    if axis in lowering.bounded or begin is not None or stop is not None:
        # The smaller last piece ends where the axis does; of others, only some may reach that far.
        limit = stop or lowering.size(axis)
        if overhangs and lowering.partial != axis:
            limit = _end_of_piece(lowering, axis, limit)
        made = mask(lowering, value, axis, lowering.offset(axis), begin, limit, other)
    elif overhangs:
        made = mask(lowering, value, axis, lowering.index(0), None, lowering.index(piece), other)
    else:
        return value
    return hinted(made.result, value)


def filled(lowering: KernelLowering, source: SSAValue, value: SSAValue, layout: LayoutAttr) -> SSAValue:
    """A fragment of `source` with a number past the ends of axes, if one changes nothing in all that it meets there:
    then nothing that is made of it is masked again."""
    axes, pieces = axes_of(source.type), lowering.plan.pieces
    for axis in axes:
        lowering.filled.setdefault(axis, set()).discard(source)
    ends = [axis for axis in axes if axis in lowering.bounded and layout.extent(axis) <= pieces[axis]]
    return _filled_along(lowering, ends, source, value, layout)


def _filled_along(
    lowering: KernelLowering, axes: Iterable[str], source: SSAValue, value: SSAValue, layout: LayoutAttr
) -> SSAValue:
    for axis in axes:
        if (filler := filler_beyond(source, axis)) is not None:
            value = masked(lowering, value, axis, number_in(format_of(value.type), filler), layout)
            lowering.filled.setdefault(axis, set()).add(source)
    return value


def is_filled(lowering: KernelLowering, value: SSAValue, axis: str) -> bool:
    """Whether a number stands past the end of an axis that changes nothing in what a value meets along it."""
    ends = axis in lowering.bounded or _is_whole(lowering, axis)
    return ends and is_made_of(value, lowering.filled.get(axis, ()))


def _is_whole(lowering: KernelLowering, axis: str) -> bool:
    """Whether every group holds all of an axis, so that its layout alone reaches past its end."""
    plan = lowering.plan
    streamed = any(isinstance(op, StreamOp) and op.axis == axis for op in plan.group.walk())
    return axis not in plan.group_axes and not streamed


def _end_of_piece(lowering: KernelLowering, axis: str, size: SSAValue) -> SSAValue:
    end = lowering.emit(arith.AddiOp(lowering.offset(axis), lowering.index(lowering.plan.pieces[axis]))).result
    return named(lowering.emit(arith.MinSIOp(end, size)).result, f"{axis}_end")
