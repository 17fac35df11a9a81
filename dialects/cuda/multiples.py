"""What is known of index arithmetic in kernels: constants, and of what numbers are multiples."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.cuda.selections import SelectedOp


def is_multiple(value: SSAValue, of: int) -> bool:
    """Whether an index is provably a multiple of a number."""
    owner = value.owner
    match owner:
        case Operation() if (number := constant_of(value)) is not None:
            return number % of == 0
        case arith.MuliOp():
            return is_multiple(owner.lhs, of) or is_multiple(owner.rhs, of)
        case arith.SubiOp() if isinstance(rest := owner.rhs.owner, arith.RemUIOp) and rest.lhs is owner.lhs:
            return is_multiple(rest.rhs, of)
        case SelectedOp():
            return owner.step.data % of == 0
        case arith.AddiOp() | arith.SubiOp() | arith.MaxSIOp() | arith.MinSIOp():
            return is_multiple(owner.lhs, of) and is_multiple(owner.rhs, of)
        case arith.SelectOp():
            return is_multiple(owner.lhs, of) and is_multiple(owner.rhs, of)
        case Block() if isinstance(loop := owner.parent_op(), scf.ForOp) and value is loop.body.block.args[0]:
            return is_multiple(loop.lb, of) and is_multiple(loop.step, of)
        case _:
            return False


def constant_of(value: SSAValue) -> int | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp):
        return getattr(getattr(owner.value, "value", None), "data", None)
    return None
