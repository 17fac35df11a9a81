"""Where a computed operand of a product is: in registers, if its elements lie where the product wants them, else in a
tile of shared memory, which is written and read back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile

from xdsl.dialects import tensor
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from treadle.compiler.cost.kernel.work import Labour, keeps_left_operand, width_of
from treadle.dialects.diagram import CastOp, ContractOp, FillOp, IndexOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.hierarchy import KernelOp, LoadOp, StreamOp

SHARED_WORD = 4
"""Bytes of a lane that one instruction moves to or from shared memory, as the model counts them."""


def left_operand(op: ContractOp, row: str | None) -> SSAValue:
    """The operand that has the rows."""
    return op.rhs if row is not None and row not in axes_of(op.lhs.type) else op.lhs


def stays_in_registers(op: ContractOp, operand: SSAValue, row: str | None) -> bool:
    """Whether a computed operand is the product's left one already: 16-bit numbers that nothing else uses, in the
    fragments of an earlier product. What is computed of loaded values alone lies in rows over the lanes, and has to go
    to other threads."""
    if row is None or row not in axes_of(operand.type):
        return False
    is_left = all(_is_left(use.operation, operand, row) for use in operand.uses)
    return is_left and _lies_as_result(operand, {row, *op.over_axes}, set())


def computes_with(users: Iterable[Operation]) -> bool:
    """Whether some of those that use an operand of products are no products."""
    return any(not isinstance(user, ContractOp) for user in users)


def written(operand: SSAValue) -> Labour:
    """The stores of a computed operand to its tile; one for each element, where lanes have its neighbours along another
    axis than the tile."""
    words = 1 if _is_turned(operand) else width_of(operand.type) / SHARED_WORD
    return Labour("shared", words, axes_of(operand.type))


def read_back(piece: SSAValue, in_rows: bool) -> Labour:
    """The `ldmatrix` of a tile whose elements meet the result of a product, 8 elements of a lane each; of numbers of a
    word the pairs of neighbours that a lane has. Of one that lies in rows over the lanes, its vectors."""
    if in_rows:
        return Labour("shared", width_of(piece.type) / SHARED_WORD, axes_of(piece.type))
    if width_of(piece.type) >= SHARED_WORD:
        return Labour("shared", 1 / 2, axes_of(piece.type))
    return Labour("ldmatrix", 1 / 8, axes_of(piece.type))


def _is_turned(value: SSAValue) -> bool:
    """Whether a value is computed of arrays that lie in rows over the lanes, along another axis than its own rows."""
    axes = axes_of(value.type)
    rows = [found[-1] for each in _loaded(value) if (found := axes_of(each.type)) and {*found} == {*axes}]
    return bool(rows) and axes[-1] not in rows


def _loaded(value: SSAValue) -> Iterator[SSAValue]:
    """The arrays of which a value is computed element by element."""
    if isinstance(value, BlockArgument) or isinstance(value.owner, LoadOp):
        yield value
    elif isinstance(value.owner, MapOp | CastOp | WhereOp):
        for operand in value.owner.operands:
            yield from _loaded(operand)


def _is_left(use: Operation, operand: SSAValue, row: str) -> bool:
    return isinstance(use, ContractOp) and keeps_left_operand(use) and left_operand(use, row) is operand


def _lies_as_result(value: SSAValue, axes: set[str], seen: set[SSAValue]) -> bool:
    """Whether the lowering spreads a value as a product's result with those axes: as `lowering.layouts` does it."""
    if value in seen:
        return False
    seen.add(value)
    if isinstance(value, BlockArgument):
        return any(_lies_as_result(state, axes, seen) for state in _states(value))
    assert isinstance(value, OpResult)
    op = value.op
    if isinstance(op, ContractOp):
        return axes <= set(axes_of(value.type))
    computed = next((source for source in _sources(value, axes) if _is_computed(source)), None)
    return _follows_product(op, axes) if computed is None else _lies_as_result(computed, axes, seen)


def _sources(value: OpResult, axes: set[str]) -> Sequence[SSAValue]:
    """What a value may have its place from."""
    op = value.op
    if isinstance(op, MapOp):
        return [source for source in op.inputs if is_array(source.type) and axes <= set(axes_of(source.type))]
    if isinstance(op, StreamOp):
        return [_yielded(op.finish.block)[value.index]]
    return [op.operand] if isinstance(op, CastOp | WhereOp | ReduceOp) else []


def _states(state: BlockArgument) -> list[SSAValue]:
    """What a state of a stream is before and after a step."""
    stream = state.owner.parent_op()
    if not isinstance(stream, StreamOp):
        return []
    return [_yielded(each)[state.index] for each in (stream.step.block, stream.initialise.block)]


def _yielded(block: Block) -> Sequence[SSAValue]:
    assert block.last_op is not None
    return block.last_op.operands


def is_needed_first(users: Collection[Operation], step: Iterable[Operation]) -> bool:
    """Whether something that these use is needed before the first product of a step, so that nothing of the step runs
    until it is there. A condition is not what needs it: most steps are of pieces in which it holds."""
    used = set(users)
    for op in takewhile(lambda op: not isinstance(op, ContractOp), step):
        if op not in used:
            continue
        if not isinstance(op, WhereOp):
            return True
        used |= {use.operation for use in op.result.uses}
    return False


def _is_computed(value: SSAValue) -> bool:
    """Whether a value has a place of its own; others are made, or loaded, where they are used."""
    if isinstance(value.owner, Block):
        return isinstance(value.owner.parent_op(), StreamOp)
    return not isinstance(value.owner, LoadOp | FillOp | IndexOp | ReadOp)


def _follows_product(op: Operation, axes: set[str]) -> bool:
    """Whether a result with those axes, whose place others take, stands before."""
    kernel = op.parent_op()
    while kernel is not None and not isinstance(kernel, KernelOp):
        kernel = kernel.parent_op()
    earlier = () if kernel is None else takewhile(lambda each: each is not op, kernel.body.walk())
    return any(isinstance(each, ContractOp) and axes <= set(axes_of(each.result.type)) for each in earlier)


def only_limits(value: SSAValue) -> bool:
    """Whether an array says where streams begin and end, and no more: no register has it once they have begun."""
    uses = list(value.uses)
    return bool(uses) and all(_only_limits(value, use.operation) for use in uses)


def _only_limits(value: SSAValue, user: Operation) -> bool:
    if isinstance(user, WhereOp):
        return value is not user.operand and all(value is not each for each in user.asked.values())
    found = isinstance(user, ReduceOp) and [use.operation for use in user.result.uses]
    return bool(found) and all(isinstance(each, tensor.ExtractOp) for each in found)
