"""Where zeros may stand for absent elements: nothing but sums takes them, in which both count for nothing."""

from __future__ import annotations

from math import isfinite

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, FillOp, ReadOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.collapse import Regrouping


def only_adds(op: Operation, value: SSAValue) -> bool:
    """Whether what an operation gives of an array is the same with zeros in the place of absent elements, or is taken
    by such operations alone."""
    match op:
        case ReduceOp() | ScanOp():
            return op.kind.data == "add" and op.operand is value
        case ContractOp():
            others = [each for each in (op.lhs, op.rhs) if each is not value]
            return len(others) == 1 and op.init is not value and _is_finite_constant(others[0])
        case ReadOp() | CastOp() | Regrouping():
            is_alone = op.operands[0] is value and value not in op.operands[1:]
            return is_alone and all(only_adds(use.operation, result) for result in op.results for use in result.uses)
        case _:
            return False


def _is_finite_constant(value: SSAValue) -> bool:
    """Whether it is one number wherever it has elements: an infinity makes no zero of a zero."""
    while isinstance(value.owner, CastOp | WhereOp):
        value = value.owner.operand
    return isinstance(value.owner, FillOp) and isfinite(value.owner.number)


__all__ = ["only_adds"]
