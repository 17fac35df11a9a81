"""Whether a comparison depends on the last digits of numbers.

An element that is compared with the largest of its row is one of those, digit for digit. So where numbers decide, all
that compare them must have them made in one way: added up in one order, divided in one form."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp, YieldOp
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy import YieldOp as KernelYieldOp


def decides(value: SSAValue) -> bool:
    """Whether these numbers, or what is made of each of them (or is the largest or smallest of them), are compared with
    other numbers that are computed. Sums and products of many hold none of them alone. A comparison with a constant, or
    of a number with itself, asks for its range or for a NaN, not for its last digits."""
    seen: set[SSAValue] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        for use in each.uses:
            if _compares(use.operation):
                return True
            waiting += _made_of(use.operation, use.index)
    return False


def _compares(op: Operation) -> bool:
    if not isinstance(op, arith.CmpfOp) or op.lhs is op.rhs:
        return False
    return not any(isinstance(each.owner, arith.ConstantOp) for each in op.operands)


def _made_of(op: Operation, index: int) -> Iterable[SSAValue]:
    """What an operation makes of the elements of one of its operands."""
    match op:
        case MapOp() | KernelOp() if index < len(op.inputs):
            return (op.body.block.args[index],)
        case YieldOp() if isinstance(around := op.parent_op(), MapOp):
            return around.results
        case KernelYieldOp() if isinstance(around := op.parent_op(), KernelOp):
            return (around.results[index],)
        case CastOp() | WhereOp():
            return op.results if index == 0 else ()
        case ReduceOp():
            return op.results if op.kind.data in ("max", "min") else ()
        case _:
            return op.results if isinstance(op.parent_op(), MapOp) else ()


__all__ = ["decides"]
