"""What front ends compute in 64 bits, and need not: constants that a body narrows, exponents, results nobody reads."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, func, linalg, math, tensor
from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, FloatAttr, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import Pure

from treadle.dialects.diagram.array import FORMATS
from treadle.dialects.diagram.formats import number_format
from treadle.passes.linalg.structured import constant_of, outside

MOST_FACTORS = 8
"""In a whole power that is written as products."""


def narrow(function: func.FuncOp) -> None:
    """Round constants where they are narrowed, write small whole powers as products, and leave results away that nobody
    reads: a maximum comes with its place."""
    for op in list(function.walk()):
        match op:
            case arith.TruncFOp():
                _round(op)
            case math.FPowIOp():
                _multiply(op)
            case _:
                continue
    for op in [op for op in function.walk() if isinstance(op, linalg.ops.GenericOp) and len(op.results) > 1]:
        _leave_away(op)


def _round(op: arith.TruncFOp) -> None:
    number, format = constant_of(op.input), op.result.type
    if not isinstance(number, FloatAttr) or not isinstance(format, AnyFloat) or format not in FORMATS:
        return
    if abs(value := number.value.data) > number_format(format).largest:
        return  # to infinity or not, its rounding says
    constant = _insert(arith.ConstantOp(FloatAttr(value, format)), op)
    _take_the_place(op, [constant])


def _multiply(op: math.FPowIOp) -> None:
    """A small whole power, as products."""
    number = constant_of(op.rhs)
    if not isinstance(number, IntegerAttr) or not 1 <= (power := number.value.data) <= MOST_FACTORS:
        return
    square, product = op.lhs, None
    while True:
        if power & 1:
            product = square if product is None else _insert(arith.MulfOp(product, square), op)
        if not (power := power >> 1):
            break
        square = _insert(arith.MulfOp(square, square), op)
    assert product is not None
    _take_the_place(op, [product])


def _leave_away(op: linalg.ops.GenericOp) -> None:
    """The results that nobody reads, neither behind the operation nor from turn to turn."""
    body = op.body.block
    starts, yielded = body.args[len(op.inputs) :], _yielded(body)
    read = {number for number, result in enumerate(op.results) if result.uses}
    while True:
        used = {each for number in read for each in outside(yielded[number], body)}
        if (more := read | {number for number, start in enumerate(starts) if start in used}) == read:
            break
        read = more
    if not read or len(read) == len(op.results):
        return
    kept = [number for number in range(len(op.results)) if number in read]
    maps = [each.data for each in op.indexing_maps]
    maps = [*maps[: len(op.inputs)], *(maps[len(op.inputs) + number] for number in kept)]
    region = op.detach_region(op.body)
    _keep(body, kept, [start for number, start in enumerate(starts) if number not in read])
    outputs, types = [op.outputs[number] for number in kept], [op.results[number].type for number in kept]
    fewer = linalg.ops.GenericOp(
        op.inputs, outputs, region, [AffineMapAttr(each) for each in maps], op.iterator_types, types
    )
    _insert(fewer, op)
    results = dict(zip(kept, fewer.results, strict=True))
    for number, result in results.items():
        op.results[number].replace_all_uses_with(result)
    gone = [each for number, each in enumerate(op.outputs) if number not in read]
    op.detach()
    op.erase()
    for start in gone:
        _erase_unread(start)


def _erase_unread(start: SSAValue) -> None:
    """What a result started from, if nothing else does."""
    op = start.owner
    if not isinstance(op, linalg.ops.FillOp | tensor.EmptyOp) or any(result.uses for result in op.results):
        return
    operands = list(op.operands)
    op.detach()
    op.erase()
    for each in operands:
        _erase_unread(each)


def _keep(body: Block, kept: Sequence[int], gone: Sequence[SSAValue]) -> None:
    """In a body, what is yielded for these results, and nothing that only the others take."""
    yields = body.last_op
    assert yields is not None
    fewer = linalg.ops.YieldOp(*(yields.operands[number] for number in kept))
    fewer.location = yields.location
    Rewriter.replace_op(yields, fewer, [])
    for inner in reversed(list(body.ops)):
        if inner is not fewer and not any(result.uses for result in inner.results) and _is_pure(inner):
            inner.detach()
            inner.erase()
    for argument in gone:
        body.erase_arg(argument)  # pyright: ignore[reportArgumentType]


def _is_pure(op: Operation) -> bool:
    return op.has_trait(Pure) or isinstance(op, linalg.ops.IndexOp)


def _yielded(body: Block) -> Sequence[SSAValue]:
    assert body.last_op is not None
    return body.last_op.operands


def _insert(op: Operation, before: Operation) -> SSAValue:
    Rewriter.insert_op(op, InsertPoint.before(before))
    op.location = before.location
    return op.results[0]


def _take_the_place(op: Operation, values: Sequence[SSAValue]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()
