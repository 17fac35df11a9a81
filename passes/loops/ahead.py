"""What depends on nothing that a loop computes but its position, and the position of a later turn: for whatever is
asked for ahead of the turn that needs it."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import PassFailedException

from treadle.dialects import cuda
from treadle.passes.loops.turns import is_number_loaded


def are_known_ahead(values: Iterable[SSAValue], loop: scf.ForOp) -> bool:
    """Whether values depend on nothing that a loop computes but its position, what a list or an array says of that
    turn, and arithmetic on these."""
    body = loop.body.block

    def known(value: SSAValue) -> bool:
        owner = value.owner
        if value is body.args[0] or isinstance(owner, arith.ConstantOp):
            return True
        if value in body.args:
            return False
        if not isinstance(owner, Operation) or not loop.is_ancestor(owner):
            return True
        alike = isinstance(owner, cuda.SelectedOp) or owner.dialect_name() == "arith" or is_number_loaded(owner)
        return alike and all(map(known, owner.operands))

    return all(known(value) for value in values)


def brought_ahead(
    values: Iterable[SSAValue], loop: scf.ForOp, position: SSAValue, block: Block
) -> dict[SSAValue, SSAValue]:
    """What values that are known ahead are where a loop has another position: computed in a block, by what they are."""
    mapping: dict[SSAValue, SSAValue] = {loop.body.block.args[0]: position}

    def bring(value: SSAValue) -> None:
        owner = value.owner
        if value in mapping or not isinstance(owner, Operation) or not loop.is_ancestor(owner):
            return
        for operand in owner.operands:
            bring(operand)
        block.add_op(own := owner.clone(value_mapper=mapping))
        mapping[value] = own.results[0]
        if not isinstance(owner, arith.ConstantOp):
            own.results[0].name_hint = f"{value.name_hint}_ahead"

    for value in values:
        bring(value)
    return mapping


def position_ahead(loop: scf.ForOp, position: SSAValue, distance: int) -> tuple[list[Operation], SSAValue, SSAValue]:
    """Operations that compute the position so much after another, that position, and whether the loop reaches it."""
    offset = named(constant(distance), "ahead")
    name = f"{loop.body.block.args[0].name_hint or 'position'}_ahead"
    there = named(arith.AddiOp(position, offset.results[0]), name)
    test = named(arith.CmpiOp(there.results[0], loop.ub, "ult"), "is_there")
    return [offset, there, test], there.results[0], test.results[0]


def step_of(loop: scf.ForOp) -> int:
    """By how much the position moves each turn."""
    return constant_of(loop.step)


def constant(number: int) -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(number, IndexType())


def constant_of(value: SSAValue) -> int:
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp):
        raise PassFailedException("the step of a stream's loop is not a constant")
    assert isinstance(owner.value, IntegerAttr)
    return owner.value.value.data


def named(op: Operation, name: str) -> Operation:
    op.results[0].name_hint = name
    return op
