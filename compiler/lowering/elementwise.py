"""Maps and casts: each thread on its own elements."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.compiler.lowering.fragments import fragment_type, operand_of
from treadle.compiler.lowering.invariants import Invariant, body_of, body_without, invariants_of
from treadle.compiler.lowering.names import placed
from treadle.compiler.lowering.sharing import share_among_present
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import array_type, sizes_of
from treadle.dialects.diagram.lagging import skip_ones, skips_ones


def lower_map(lowering: KernelLowering, op: MapOp) -> SSAValue:
    """A map; what it makes of fewer axes, of which a thread has fewer elements, is made before it."""
    layout = lowering.layouts.of(op.result)
    inputs = [operand_of(lowering, operand, layout) for operand in op.inputs]
    few = [each for each in invariants_of(op) if layout.slice(each.axes).register_shape != layout.register_shape]
    made = [_lower_invariant(lowering, op, each, inputs, layout) for each in few]
    needed, body = body_without(op, [each.value for each in few])
    share_among_present(lowering, op, body.block)
    given = [*(inputs[number] for number in needed), *made]
    result = lowering.emit(MapOp(given, fragment_type(lowering, op.result, layout), body))
    if skips_ones(op) and given[0].type == result.result.type:
        skip_ones(result)
    return placed(result, op, result.result, op.result)


def _lower_invariant(
    lowering: KernelLowering, op: MapOp, part: Invariant, inputs: Sequence[SSAValue], layout: LayoutAttr
) -> SSAValue:
    """One value for each element of the axes that it depends on."""
    sizes = sizes_of(op.result.type)
    type = array_type(f32, {axis: sizes[axis] for axis in part.axes}, "register", layout.slice(part.axes))
    needed, body = body_of(op, part.value)
    result = lowering.emit(MapOp([inputs[number] for number in needed], type, body))
    return placed(result, op, result.result, part.value)


def lower_cast(lowering: KernelLowering, op: CastOp) -> SSAValue:
    layout = lowering.layouts.of(op.result)
    result = lowering.emit(CastOp(operand_of(lowering, op.operand, layout), fragment_type(lowering, op.result, layout)))
    return placed(result, op, result.result, op.result)
