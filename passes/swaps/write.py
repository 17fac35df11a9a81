"""Write swaps in the place of reads."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, IndexOp, MapOp, ReadOp, SwapOp
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.passes._functions import erase_unused, fresh_hint
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    compare,
    expression_of,
    inside_out,
    select,
)
from treadle.passes.swaps.found import Swapped, casts_from, choosing, index_in, part_of_two
from treadle.passes.swaps.positions import evaluated


def write_swap(found: Swapped) -> SSAValue:
    """Swap the blocks of a product once, and let all that reads them have that; gives what is swapped."""
    product = found.product.owner
    assert isinstance(product, Operation)
    swap = SwapOp(found.product, found.axis, found.block, found.product.type)
    swap.location = product.location
    swap.result.name_hint = fresh_hint(found.product, f"{found.product.name_hint or 'product'}_swapped")
    Rewriter.insert_op(swap, InsertPoint.after(product))
    for read in found.wholes:
        read.result.replace_all_uses_with(_converted(swap.result, read.operand, read))
    for read in found.parts:
        while users := choosing(read):
            _choose(*users[0], read, swap.result)
    erase_unused([read.result for read in (*found.wholes, *found.parts)])
    return swap.result


def _converted(value: SSAValue, like: SSAValue, before: Operation) -> SSAValue:
    """An array rounded as another one was, which is of the same axes."""
    for cast in casts_from(like):
        new = CastOp(value, cast.result.type)
        new.location, new.result.name_hint = cast.location, fresh_hint(cast.result, value.name_hint)
        Rewriter.insert_op(new, InsertPoint.before(before))
        value = new.result
    return value


def _choose(op: MapOp, value: SSAValue, read: ReadOp, swap: SSAValue) -> None:
    """Let a map have an element of one of two blocks from where it is: in its own place, or in that of the other."""
    told = part_of_two(read)
    assert told is not None
    axis, at = told
    root = _root(read)
    own, other = (_rounded(each, read.operand, value, op) for each in (root, swap))
    index = index_in(op, axis)
    if index is None:
        positions = IndexOp(array_type(i32, {axis: sizes_of(read.operand.type)[axis]}))
        positions.location = op.location
        Rewriter.insert_op(positions, InsertPoint.before(op))
        index = positions.result
    chosen = _resolved(expression_of(op), value, {at: own, 1 - at: other}, axis, index)
    new = build_map(chosen, op.result.type, op.result.name_hint, op.location)
    Rewriter.insert_op(new, InsertPoint.before(op))
    op.result.replace_all_uses_with(new.result)
    old = list(op.operands)
    op.detach()
    op.erase()
    erase_unused(old)


def _root(read: ReadOp) -> SSAValue:
    value = read.operand
    while isinstance(value.owner, CastOp):
        value = value.owner.operand
    return value


def _rounded(whole: SSAValue, read: SSAValue, part: SSAValue, before: Operation) -> SSAValue:
    """The whole array, rounded as the part is: before it was read, and then."""
    value = _converted(whole, read, before)
    for cast in casts_from(part):
        type = array_type(format_of(cast.result.type), sizes_of(whole.type))
        new = CastOp(value, type)
        new.location = cast.location
        Rewriter.insert_op(new, InsertPoint.before(before))
        value = new.result
    return value


def _resolved(
    expression: Expression, value: SSAValue, at: Mapping[int, SSAValue], axis: str, index: SSAValue
) -> Expression:
    """An expression whose leaf `value` is the array that `at` says for each of two positions along an axis; behind a
    choice that the position decides only one is left."""
    everywhere: dict[int, Expression] = {}
    known: tuple[dict[int, Expression], dict[int, Expression]] = ({}, {})
    first = compare(Leaf(index), "==", Constant(IntegerAttr(0, i32)))
    for part in inside_out(expression):
        if isinstance(part, Leaf) and part.value is value:
            for position in (0, 1):
                known[position][id(part)] = Leaf(at[position])
            everywhere[id(part)] = select(first, Leaf(at[0]), Leaf(at[1]))
            continue
        for made in (everywhere, *known):
            made[id(part)] = _with(part, made)
        if isinstance(part, Node) and part.kind is arith.SelectOp:
            condition, yes, no = part.operands
            decided = [evaluated(condition, axis, position) for position in (0, 1)]
            for made, holds in zip(known, decided, strict=True):
                if holds is not None:
                    made[id(part)] = made[id(yes if holds else no)]
            if decided in ([0, 1], [1, 0]):
                where = decided.index(1)
                branches = known[where][id(yes)], known[1 - where][id(no)]
                everywhere[id(part)] = select(everywhere[id(condition)], *branches)
    return everywhere[id(expression)]


def _with(part: Expression, made: Mapping[int, Expression]) -> Expression:
    if not isinstance(part, Node):
        return part
    operands = tuple(made[id(each)] for each in part.operands)
    if all(new is old for new, old in zip(operands, part.operands, strict=True)):
        return part
    return Node(part.kind, operands, part.type, part.properties, part.hint, part.location)


__all__ = ["write_swap"]
