"""Maps in which conditions are known to hold."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.dialects.diagram.ops import ExtentOp, MapOp
from treadle.dialects.hierarchy.ops import LoadOp
from treadle.passes._functions import erase_dead


def assuming(map: MapOp, selects: Collection[Operation]) -> MapOp | SSAValue:
    """A map, or the operand that it has become equal to, if the conditions of these selects of its body hold. The new
    map stands in no block; its operands are those of the old one that it needs."""
    places = [i for i, op in enumerate(map.body.block.ops) if op in selects]
    new = map.clone()
    block = new.body.block
    ops = list(block.ops)
    for op in (ops[i] for i in places):
        assert isinstance(op, arith.SelectOp)
        _become(op, op.lhs)
    for op in block.ops:
        if isinstance(op, arith.AddfOp) and (term := _other_than_zero(op)) is not None:
            _become(op, term)
    for op in reversed(ops):
        if op.parent is block and op.results and not any(result.uses for result in op.results):
            op.detach()
            op.erase()
    same = _same_operand(new)
    if same is not None:
        new.erase()
        return same
    _drop_unused_operands(new)
    return new


def _become(op: Operation, value: SSAValue) -> None:
    op.results[0].replace_all_uses_with(value)


def _other_than_zero(op: arith.AddfOp) -> SSAValue | None:
    """The summand beside a constant zero."""
    for zero, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        owner = zero.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr) and owner.value.value.data == 0:
            return other
    return None


def _same_operand(map: MapOp) -> SSAValue | None:
    """The operand that a map gives back as it is."""
    value = map.yielded
    if not isinstance(value, BlockArgument):
        return None
    operand = map.inputs[value.index]
    return operand if operand.type == map.result.type else None


def _drop_unused_operands(map: MapOp) -> None:
    block = map.body.block
    kept = [i for i, argument in enumerate(block.args) if argument.uses]
    inputs = [map.inputs[i] for i in kept]
    for argument in reversed(tuple(block.args)):
        if not argument.uses:
            block.erase_arg(argument)
    map.operands = inputs


def erase_unused(block: Block) -> None:
    """Erase what only tests needed: operations, and the loads of their operands."""
    erase_dead(block)
    for op in reversed(list(block.ops)):
        if isinstance(op, LoadOp | ExtentOp) and not op.results[0].uses:
            op.detach()
            op.erase()
