"""Results with merged dimensions (heads and width, say, as one), which are no axis of a diagram.

What is computed has an axis for each of them, and lies in memory as the merged one would. So the merge stays as what it
is, a view of that array (`tensor.collapse_shape`), and what it gives is an array again, whose merged dimension has the
names of all that are in it: `h` and `d` merged are `h_d`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

from xdsl.dialects import func, tensor
from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.passes.linalg.loops import groups_of


def name_merged_results(function: func.FuncOp) -> None:
    """Make arrays of the merged results of a function that diagrams compute; of others nothing."""
    terminator = function.body.block.last_op
    assert terminator is not None
    arrays = [*function.body.block.args, *(value for op in function.walk() for value in op.results)]
    taken = {axis for value in arrays if is_array(value.type) for axis in axes_of(value.type)}
    for index, operand in enumerate(terminator.operands):
        merge = operand.owner
        if not isinstance(merge, tensor.CollapseShapeOp) or (source := computed(merge.src)) is None:
            continue
        axes = _merged(sizes_of(source.type), groups_of(merge), taken)
        array = UnrealizedConversionCastOp.get([operand], [array_type(format_of(source.type), axes)])
        function.body.block.insert_op_before(array, terminator)
        array.location = merge.location
        array.results[0].name_hint = operand.name_hint
        terminator.operands[index] = array.results[0]


def computed(value: SSAValue) -> SSAValue | None:
    """The array that a plain tensor is another type of, if it is made anew. An argument, and what is read of one, may
    lie in memory in any way."""
    cast = value.owner
    if not isinstance(cast, UnrealizedConversionCastOp) or not is_array(cast.inputs[0].type):
        return None
    array = cast.inputs[0]
    return array if isinstance(array.owner, DiagramOperation) and not isinstance(array.owner, ReadOp) else None


def _merged(sizes: dict[str, int], groups: Sequence[Sequence[int]], taken: set[str]) -> dict[str, int]:
    names = list(sizes)
    found: dict[str, int] = {}
    for group in groups:
        inside = [names[dim] for dim in group]
        name = inside[0] if len(inside) == 1 else _free("_".join(inside), taken)
        lengths = [sizes[axis] for axis in inside]
        found[name] = DYNAMIC if DYNAMIC in lengths else prod(lengths)
        taken.add(name)
    return found


def _free(name: str, taken: set[str]) -> str:
    return next(each for each in (name + "_" * more for more in count()) if each not in taken)
