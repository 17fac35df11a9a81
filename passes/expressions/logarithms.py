"""Logarithms of shares: `log(exp(u) / v) = u - log v`.

Over the reals both are the same. In f32 the right-hand side has a number where the power is too small for one."""

from __future__ import annotations

from xdsl.dialects import arith, math

from treadle.passes.expressions.scalars import Expression, Node, difference, total, unary
from treadle.passes.expressions.signs import is_nonnegative


def without_powers(expression: Expression) -> Expression:
    """An expression where logarithms of powers, and of shares and products of powers, are sums."""
    if not isinstance(expression, Node):
        return expression
    operands = tuple(without_powers(operand) for operand in expression.operands)
    if expression.kind is math.LogOp and (sum := _logarithm(operands[0])) is not None:
        return sum
    if all(new is old for new, old in zip(operands, expression.operands, strict=True)):
        return expression
    node = expression
    return Node(node.kind, operands, node.type, node.properties, node.hint, node.location)


def _logarithm(of: Expression) -> Expression | None:
    """The logarithm of a product that has a power among its factors; None of others."""
    match of:
        case Node(kind=math.ExpOp, operands=(exponent,)):
            return exponent
        case Node(kind=arith.DivfOp | arith.MulfOp, operands=operands) if all(map(is_nonnegative, operands)):
            logarithms = [_logarithm(operand) for operand in operands]
            if all(each is None for each in logarithms):
                return None
            left, right = (
                unary(math.LogOp, operand) if known is None else known
                for operand, known in zip(operands, logarithms, strict=True)
            )
            return difference(left, right) if of.kind is arith.DivfOp else total(left, right)
        case _:
            return None
