"""Conditions as operations on integers: sums of their terms, and the comparisons of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType, i1, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from treadle.dialects.diagram import MapOp, YieldOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Atom,
    Both,
    Condition,
    Divided,
    Linear,
    Remainder,
    leaves_32_bits,
)

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


def total_of(form: Linear, terms: Mapping[Atom, SSAValue], type: IntegerType | IndexType, emit: Emit) -> SSAValue:
    """What a form sums up, in a type that holds it in any order."""
    found: SSAValue | None = None
    for term, factor in form.terms.items():
        value = _divided(term, terms, type, emit) if isinstance(term, Divided) else terms[term]
        if type != value.type:
            value = emit(arith.IndexCastOp(value, type))
        if factor == -1 and found is not None:
            found = emit(arith.SubiOp(found, value, overflow=NO_OVERFLOW))
            continue
        if factor != 1:
            value = emit(arith.MuliOp(value, number(factor, type, emit), overflow=NO_OVERFLOW))
        found = value if found is None else emit(arith.AddiOp(found, value, overflow=NO_OVERFLOW))
    if found is None or form.constant:
        constant = number(form.constant, type, emit)
        found = constant if found is None else emit(arith.AddiOp(found, constant, overflow=NO_OVERFLOW))
    return found


def _divided(term: Divided, terms: Mapping[Atom, SSAValue], type: IntegerType | IndexType, emit: Emit) -> SSAValue:
    """A quotient or a remainder, rounded down whatever the sign: by a power of two the lowest bits are what is left."""
    inner, divisor = total_of(term.form, terms, type, emit), term.divisor
    if isinstance(term, Remainder) and divisor.bit_count() == 1:
        return emit(arith.AndIOp(inner, number(divisor - 1, type, emit)))
    if divisor.bit_count() == 1 and type == i32:
        return emit(arith.ShRSIOp(inner, number(divisor.bit_length() - 1, type, emit)))
    by = number(divisor, type, emit)
    quotient = emit(arith.FloorDivSIOp(inner, by))
    if not isinstance(term, Remainder):
        return quotient
    below = emit(arith.MuliOp(quotient, by, overflow=NO_OVERFLOW))
    return emit(arith.SubiOp(inner, below, overflow=NO_OVERFLOW))


def test_of(condition: Condition, terms: Mapping[Atom, SSAValue], emit: Emit, last: Mapping[str, int]) -> SSAValue:
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
    terms: Mapping[Atom, SSAValue],
    last: Mapping[str, int],
    other: FloatAttr | IntegerAttr | SSAValue,
) -> MapOp:
    """`value` where a condition holds and a number, or the element of another fragment, elsewhere, as a map of
    fragments; `terms` gives positions along axes and inputs as fragments or scalars, `last` the last position along
    each axis."""
    inputs = [value, *terms.values(), *([other] if isinstance(other, SSAValue) else [])]
    block = Block(arg_types=[format_of(each.type) for each in inputs])
    for argument, each in zip(block.args, inputs, strict=True):
        argument.name_hint = each.name_hint
    emit = into(block)
    holds = test_of(condition, dict(zip(terms, block.args[1 : 1 + len(terms)], strict=True)), emit, last)
    filler = block.args[-1] if isinstance(other, SSAValue) else emit(arith.ConstantOp(other))
    choice = arith.SelectOp(holds, block.args[0], filler)
    block.add_ops([choice, YieldOp(choice.result)])
    return MapOp(inputs, value.type, Region(block))
