"""Conditions on positions: what stands in registers for an element that is absent."""

from __future__ import annotations

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from treadle.compiler.lowering.absent import filler_of, kept_if
from treadle.compiler.lowering.fragments import fragment_of, operand_of
from treadle.compiler.lowering.names import hinted, named, placed
from treadle.compiler.lowering.numbers import number_in
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram import MapOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of
from treadle.dialects.diagram.condition import LAST_POSITION, Term, terms_of


def lower_where(lowering: KernelLowering, op: WhereOp) -> SSAValue:
    """What a condition keeps, and in the place of the rest what changes nothing later, if one number does."""
    layout = lowering.layouts.of(op.result)
    value = fragment_of(lowering, op.operand, layout)
    filler = filler_of(op)
    if filler is None:
        lowering.unfilled.add(op)
        return value
    kept, result = kept_elements(lowering, op, value, layout, filler)
    return placed(kept, op, result, op.result)


def kept_elements(
    lowering: KernelLowering, op: WhereOp, value: SSAValue, layout: LayoutAttr, other: float
) -> tuple[MapOp, SSAValue]:
    condition = op.holds
    terms: dict[Term, SSAValue] = {}
    for term in terms_of(condition):
        if term not in terms:
            terms[term] = (
                operand_of(lowering, term, layout) if isinstance(term, SSAValue) else _positions(lowering, term, layout)
            )
    last = {term: _last(lowering, term) for term in terms if isinstance(term, str)}
    kept = lowering.emit(kept_if(value, condition, terms, last, number_in(format_of(value.type), other)))
    return kept, kept.result


def _last(lowering: KernelLowering, axis: str) -> int:
    """The last position along an axis that a register may stand for, in a piece that reaches past its end, too."""
    size = lowering.plan.sizes[axis]
    return LAST_POSITION if size == DYNAMIC else size + lowering.plan.pieces[axis]


def _positions(lowering: KernelLowering, axis: Term, layout: LayoutAttr) -> SSAValue:
    name = str(axis)
    type = array_type(i32, {name: lowering.plan.pieces[name]}, "register", layout.slice([name]))
    return named(lowering.emit(cuda.IndexOp(lowering.offset(name), type)).result, f"at_{name}")


def present(lowering: KernelLowering, source: SSAValue, value: SSAValue, layout: LayoutAttr, other: float) -> SSAValue:
    """A fragment of `source` with a number in the place of absent elements, where none stands there yet."""
    for op in absences(source) & lowering.unfilled:
        _, value = kept_elements(lowering, op, value, layout, other)
        hinted(value, source)
    return value
