"""Conditions on positions: what stands in registers for an element that is absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import Operation, SSAValue

from treadle.compiler.lowering.absent import filler_of
from treadle.compiler.lowering.bounded import copied_between
from treadle.compiler.lowering.comparisons import kept_if
from treadle.compiler.lowering.fragments import fragment_of, operand_of
from treadle.compiler.lowering.intervals import Interval, bound_of, intervals_of, mask
from treadle.compiler.lowering.names import hinted, named, placed
from treadle.compiler.lowering.numbers import number_in
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.diagram import FillOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of
from treadle.dialects.diagram.condition import LAST_POSITION, Atom, Both, Condition, terms_of
from treadle.dialects.diagram.formats import ui8


def lower_where(lowering: KernelLowering, op: WhereOp) -> SSAValue:
    """What a condition keeps, and in the place of the rest what changes nothing later, if one number does."""
    if (tile := copied_between(lowering, op)) is not None:
        return tile
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
) -> tuple[Operation, SSAValue]:
    """What a condition keeps of a value, and `other` elsewhere: masks where it leaves intervals, a choice for the
    rest. (There are no constants without a sign in `arith`: such a number is a fragment of its own.)"""
    number = number_in(format_of(value.type), other)
    intervals, rest = intervals_of(op.holds, layout) if lowering.has_room else ({}, op.holds)
    terms: dict[Atom, SSAValue] = {}
    for term in _terms(intervals, rest):
        if term not in terms:
            terms[term] = (
                operand_of(lowering, term, layout) if isinstance(term, SSAValue) else _positions(lowering, term, layout)
            )
    last = {term: _last(lowering, term) for term in terms if isinstance(term, str)}
    kept: Operation | None = None
    for axis, each in intervals.items():
        begin = bound_of(lowering, each.begins, terms, last, layout, arith.MaxSIOp)
        end = bound_of(lowering, each.ends, terms, last, layout, arith.MinSIOp)
        if begin is not None:
            named(begin, f"{axis}_begins")
        end = lowering.index(_last(lowering, axis)) if end is None else named(end, f"{axis}_ends")
        kept = mask(lowering, value, axis, lowering.offset(axis), begin, end, number)
        value = kept.result
    if kept is not None and rest == Both(()):
        return kept, value
    filler = lowering.emit(FillOp(number, value.type)).result if number.type == ui8 else number
    choice = lowering.emit(kept_if(value, rest, {term: terms[term] for term in terms_of(rest)}, last, filler))
    return choice, choice.result


def _terms(intervals: Mapping[str, Interval], rest: Condition) -> Iterator[Atom]:
    for each in intervals.values():
        yield from (term for form in (*each.begins, *each.ends) for term in form.atoms)
    yield from terms_of(rest)


def _last(lowering: KernelLowering, axis: str) -> int:
    """The last position along an axis that a register may stand for, in a piece that reaches past its end, too."""
    size = lowering.plan.sizes[axis]
    return LAST_POSITION if size == DYNAMIC else size + lowering.plan.pieces[axis]


def _positions(lowering: KernelLowering, axis: Atom, layout: LayoutAttr) -> SSAValue:
    name = str(axis)
    type = array_type(i32, {name: lowering.plan.pieces[name]}, "register", layout.slice([name]))
    return named(lowering.emit(cuda.IndexOp(lowering.offset(name), type)).result, f"at_{name}")


def present(lowering: KernelLowering, source: SSAValue, value: SSAValue, layout: LayoutAttr, other: float) -> SSAValue:
    """A fragment of `source` with a number in the place of absent elements, where none stands there yet."""
    for op in absences(source) & lowering.unfilled:
        _, value = kept_elements(lowering, op, value, layout, other)
        hinted(value, source)
    return value
