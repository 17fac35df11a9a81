"""Loops over the pieces of an axis, counted in turns: the turn of a ring is then the number of the loop's turn."""

from __future__ import annotations

from collections.abc import Iterable, Set

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.rings import COUNTED
from treadle.dialects.cuda.tiles import is_fragment, layout_of
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import sizes_of

OF_A_WARP = cuda.LoadOp | cuda.MaskOp | ReduceOp | tensor.ExtractOp
"""What a number is made of that a kernel loads: an element, or the least or the largest of several."""


def known_to_all(block: Block) -> set[SSAValue]:
    """Values that every role can compute before any loop: arguments, the number of the block, arithmetic on them, what
    each warp loads alike, and how many pieces the block selects before it has roles."""
    known: set[SSAValue] = set(block.args)
    for op in block.ops:
        alike = isinstance(op, cuda.BlockIndexOp) or op.dialect_name() == "arith" or is_of_each_warp(op)
        if (alike or isinstance(op, SELECTS)) and known.issuperset(needed_by(op)):
            known |= set(op.results)
    return known


def known_in_turns(loop: scf.ForOp, known: Set[SSAValue]) -> set[SSAValue]:
    """What every role can compute in each turn of a loop, beside what all know before: where its piece begins,
    arithmetic, and numbers that each warp loads there."""
    found: set[SSAValue] = {loop.body.block.args[0], *known}
    for op in loop.body.block.ops:
        alike = op.dialect_name() == "arith" or isinstance(op, cuda.SelectedOp) or is_number_loaded(op)
        if alike and found.issuperset(needed_by(op)):
            found |= set(op.results)
    return found


SELECTS = cuda.SelectOp | cuda.SelectedBeforeOp
"""What the threads of a block do with a list of pieces before any loop."""


def needed_by(op: Operation) -> Iterable[SSAValue]:
    """The values that an operation is given; a list of pieces is in shared memory, wherever that is used."""
    if isinstance(op, cuda.SelectOp):
        return op.given
    if isinstance(op, cuda.SelectedOp):
        return [value for value in op.operands if value is not op.tile]
    return (op.position, op.count) if isinstance(op, cuda.SelectedBeforeOp) else op.operands


def is_of_each_warp(op: Operation) -> bool:
    """Whether each warp does it by itself, on what all of them hold alike."""
    fragments = [value.type for value in (*op.operands, *op.results) if is_fragment(value.type)]
    return isinstance(op, OF_A_WARP) and not any(mode.axis for type in fragments for mode in layout_of(type).warp)


def is_number_loaded(op: Operation) -> bool:
    """Whether an operation loads one number that all lanes hold, or takes it out of its fragment."""
    if not isinstance(op, cuda.LoadOp | tensor.ExtractOp) or not is_of_each_warp(op):
        return False
    fragments = [value.type for value in (*op.operands, *op.results) if is_fragment(value.type)]
    return all(size == 1 for type in fragments for size in sizes_of(type).values())


def needed_for(values: Iterable[SSAValue]) -> set[Operation]:
    """The operations that values are computed by."""
    found, left = set[Operation](), list(values)
    while left:
        owner = left.pop().owner
        if isinstance(owner, Operation) and owner not in found:
            found.add(owner)
            left += needed_by(owner)
    return found


def count_turns(places: Iterable[Operation | None]) -> None:
    """Let each loop among these operations count its turns; where its pieces begin is computed from that, if asked for.

    ```
    scf.for %x0 = %first to %end step %piece { ... }
    ```
    becomes
    ```
    %turns = ceildivui(maxsi(%end, %first) - %first, %piece)
    scf.for %turn = 0 to %turns step 1 { %x0 = %first + %turn * %piece ... } {turns}
    ```
    """
    for loop in places:
        if isinstance(loop, scf.ForOp):
            _count(loop)


def _count(loop: scf.ForOp) -> None:
    before: list[Operation] = [zero := _constant(0), one := _constant(1)]
    distance = loop.ub if is_number(loop.lb, 0) else _distance(loop, before)
    before.append(turns := arith.CeilDivUIOp(distance, loop.step))
    turns.result.name_hint = "turns"
    position, body = loop.body.block.args[0], loop.body.block
    name = position.name_hint
    place: list[Operation] = [offset := arith.MuliOp(position, loop.step)]
    if not is_number(loop.lb, 0):
        place.append(offset := arith.AddiOp(loop.lb, offset.result))
    offset.result.name_hint = name
    position.replace_uses_with_if(offset.result, lambda use: use.operation is not place[0])
    position.name_hint = "turn"
    assert body.first_op is not None
    Rewriter.insert_op(place, InsertPoint.before(body.first_op))
    Rewriter.insert_op(before, InsertPoint.before(loop))
    loop.operands[0], loop.operands[1], loop.operands[2] = zero.result, turns.result, one.result
    loop.attributes[COUNTED] = UnitAttr()


def _distance(loop: scf.ForOp, before: list[Operation]) -> SSAValue:
    """From the first piece to the end; nothing where the end lies before."""
    end = arith.MaxSIOp(loop.ub, loop.lb)
    distance = arith.SubiOp(end.result, loop.lb)
    before += [end, distance]
    return distance.result


def _constant(number: int) -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(number, IndexType())


def is_number(value: SSAValue, number: int) -> bool:
    owner = value.owner
    return isinstance(owner, arith.ConstantOp) and getattr(getattr(owner.value, "value", None), "data", None) == number
