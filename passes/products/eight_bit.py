"""Products of 8-bit operands: what tensor cores take, and how it has to lie."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.machines import Machine
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import BYTES, STORED
from treadle.passes._functions import label
from treadle.passes._parts import part_of
from treadle.passes.kernels.roles import Roles, roles_of

FIRST_WITH_F8 = 89
"""The first compute capability whose tensor cores multiply 8-bit floats (PTX ISA 9.7.14.5, mma)."""


def is_of_8_bits(op: ContractOp) -> bool:
    """Whether neither operand has more."""
    return {str(format_of(operand.type)) for operand in (op.lhs, op.rhs)} <= set(STORED)


def are_bytes(op: ContractOp) -> bool:
    """Whether both operands are integers of 8 bits."""
    return {str(format_of(operand.type)) for operand in (op.lhs, op.rhs)} <= set(BYTES)


def why_never_multiplied(op: ContractOp, machine: Machine) -> str | None:
    """Why the machine does not multiply these operands in 8 bits, however they lie."""
    if are_bytes(op) and "i8" not in machine.rates.tensor:
        return f"{machine.name} has no rate of products of i8"
    if not are_bytes(op) and machine.capability < FIRST_WITH_F8:
        return f"the tensor cores of {machine.arch} multiply no 8-bit floats"
    return None


def depth_of(op: ContractOp) -> str:
    """The axis along which tensor cores sum: of several, one that a group does not take index by index."""
    sizes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
    wide = [axis for axis in op.over_axes if sizes[axis] != 1]
    roles = roles_of(part_of([op])) if len(wide) > 1 else None
    fed = roles.stream if isinstance(roles, Roles) else None
    return ([axis for axis in wide if axis != fed] or wide or op.over_axes)[-1]


def across_the_sum(op: ContractOp) -> list[SSAValue]:
    """The operands whose neighbours do not lie along the axis that is summed over."""
    operands, depth = dict.fromkeys((op.lhs, op.rhs)), depth_of(op)
    return [operand for operand in operands if axes_of(operand.type)[-1:] != (depth,)]


def why_not_multiplied(op: ContractOp, machine: Machine) -> str | None:
    """Why the machine does not multiply these operands in 8 bits; None where it does, or where they have more."""
    if not is_of_8_bits(op):
        return None
    if reason := why_never_multiplied(op, machine):
        return reason
    for operand in across_the_sum(op):
        return (
            f"8-bit operands are multiplied along rows of memory, and {label(operand)}"
            f"[{', '.join(axes_of(operand.type))}] has another last axis than {depth_of(op)}"
        )
    return None
