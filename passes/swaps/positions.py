"""What integers are at a position along an axis, where nothing else decides that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import IndexOp, MapOp
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, Node, expression_of, inside_out, is_plain

BINARY: Mapping[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda left, right: left + right,
    arith.SubiOp: lambda left, right: left - right,
    arith.MuliOp: lambda left, right: left * right,
    arith.AndIOp: lambda left, right: left & right,
    arith.OrIOp: lambda left, right: left | right,
    arith.XOrIOp: lambda left, right: left ^ right,
    arith.ShRSIOp: lambda left, right: left >> (right % 32),
    arith.FloorDivSIOp: lambda left, right: left // right if right else 0,
    arith.RemSIOp: lambda left, right: abs(left) % abs(right) * (1 if left >= 0 else -1) if right else 0,
}
"""As `diagram.map` computes them of numbers that are far from the ends of i32."""

COMPARED: tuple[Callable[[int, int], bool], ...] = (
    lambda left, right: left == right,
    lambda left, right: left != right,
    lambda left, right: left < right,
    lambda left, right: left <= right,
    lambda left, right: left > right,
    lambda left, right: left >= right,
)
"""By the numbers of predicates; those of numbers without a sign are not among them."""


def at_position(value: SSAValue, axis: str, position: int) -> int | None:
    """An integer array at a position along an axis; None where other things decide it, too."""
    if isinstance(value.owner, IndexOp):
        return position if value.owner.axis == axis else None
    if not isinstance(value.owner, MapOp) or not is_plain(value.owner):
        return None
    return evaluated(expression_of(value.owner), axis, position)


def evaluated(expression: Expression, axis: str, position: int) -> int | None:
    """What an expression of integers is at a position along an axis; None where other things decide it, too."""
    known: dict[int, int | None] = {}
    for part in inside_out(expression):
        known[id(part)] = (
            _part(part, [known[id(each)] for each in part.operands] if isinstance(part, Node) else [])
            if not isinstance(part, Leaf)
            else at_position(part.value, axis, position)
        )
    return known[id(expression)]


def _part(part: Expression, given: list[int | None]) -> int | None:
    if isinstance(part, Constant):
        return int(part.number) if isinstance(part.attribute, IntegerAttr) else None
    assert isinstance(part, Node)
    operands = [each for each in given if each is not None]
    if len(operands) != len(given):
        return None
    if part.kind is arith.SelectOp:
        return operands[1] if operands[0] else operands[2]
    if part.kind is arith.CmpiOp:
        predicate = part.properties["predicate"]
        number = predicate.value.data if isinstance(predicate, IntegerAttr) else len(COMPARED)
        return int(COMPARED[number](*operands)) if number < len(COMPARED) else None
    return BINARY[part.kind](*operands) if part.kind in BINARY else None


__all__ = ["at_position", "evaluated"]
