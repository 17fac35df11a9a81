"""Reductions: of a thread's own elements, then of the lanes that hold a row's, of the warps that do, and of the blocks
of a cluster (`cluster`).

Lanes exchange what they have by shuffles. Warps that share a row write their parts to a tile in shared memory, one
element a warp, and every thread reads those of its rows: in the order of the warps, so that all have the same."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Region, SSAValue

from treadle.compiler.lowering.absent import neutral_number
from treadle.compiler.lowering.cluster import is_shared_by_blocks, of_blocks
from treadle.compiler.lowering.conditions import present
from treadle.compiler.lowering.conversions import staging_rows, stays_in_threads
from treadle.compiler.lowering.fragments import fragment_of, fragment_type, is_filled, masked
from treadle.compiler.lowering.names import hinted, named, placed, plain_name
from treadle.compiler.lowering.numbers import neutral_of
from treadle.compiler.lowering.runs import yielded
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import tile_of
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.parts import gathered_layout, parts_layout, warps_along
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import FillOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.hierarchy import StreamOp

KEPT = ("add", "max", "min")
"""Reductions of which each lane may keep its own part."""


def lower_reduce(lowering: KernelLowering, op: ReduceOp) -> SSAValue:
    source = _layout_of_operand(lowering, op)
    layout = source.slice(axes_of(op.result.type))
    value = fragment_of(lowering, op.operand, source)
    value = present(lowering, op.operand, value, source, neutral_number(op.kind.data, value))
    for axis in (axis for axis in op.over_axes if not is_filled(lowering, op.operand, axis)):
        value = masked(lowering, value, axis, neutral_of(op.kind.data, format_of(value.type)), source)
    init = None if op.init is None else fragment_of(lowering, op.init, layout)
    is_apart = op in lowering.apart
    # What every warp would begin with counts once: where their parts meet.
    meets = not is_apart and warps_along(source, op.over_axes) > 1
    of_cluster = is_shared_by_blocks(lowering, op)
    begin = None if of_cluster else init
    type = fragment_type(lowering, op.result, layout)
    result = lowering.emit(ReduceOp(op.kind.data, value, op.over_axes, type, None if meets else begin))
    if is_apart or meets:
        result.attributes[PARTIAL] = UnitAttr()
    found = placed(result, op, result.result, op.result)
    if meets:
        found = _of_warps(lowering, op, _of_lanes(lowering, op, found, op.result), begin)
    return of_blocks(lowering, op, found, init) if of_cluster else found


def _layout_of_operand(lowering: KernelLowering, op: ReduceOp) -> LayoutAttr:
    """How what is reduced lies in registers: whoever combines the sums of lanes must take the same."""
    return lowering.layouts.reduced(op) or lowering.layouts.of(op.operand)


def combined(lowering: KernelLowering, reduce: ReduceOp, value: SSAValue, arg: SSAValue) -> SSAValue:
    """The whole of a reduction whose lanes, and warps, kept to their own elements during a stream."""
    return _of_warps(lowering, reduce, _of_lanes(lowering, reduce, value, arg))


def _of_lanes(lowering: KernelLowering, reduce: ReduceOp, value: SSAValue, source: SSAValue) -> SSAValue:
    """What each warp has, of what each of its lanes has."""
    masks = _masks(lowering, reduce)
    if not masks:
        return value
    combine = lowering.emit(cuda.CombineOp(reduce.kind.data, value, masks))
    return named(combine.result, plain_name(source))


def _of_warps(lowering: KernelLowering, reduce: ReduceOp, value: SSAValue, init: SSAValue | None = None) -> SSAValue:
    """The whole, of what each warp has as its part; `init` is what it begins with."""
    source = _layout_of_operand(lowering, reduce)
    count = warps_along(source, reduce.over_axes)
    if count == 1:
        return value
    axis = _axis_of_parts(lowering, reduce)
    format, sizes = format_of(value.type), sizes_of(value.type) | {axis: count}

    def of_parts(layout: LayoutAttr) -> Attribute:
        return array_type(format, sizes, "register", layout)

    by_warp, gathered = (
        parts_layout(source, reduce.over_axes, axis),
        gathered_layout(layout_of(value.type), axis, count),
    )
    parts = hinted(lowering.emit(cuda.PartsOp(value, of_parts(by_warp))).result, value)
    rows = staging_rows(by_warp, gathered, parts.type)
    tile = tile_of(lowering, (reduce, "parts"), parts, rows)
    lowering.emit(cuda.WriteOp(parts, tile))
    every = hinted(lowering.emit(cuda.ReadOp(tile, of_parts(gathered))).result, value)
    whole = lowering.emit(ReduceOp(reduce.kind.data, every, (axis,), value.type, init))
    return placed(whole, reduce, whole.result, value)


def _axis_of_parts(lowering: KernelLowering, reduce: ReduceOp) -> str:
    """A name for the axis along which warps lie, that no axis of the kernel has."""
    axis = f"{reduce.over_axes[0]}_warp"
    while axis in lowering.plan.pieces:
        axis += "_"
    return axis


def _masks(lowering: KernelLowering, reduce: ReduceOp) -> tuple[int, ...]:
    """The lanes that hold a row together, as bits of their numbers."""
    return tuple(lane_masks(_layout_of_operand(lowering, reduce), reduce.over_axes))


def kept_by_lanes(lowering: KernelLowering, stream: StreamOp, index: int) -> list[ReduceOp]:
    """The reductions that make one state of a stream, in its step and at its border, if the lanes may each reduce their
    own elements and meet only at the end: one that starts from its neutral element, and whose state before the step
    goes nowhere but into it, that of a sum at most multiplied by something that all lanes along the axis agree on.
    Reductions are associative and commutative, and multiplication distributes over a sum. None otherwise, nor where the
    state lies in another layout than what is reduced: on the way there only one lane's part would be taken along; nor
    where a row lies in one lane in the step and in several at the border: the lanes would hold the whole besides."""
    start = yielded(stream.initialise)[index].owner
    found = [_kept_by_lanes(step, index) for step in stream.steps]
    reduces = [reduce for reduce in found if reduce is not None]
    if not isinstance(start, FillOp) or len(reduces) < len(found) or len({reduce.kind for reduce in reduces}) > 1:
        return []
    state = lowering.layouts.of(stream.step.block.args[index])
    if any(_moves(lowering, reduce, state) for reduce in reduces):
        return []
    if len({_masks(lowering, reduce) for reduce in reduces}) > 1:
        return []
    return reduces if start.number == neutral_number(reduces[0].kind.data, start.result) else []


def _moves(lowering: KernelLowering, reduce: ReduceOp, state: LayoutAttr) -> bool:
    """Whether a state changes its layout on the way from one step to the next."""
    own = _layout_of_operand(lowering, reduce).slice(axes_of(reduce.result.type))
    return state != own and not stays_in_threads(state, own)


def _kept_by_lanes(step: Region, index: int) -> ReduceOp | None:
    state = step.block.args[index]
    reduce = yielded(step)[index].owner
    if not isinstance(reduce, ReduceOp) or reduce.kind.data not in KEPT or len(list(reduce.result.uses)) != 1:
        return None
    if reduce.init is None or len(list(state.uses)) != 1:
        return None
    if reduce.init is state:
        return reduce
    if reduce.kind.data != "add":
        return None
    scale = reduce.init.owner
    if not isinstance(scale, MapOp) or len(list(scale.result.uses)) != 1 or state not in scale.inputs:
        return None
    factor = scale.yielded.owner
    own = scale.body.block.args[list(scale.inputs).index(state)]
    if not isinstance(factor, arith.MulfOp) or not {factor.lhs, factor.rhs} <= set(scale.body.block.args):
        return None
    return reduce if own in factor.operands and len(list(own.uses)) == 1 else None
