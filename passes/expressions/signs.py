"""What can be proved about signs. "Unknown" is always a right answer."""

from __future__ import annotations

import math as numbers

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp, ScanOp, WhereOp
from treadle.passes.expressions.inner import look_through
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
)


def is_nonnegative(expression: Expression) -> bool:
    """Whether no value of an expression is below zero, proved from its form."""
    expression = look_through(expression)
    match expression:
        case Constant():
            return expression.number >= 0
        case Leaf():
            return _is_nonnegative_array(expression.value)
        case Node(kind=math.ExpOp | math.Exp2Op | math.AbsFOp | math.SqrtOp | math.RsqrtOp):
            return True
        case Node(kind=arith.MulfOp, operands=(left, right)) if left is right or left == right:
            return True
        case Node(kind=arith.MulfOp | arith.DivfOp | arith.AddfOp, operands=operands):
            return all(is_nonnegative(operand) for operand in operands)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            return is_nonpositive(operand)
        case Node(kind=arith.SubfOp, operands=(left, right)):
            return is_nonnegative(left) and is_nonpositive(right)
        case Node(kind=math.Log1pOp, operands=(operand,)):
            return is_nonnegative(operand)
        case Node(kind=math.LogOp, operands=(operand,)):
            return least(operand) >= 1
        case Node(kind=arith.MaximumfOp, operands=operands):
            return any(is_nonnegative(operand) for operand in operands)
        case Node(kind=arith.MinimumfOp, operands=operands):
            return all(is_nonnegative(operand) for operand in operands)
        case Node(kind=arith.SelectOp, operands=(_, left, right)):
            return is_nonnegative(left) and is_nonnegative(right)
        case Node(kind=arith.SIToFPOp, operands=(operand,)):
            return is_nonnegative(operand)
        case Node(kind=arith.UIToFPOp):
            return True
        case _:
            return False


def is_nonpositive(expression: Expression) -> bool:
    """Whether no value of an expression is above zero, proved from its form."""
    expression = look_through(expression)
    match expression:
        case Constant():
            return expression.number <= 0
        case Leaf(value=value) if isinstance(value.owner, WhereOp):
            return is_nonpositive(Leaf(value.owner.operand))
        case Leaf(value=value) if isinstance(value.owner, ReduceOp | ScanOp):
            op = value.owner
            return op.kind.data == "add" and op.init is None and is_nonpositive(Leaf(op.operand))
        case Node(kind=arith.MinimumfOp, operands=operands):
            return any(is_nonpositive(operand) for operand in operands)
        case Node(kind=arith.MaximumfOp, operands=operands):
            return all(is_nonpositive(operand) for operand in operands)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            return is_nonnegative(operand)
        case Node(kind=arith.AddfOp, operands=operands):
            return all(is_nonpositive(operand) for operand in operands)
        case Node(kind=arith.SubfOp, operands=(left, right)):
            return is_nonpositive(left) and is_nonnegative(right)
        case Node(kind=arith.MulfOp | arith.DivfOp, operands=(left, right)):
            signs = is_nonpositive(left) and is_nonnegative(right), is_nonnegative(left) and is_nonpositive(right)
            return any(signs)
        case Node(kind=arith.SelectOp, operands=(_, left, right)):
            return is_nonpositive(left) and is_nonpositive(right)
        case _:
            return False


def _is_nonnegative_array(value: SSAValue) -> bool:
    owner = value.owner
    if not isinstance(owner, Operation):
        return False
    if isinstance(owner, WhereOp):
        return is_nonnegative(Leaf(owner.operand))
    if isinstance(owner, ScanOp):
        begins = owner.init is None or is_nonnegative(Leaf(owner.init))
        return begins and owner.kind.data in ("add", "mul") and is_nonnegative(Leaf(owner.operand))
    if isinstance(owner, ReduceOp):
        return owner.kind.data in ("add", "mul") and owner.init is None and is_nonnegative(Leaf(owner.operand))
    if isinstance(owner, ContractOp):
        begins = owner.init is None or is_nonnegative(Leaf(owner.init))
        square = owner.lhs is owner.rhs
        return begins and (square or (is_nonnegative(Leaf(owner.lhs)) and is_nonnegative(Leaf(owner.rhs))))
    return owner.name == "diagram.extent"


def is_positive(expression: Expression, powers: bool = True) -> bool:
    """Whether every value is above zero *and* finite, for finite leaves: it has an inverse. `powers` says that those of
    e and 2 are, as they are over the reals: f32 may have zero for them."""
    expression = look_through(expression)
    match expression:
        case Constant():
            return 0 < expression.number < numbers.inf
        case Node(kind=arith.AddfOp, operands=(left, right)):
            sides = (left, right), (right, left)
            return any(is_positive(one, powers) and is_nonnegative(other) for one, other in sides)
        case Node(kind=arith.MulfOp | arith.DivfOp, operands=operands):
            return all(is_positive(operand, powers) for operand in operands)
        case Node(kind=math.SqrtOp | math.RsqrtOp, operands=(operand,)):
            return is_positive(operand, powers)
        case Node(kind=math.ExpOp | math.Exp2Op):
            return powers
        case Node(kind=arith.MaximumfOp, operands=operands):
            return any(is_positive(operand, powers) for operand in operands)
        case _:
            return False


def least(expression: Expression) -> float:
    """A lower bound of an expression that is not negative; zero if none is known."""
    expression = look_through(expression)
    if isinstance(expression, Constant):
        return max(expression.number, 0.0)
    if isinstance(expression, Node) and expression.kind is arith.AddfOp and is_nonnegative(expression):
        return sum(least(operand) for operand in expression.operands)
    if isinstance(expression, Node) and expression.kind is arith.MaximumfOp:
        return max(least(operand) for operand in expression.operands)
    return 0.0
