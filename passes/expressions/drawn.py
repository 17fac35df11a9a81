"""Conditions that are drawn: made of random bits alone, whatever data say."""

from __future__ import annotations

from treadle.dialects.diagram.random import RandomOp
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.scalars import Constant, Expression, Leaf


def is_drawn(expression: Expression) -> bool:
    """Whether an expression is made of random bits, and of numbers that stand in the program."""
    match expression:
        case Leaf():
            inner = inner_expression(expression.value)
            return inner is not None and is_drawn(inner)
        case Constant():
            return False
        case _ if expression.kind is RandomOp:
            return True
        case _:
            rest = [each for each in expression.operands if not isinstance(each, Constant)]
            return bool(rest) and all(map(is_drawn, rest))


__all__ = ["is_drawn"]
