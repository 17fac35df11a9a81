"""Reductions that begin with an array: the same with that array combined after them."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Operation

from treadle.dialects.diagram import ReduceOp
from treadle.passes._functions import replace
from treadle.passes.expressions.scalars import Leaf, Node, build_map, convert
from treadle.passes.gradients.laws import is_float

COMBINE: dict[str, type[Operation]] = {"mul": arith.MulfOp, "max": arith.MaximumfOp, "min": arith.MinimumfOp}
"""What takes two elements, of those reductions whose gradient asks which element it was."""


def take_out_beginnings(block: Block) -> None:
    """Combine what reductions of floats begin with in a map of its own: one more element is one more operand. Sums need
    that not, for each summand counts alike."""
    for op in list(block.ops):
        if not isinstance(op, ReduceOp) or op.init is None or not is_float(op.result.type):
            continue
        if (kind := COMBINE.get(op.kind.data)) is None:
            continue
        alone = ReduceOp(op.kind.data, op.operand, op.over_axes, op.result.type)
        alone.location = op.location
        alone.result.name_hint = op.result.name_hint
        both = Node(kind, (convert(Leaf(op.init), f32), convert(Leaf(alone.result), f32)), f32)
        map = build_map(both, op.result.type, op.result.name_hint, op.location)
        replace(op, [alone, map], map.result)
