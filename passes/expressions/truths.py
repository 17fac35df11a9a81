"""Truth values that were made numbers (`c ? 1 : 0`), as masks are stored, and asked for again (`> 0`)."""

from __future__ import annotations

import operator

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr

from treadle.passes.expressions.scalars import Constant, Expression, Node, inside_out

_COMPARES = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
"""By the predicate of `arith.cmpi`, but for those of integers without sign."""


def asked_itself(test: Expression) -> tuple[Expression, bool] | None:
    """The truth value that a comparison of integers asks for, made one of two constants, and which it must be for the
    comparison to hold; None of other expressions."""
    match test:
        case Node(kind=arith.CmpiOp, operands=(Node(kind=arith.SelectOp) as made, Constant(number=bound))):
            truth, *sides = made.operands
        case _:
            return None
    predicate = test.properties["predicate"]
    assert isinstance(predicate, IntegerAttr)
    if (index := predicate.value.data) >= len(_COMPARES):
        return None
    holds = [_COMPARES[index](side.number, bound) for side in sides if isinstance(side, Constant)]
    return (truth, holds[0]) if len(set(holds)) == 2 else None


def choosing_directly(expression: Expression) -> Expression:
    """An expression whose choices ask truth values themselves; the expression itself where they do."""
    done: dict[Expression, Expression] = {}
    for part in inside_out(expression):
        done[part] = part
        if not isinstance(part, Node):
            continue
        operands = tuple(done[operand] for operand in part.operands)
        if part.kind is arith.SelectOp and (asked := asked_itself(operands[0])) is not None:
            truth, is_so = asked
            _, yes, no = operands
            operands = (truth, yes, no) if is_so else (truth, no, yes)
        if any(new is not old for new, old in zip(operands, part.operands, strict=True)):
            done[part] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
    return done[expression]


__all__ = ["asked_itself", "choosing_directly"]
