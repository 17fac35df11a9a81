"""A function whose axes are merged: arrays are collapsed where they enter, and expanded where they leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram import CollapseOp, ContractOp, ExpandOp, ReadOp, ReduceOp, SwapOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, SizesAttr, array_type, axes_of, format_of, sizes_of
from treadle.passes._functions import derived_hint, fresh_hint, note
from treadle.passes.axes.divided import asked_together, is_beside, read_beside, read_divided
from treadle.passes.axes.names import axes_in, unused

LAW = "a tuple of axes is an axis"
LONGEST_NAME = 63


ALIKE = "side by side in every array that has one of them"


def merge(
    function: func.FuncOp, block: Block, axes: Sequence[str], rewrite: str, why: str = ALIKE, whole: str = ""
) -> None:
    """One axis in the place of several, in every operation of a function; its arguments and results keep theirs.
    `whole` is its name, if it has one."""
    whole = whole or name_of(axes, block)
    terminator = block.last_op
    assert isinstance(terminator, func.ReturnOp)
    wanted = {value: value.type for value in terminator.operands if axes[0] in axes_of(value.type)}
    beside = [op for op in block.ops if isinstance(op, ReadOp) and is_beside(op, axes)]
    for op in beside:
        read_beside(op, axes, whole)
    for op in list(block.ops):
        if isinstance(op, WhereOp) and axes[0] in axes_of(op.result.type):
            asked_together(op, axes, whole)
        if isinstance(op, ReadOp) and op not in beside and axes[0] in axes_of(op.result.type):
            read_divided(op, axes, whole, sizes_of(op.result.type)[axes[1]])
        if isinstance(op, SwapOp) and op.axis.data in axes:
            inside = axes[axes.index(op.axis.data) + 1 :]
            op.properties["block_length"] = IntAttr(op.length * prod(sizes_of(op.result.type)[each] for each in inside))
            op.properties["axis"] = StringAttr(whole)
        for result in op.results:
            if axes[0] in axes_of(result.type):
                Rewriter.replace_value_with_new_type(result, merged(result.type, axes, whole))
        if isinstance(op, ContractOp | ReduceOp) and axes[0] in op.over_axes:
            op.properties["over"] = ArrayAttr(StringAttr(axis) for axis in _replaced(op.over_axes, axes, whole))
    for argument in block.args:
        if axes[0] in axes_of(argument.type):
            left = [op for op in block.ops if isinstance(op, ReadOp) and op not in beside]
            _collapse(argument, axes, whole, [*left, terminator])
    _expand_results(terminator, axes, whole, list(wanted.values()))
    _state_size(function, axes, whole)
    note(function, rewrite, f"[{', '.join(axes)}] as {whole}", LAW, why)


def _collapse(argument: SSAValue, axes: Sequence[str], whole: str, left: Sequence[Operation]) -> None:
    """To those that are left, an argument stays what it is: one that is returned as it is, or that a read says where to
    find."""
    uses = [use for use in argument.uses if use.operation not in left]
    if not uses:
        return
    first = argument.owner.first_op if isinstance(argument.owner, Block) else None
    assert first is not None
    op = CollapseOp(argument, axes, whole, merged(argument.type, axes, whole))
    op.location = uses[0].operation.location
    op.result.name_hint = derived_hint(argument, "flat")
    Rewriter.insert_op(op, InsertPoint.before(first))
    for use in uses:
        use.operation.operands[use.index] = op.result


def _expand_results(terminator: func.ReturnOp, axes: Sequence[str], whole: str, types: Sequence[Attribute]) -> None:
    left = iter(types)
    made: dict[SSAValue, SSAValue] = {}
    for index, value in enumerate(terminator.operands):
        if whole not in axes_of(value.type):
            continue
        if value not in made:
            op = ExpandOp(value, whole, axes, next(left))
            op.location = terminator.location
            op.result.name_hint, value.name_hint = value.name_hint, fresh_hint(value, _flat(value))
            Rewriter.insert_op(op, InsertPoint.before(terminator))
            made[value] = op.result
        terminator.operands[index] = made[value]


def _flat(value: SSAValue) -> str | None:
    return f"{value.name_hint}_flat" if value.name_hint else None


def _state_size(function: func.FuncOp, axes: Sequence[str], whole: str) -> None:
    """The default of a symbolic axis, where those of its parts are known."""
    stated = function.attributes.get("sizes")
    if isinstance(stated, SizesAttr) and whole in (known := default_sizes(function)):
        function.attributes["sizes"] = SizesAttr({**stated.as_dict(), whole: known[whole]})


def merged(type: Attribute, axes: Sequence[str], whole: str) -> Attribute:
    """The type of an array that has one axis in the place of several."""
    sizes = sizes_of(type)
    lengths = [sizes[axis] for axis in axes]
    length = DYNAMIC if DYNAMIC in lengths else prod(lengths)
    return array_type(format_of(type), {axis: sizes.get(axis, length) for axis in _replaced(sizes, axes, whole)})


def _replaced(names: Iterable[str], axes: Sequence[str], whole: str) -> list[str]:
    return [whole if axis == axes[0] else axis for axis in names if axis not in axes[1:]]


def name_of(axes: Sequence[str], block: Block) -> str:
    """A name that no axis of a function has."""
    return unused("_".join(axes)[: LONGEST_NAME - 8], axes_in(block))


__all__ = ["LAW", "merge", "merged", "name_of"]
