"""Reductions: of a thread's own elements, then of the lanes that hold a row's."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Region, SSAValue

from treadle.compiler.lowering.absent import neutral_number
from treadle.compiler.lowering.conditions import present
from treadle.compiler.lowering.conversions import stays_in_threads
from treadle.compiler.lowering.fragments import fragment_of, fragment_type, is_filled, masked
from treadle.compiler.lowering.names import named, placed, plain_name
from treadle.compiler.lowering.numbers import neutral_of
from treadle.compiler.lowering.runs import yielded
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram import FillOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, format_of
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
    result = lowering.emit(
        ReduceOp(op.kind.data, value, op.over_axes, fragment_type(lowering, op.result, layout), init)
    )
    if op in lowering.apart:
        result.attributes[PARTIAL] = UnitAttr()
    return placed(result, op, result.result, op.result)


def _layout_of_operand(lowering: KernelLowering, op: ReduceOp) -> LayoutAttr:
    """How what is reduced lies in registers: whoever combines the sums of lanes must take the same."""
    return lowering.layouts.reduced(op) or lowering.layouts.of(op.operand)


def combined(lowering: KernelLowering, reduce: ReduceOp, value: SSAValue, arg: SSAValue) -> SSAValue:
    """The whole of a reduction whose lanes kept to their own elements during a stream."""
    masks = _masks(lowering, reduce)
    if not masks:
        return value
    combine = lowering.emit(cuda.CombineOp(reduce.kind.data, value, masks))
    return named(combine.result, plain_name(arg))


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
