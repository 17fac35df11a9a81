"""Conditions as operations on integers: sums of their terms, and the comparisons of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType, i1, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from treadle.dialects.diagram import MapOp, YieldOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Linear, Term, leaves_32_bits

NO_OVERFLOW = arith.IntegerOverflowAttr([arith.IntegerOverflowFlag.NSW])

Emit = Callable[[Operation], SSAValue]
"""Puts an operation somewhere, and gives its result."""


def into(block: Block) -> Emit:
    def emit(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    return emit


def number(value: int, type: IntegerType | IndexType, emit: Emit) -> SSAValue:
    return emit(arith.ConstantOp(IntegerAttr(value, type)))


def total_of(form: Linear, terms: Mapping[Term, SSAValue], type: IntegerType | IndexType, emit: Emit) -> SSAValue:
    """What a form sums up, in a type that holds it in any order."""
    found: SSAValue | None = None
    for term, factor in form.terms.items():
        value = terms[term]
        if type != value.type:
            value = emit(arith.IndexCastOp(value, type))
        if factor != 1:
            value = emit(arith.MuliOp(value, number(factor, type, emit), overflow=NO_OVERFLOW))
        found = value if found is None else emit(arith.AddiOp(found, value, overflow=NO_OVERFLOW))
    if found is None or form.constant:
        constant = number(form.constant, type, emit)
        found = constant if found is None else emit(arith.AddiOp(found, constant, overflow=NO_OVERFLOW))
    return found


def test_of(condition: Condition, terms: Mapping[Term, SSAValue], emit: Emit, last: Mapping[str, int]) -> SSAValue:
    """A condition in the body of a map, whose arguments hold its terms; `last` has the last position along each axis.
    In 64 bits where 32 may be too few."""
    if isinstance(condition, AtLeastZero):
        less, more = condition.form.side(-1), condition.form.side(1)
        type = IndexType() if any(leaves_32_bits(side, last.__getitem__) for side in (less, more)) else i32
        return emit(arith.CmpiOp(total_of(less, terms, type, emit), total_of(more, terms, type, emit), "sle"))
    parts = [test_of(part, terms, emit, last) for part in condition.parts]
    kind = arith.AndIOp if isinstance(condition, Both) else arith.OrIOp
    if not parts:
        return emit(arith.ConstantOp(IntegerAttr(int(isinstance(condition, Both)), i1)))
    result = parts[0]
    for part in parts[1:]:
        result = emit(kind(result, part))
    return result


def kept_if(
    value: SSAValue,
    condition: Condition,
    terms: Mapping[Term, SSAValue],
    last: Mapping[str, int],
    other: FloatAttr | IntegerAttr,
) -> MapOp:
    """`value` where a condition holds and a number elsewhere, as a map of fragments; `terms` gives positions along axes
    and inputs as fragments or scalars, `last` the last position along each axis."""
    inputs = [value, *terms.values()]
    block = Block(arg_types=[format_of(each.type) for each in inputs])
    for argument, each in zip(block.args, inputs, strict=True):
        argument.name_hint = each.name_hint
    holds = test_of(condition, dict(zip(terms, block.args[1:], strict=True)), into(block), last)
    filler = arith.ConstantOp(other)
    choice = arith.SelectOp(holds, block.args[0], filler.result)
    block.add_ops([filler, choice, YieldOp(choice.result)])
    return MapOp(inputs, value.type, Region(block))
