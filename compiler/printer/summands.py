"""What is reduced where it is made: the result of a map of arrays whose axes differ.

A map of arrays with different axes (`Q[q, d] K[x, d]`, to be summed over d) makes an element for each index of all
axes. If all were made before they are reduced, all would be in registers at once."""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from treadle.dialects.cuda.tiles import is_fragment, layout_of
from treadle.dialects.diagram import FillOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NARROW
from treadle.dialects.diagram.sharing import sharing_in


def summand(op: ReduceOp) -> MapOp | None:
    """The map that a reduction makes its elements by, one after the other: a lane has more of them than of any operand
    and than of what they are reduced to, nothing else needs them, neighbours share nothing, and what stands in between
    takes no operand."""
    map = op.operand.owner
    if not isinstance(map, MapOp) or sharing_in(map.body.block) is not None:
        return None
    if map.parent is not op.parent or len(list(op.operand.uses)) != 1:
        return None
    if not is_fragment(op.operand.type) or str(format_of(op.operand.type)) in NARROW:
        return None
    if any(_elements(value) >= _elements(op.operand) for value in map.inputs):
        return None
    if _elements(op.result) >= _elements(op.operand):
        return None
    between = map.next_op
    while isinstance(between, FillOp):
        between = between.next_op
    return map if between is op else None


def is_summand(map: MapOp) -> bool:
    """Whether a reduction makes the elements of a map."""
    reductions = [use.operation for use in map.result.uses if isinstance(use.operation, ReduceOp)]
    return any(summand(op) is map for op in reductions)


def _elements(value: SSAValue) -> int:
    """That a lane has of a value."""
    return prod(layout_of(value.type).register_shape) if is_fragment(value.type) else 1
