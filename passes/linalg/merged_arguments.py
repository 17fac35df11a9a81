"""Arguments with merged dimensions: a diagram says that several axes are one (`diagram.collapse`)."""

from __future__ import annotations

from xdsl.dialects import func, tensor
from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CollapseOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of, is_array, sizes_of
from treadle.passes.linalg.loops import groups_of


def collapse_merged_arguments(function: func.FuncOp) -> None:
    """Put a diagram in the place of each merge of dimensions of an argument that diagrams read, where those that are
    not merged are the same axes on both sides. Whatever else is merged stays."""
    for op in list(function.body.block.ops):
        if isinstance(op, tensor.CollapseShapeOp) and (source := _argument(op.src)) is not None:
            for cast in [use.operation for use in op.result.uses]:
                if isinstance(cast, UnrealizedConversionCastOp) and is_array(cast.results[0].type):
                    _replace(cast, op, source)
            _erase_unused(op)


def _argument(value: SSAValue) -> SSAValue | None:
    """The array that a plain tensor is another type of, if that is an argument."""
    cast = value.owner
    if not isinstance(cast, UnrealizedConversionCastOp) or not isinstance(cast.inputs[0], BlockArgument):
        return None
    return cast.inputs[0] if is_array(cast.inputs[0].type) else None


def _replace(cast: UnrealizedConversionCastOp, merge: tensor.CollapseShapeOp, source: SSAValue) -> None:
    made = _collapsed(merge, source, cast.results[0])
    if made is None:
        return
    array = source
    for op in made:
        op.location = merge.location
        Rewriter.insert_op(op, InsertPoint.before(cast))
        array = op.results[0]
        array.name_hint = cast.results[0].name_hint
    cast.results[0].replace_all_uses_with(array)
    _erase_unused(cast)


def _collapsed(merge: tensor.CollapseShapeOp, source: SSAValue, target: SSAValue) -> list[CollapseOp] | None:
    """One operation for each merged dimension; None where axes that stay have other names, or one becomes an axis that
    the argument has besides."""
    names, wanted = list(sizes_of(source.type)), sizes_of(target.type)
    made: list[CollapseOp] = []
    array = source
    for group, (whole, size) in zip(groups_of(merge), wanted.items(), strict=True):
        parts = [names[dim] for dim in group]
        if len(parts) == 1 and parts[0] != whole:
            return None
        if len(parts) == 1:
            continue
        before = sizes_of(array.type)
        static = DYNAMIC not in [before[axis] for axis in parts]
        if whole in names or static != (size != DYNAMIC):
            return None
        sizes = {
            (whole if axis == parts[0] else axis): (size if axis == parts[0] else length)
            for axis, length in before.items()
            if axis not in parts[1:]
        }
        made.append(CollapseOp(array, parts, whole, array_type(format_of(array.type), sizes)))
        array = made[-1].result
    return made if array.type == target.type else None


def _erase_unused(op: Operation) -> None:
    """Erase an operation that nothing uses, and the conversion of its operand that only it used."""
    if any(result.uses for result in op.results):
        return
    before = op.operands[0].owner
    op.detach()
    op.erase()
    if isinstance(before, UnrealizedConversionCastOp) and before.parent is not None:
        _erase_unused(before)


__all__ = ["collapse_merged_arguments"]
