"""What arrays are converted from, or repeated: on the way a condition may leave elements, which stay what they were."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import format_of, is_array
from treadle.dialects.diagram.formats import holds, known_format
from treadle.passes.expressions.scalars import Leaf, Node, expression_of, is_plain


def converted(op: Operation | Block) -> SSAValue | None:
    """What an operation converts to another format, or repeats, and nothing else; None if it does anything else."""
    if isinstance(op, CastOp):
        return op.operand
    if not isinstance(op, MapOp) or len(op.inputs) != 1 or not is_plain(op):
        return None
    expression = expression_of(op)
    if isinstance(expression, Node) and expression.kind in (arith.ExtFOp, arith.TruncFOp):
        (expression,) = expression.operands
    if not isinstance(expression, Leaf) or not is_array(expression.value.type):
        return None
    return expression.value if _is_float(format_of(op.result.type)) else None


def source_in(value: SSAValue, format: Attribute) -> SSAValue | None:
    """What a value that is wanted in a format is converted from, or repeats, if that is the same in this format: it is
    the one that is wanted, or holds all numbers of what it was before. None if there is none."""
    source, between = converted(value.owner), format_of(value.type)
    if source is None or not (between == format or holds(between, format_of(source.type))):
        return None
    return source


def _is_float(format: Attribute) -> bool:
    known = known_format(format)
    return known is not None and known.is_float


__all__ = ["converted", "source_in"]
