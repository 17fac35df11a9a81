"""Loads and saves: what moves between device memory and a group."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from treadle.compiler.layouts.operations import is_fewest
from treadle.compiler.lowering.absent import is_met_by_absent, tells
from treadle.compiler.lowering.conditions import present
from treadle.compiler.lowering.conversions import stored_layout
from treadle.compiler.lowering.fragments import fragment_of, fragment_type
from treadle.compiler.lowering.names import hinted
from treadle.compiler.lowering.pending import PendingLoad
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import allocate, tile_of
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, rows_layout
from treadle.dialects.cuda.tiles import is_shared, layout_of
from treadle.dialects.diagram.array import axes_of, format_of, level_of, sizes_of
from treadle.dialects.diagram.contract import is_multiplied
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.dialects.hierarchy import LoadOp, SaveOp
from treadle.dialects.hierarchy.bounded import is_factor


def lower_load(lowering: KernelLowering, op: LoadOp) -> None:
    axes = axes_of(op.result.type)
    source = lowering.scalar(op.source)
    offsets = tuple(lowering.offset(axis) for axis in axes)

    def is_multiplied_with_absent(axis: str) -> bool:
        return is_met_by_absent(op.result, axis) and not tells(op.result)

    with lowering.holding(op.result):
        bounds = lowering.bounds(axes, is_multiplied_with_absent)
        begins = lowering.beginnings(axes, is_multiplied_with_absent)
    padding, scatter = lowering.padding_of(op.source), lowering.scattered.get(op.source)
    pending = PendingLoad(op, source, offsets, bounds, begins, padding, scatter, lowering.block, {})
    if not is_multiplied(op.result) and (level_of(op.result.type) != "shared" or is_factor(op.result)):
        lowering.values[op.result] = pending
        return
    tile = tile_of(lowering, lowering.twin(op), op.result)
    copy = lowering.emit(cuda.CopyOp(source, offsets, tile, bounds, begins=begins, padding=padding, scatter=scatter))
    copy.location = op.location
    copy.partial = lowering.partial_mark(bounds)
    lowering.values[op.result] = tile


def lower_save(lowering: KernelLowering, op: SaveOp) -> None:
    axes = axes_of(op.value.type)
    destination, scatter = lowering.scalar(op.destination), lowering.scattered.get(op.destination)
    value = fragment_of(lowering, op.value, lowering.layouts.of(op.value))
    value = present(lowering, op.value, value, lowering.layouts.of(op.value), 0)
    offsets = [lowering.offset(axis) for axis in axes]
    bounds = lowering.bounds(axes)
    if scatter is not None:
        inside = lowering.padding_of(op.destination)
        store = lowering.emit(cuda.StoreOp(value, destination, offsets, bounds, padding=inside, scatter=scatter))
        store.location, store.partial = op.location, lowering.partial_mark(bounds)
        return
    if _is_scattered(lowering, op.value, layout_of(value.type), destination.type):
        value = _gather(lowering, op.value, value)
    if is_shared(value.type):
        store = lowering.emit(cuda.CopyOp(value, offsets, destination, bounds))
    else:
        store = lowering.emit(
            cuda.StoreOp(_spread(lowering, op.value, value, destination), destination, offsets, bounds)
        )
    store.location = op.location
    store.partial = lowering.partial_mark(bounds)


def _spread(lowering: KernelLowering, source: SSAValue, value: SSAValue, destination: SSAValue) -> SSAValue:
    """The fragments of a result as they are stored."""
    layout = stored_layout(value.type, destination.type)
    if layout == layout_of(value.type):
        return value
    return hinted(lowering.emit(cuda.ExchangeOp(value, fragment_type(lowering, source, layout))).result, source)


def _is_scattered(lowering: KernelLowering, value: SSAValue, layout: LayoutAttr, buffer: Attribute) -> bool:
    """Whether the fragments of a result hold too few neighbours to fill the sectors they would write: pairs of
    elements of 16 bits or fewer, of which four lanes make at most half a sector. A result of the last step only, since
    its tile takes the place of all others. (Pairs of 32 bits fill sectors, where rows begin with them.)"""
    if (
        lowering.block is not lowering.top
        or not lowering.plan.contractions
        or FORMAT_BYTES[str(format_of(value.type))] >= 4
    ):
        return False
    return bool(lowering.plan.wide_axes(value)) and not is_fewest(layout, buffer, sizes_of(value.type))


def _gather(lowering: KernelLowering, value: SSAValue, fragments: SSAValue) -> SSAValue:
    """The fragments of a result in shared memory, whence they leave in full rows."""
    layout = layout_of(fragments.type)
    extents = [max(size, layout.extent(axis)) for axis, size in sizes_of(value.type).items()]
    rows = rows_layout(extents, 16 // FORMAT_BYTES[str(format_of(value.type))])
    tile = allocate(lowering, value, rows, alias=True)
    lowering.emit(cuda.WriteOp(fragments, tile.result))
    return tile.result
