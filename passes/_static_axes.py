"""Axes of known size. Along one without elements nothing is computed: what is combined is the neutral element, or what
the combination starts from; an array that has one holds nothing, whatever it is made of. So no kernel has to hold such
an array. And the size of an axis that only a map adds, which no array tells at a launch, is a number."""

from __future__ import annotations

from xdsl.dialects import arith, func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.lowering.numbers import neutral_of
from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, FillOp, ReadOp, ReduceOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, is_array, sizes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.passes._functions import label, note, replace


def fold_extents(function: func.FuncOp, block: Block, rewrite: str) -> None:
    """Replace the size of each axis that is known and that neither an argument nor a result of the function has."""
    outer = [*function.function_type.inputs, *function.function_type.outputs]
    told = {axis for type in outer for axis in sizes_of(type)}
    results = [result for op in block.ops for result in op.results]
    known = {axis: size for result in results for axis, size in sizes_of(result.type).items() if size != DYNAMIC}
    for op in [op for op in block.ops if isinstance(op, ExtentOp)]:
        axis = op.axis.data
        if axis in told or axis not in known:
            continue
        name, constant = label(op.result), arith.ConstantOp.from_int_and_width(known[axis], 32)
        constant.location = op.location
        replace(op, [constant], constant.result)
        note(function, rewrite, name, "the size of an axis", f"axis '{axis}' has {known[axis]}, and only a map has it")


def fold_empty_axes(function: func.FuncOp, block: Block, rewrite: str) -> None:
    """Replace the operations of a block that have nothing to compute. `rewrite` is the pass that notes it."""
    for op in list(block.ops):
        # reads and regroupings give axes their sizes
        if not isinstance(op, DiagramOperation) or isinstance(op, FillOp | ReadOp | Regrouping):
            continue
        if not op.results or not all(is_array(result.type) for result in op.results):
            continue
        if (axis := next((axis for result in op.results if (axis := _empty_axis(result))), None)) is not None:
            law = "an array without elements"
            new: list[Operation] = [FillOp(neutral_of("add", format_of(each.type)), each.type) for each in op.results]
        elif isinstance(op, ContractOp | ReduceOp) and (axis := _empty_axis_over(op)) is not None:
            law = "a combination of nothing"
            new = [_of_nothing(op)]
        else:
            continue
        names = ", ".join(label(result) for result in op.results)
        for each in new:
            each.location = op.location
        replace(op, new, *(each.results[0] for each in new))
        note(function, rewrite, names, law, f"axis '{axis}' has no elements")


def _empty_axis(value: SSAValue) -> str | None:
    return next((axis for axis, size in sizes_of(value.type).items() if size == 0), None)


def _empty_axis_over(op: ContractOp | ReduceOp) -> str | None:
    operands = (op.lhs, op.rhs) if isinstance(op, ContractOp) else (op.operand,)
    found = (_empty_axis(operand) for operand in operands)
    return next((axis for axis in found if axis in op.over_axes), None)


def _of_nothing(op: ContractOp | ReduceOp) -> Operation:
    """What the operation starts from, or the neutral element."""
    if op.init is not None:
        return CastOp(op.init, op.result.type)
    kind = op.kind.data if isinstance(op, ReduceOp) else "add"
    return FillOp(neutral_of(kind, format_of(op.result.type)), op.result.type)
