"""How far an axis of a read may reach, computed at run time."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.place import reach


def fitting_size(
    op: ReadOp,
    axis: str,
    is_known: Callable[[str], bool],
    size_of: Callable[[str], SSAValue],
    emit: Callable[[Operation], SSAValue],
) -> SSAValue:
    """How far an axis without a size may reach, as an index; the least of all places: `max((length - reach of the
    others) / factor + 1, 0)`; where it steps over axes without a size (`whole_steps`), `max((length - reach + 1) /
    factor, 1)`; where a read with zeros around steps over static ones (`covering_steps`), `max(ceil((length - reach of
    the others) / factor) + 1, 0)`. `is_known` says of a symbolic axis whether it has a size yet, and `size_of` what it
    is. Refusal where no place limits it: a read with zeros around may go on for ever."""
    types = (op.operand.type, *(value.type for value in op.inputs), op.result.type)
    static = {name: size for type in types for name, size in sizes_of(type).items() if size != DYNAMIC}

    def constant(number: int) -> SSAValue:
        return emit(arith.ConstantOp.from_int_and_width(number, IndexType()))

    def minus(value: SSAValue, number: int) -> SSAValue:
        return emit(arith.SubiOp(value, constant(number))) if number else value

    def multiple(value: SSAValue, factor: int) -> SSAValue:
        return value if factor == 1 else emit(arith.MuliOp(value, constant(factor)))

    def size(name: str) -> SSAValue:
        return constant(static[name]) if name in static else size_of(name)

    def covering(along: str, form: Linear, factor: int) -> SSAValue:
        others = Linear({term: times for term, times in form.terms.items() if term != axis}, form.constant)
        rest = minus(size(along), reach(others, static) - factor + 1)
        steps = emit(arith.FloorDivSIOp(rest, constant(factor)))
        return emit(arith.MaxSIOp(emit(arith.AddiOp(steps, constant(1))), constant(0)))

    def room(along: str, form: Linear) -> tuple[SSAValue, int]:
        """How far the axis may reach in one place, and the least that it has."""
        factor = form.terms[axis]
        others = {str(term): times for term, times in form.terms.items() if term != axis}
        known = {t: f for t, f in others.items() if f >= factor or t in static or is_known(t)}
        if op.covers(axis, form):
            return covering(along, form, factor), 0
        least = int(known != others)  # where it steps over an axis without a size
        one_more = int(not least and factor == 1)  # which else is added after the division
        before = form.constant + 1 - least - one_more + sum(f * (static.get(t, 0) - 1) for t, f in known.items())
        rest = minus(size(along), before)
        for term, times in known.items():
            if term not in static:
                rest = emit(arith.SubiOp(rest, multiple(size_of(term), times)))
        if factor != 1:
            rest = emit(arith.FloorDivSIOp(rest, constant(factor)))
        if not least and not one_more:
            rest = emit(arith.AddiOp(rest, constant(1)))
        alone = form == Linear({axis: 1})  # all of the operand's, which is never less than nothing
        return (rest if alone else emit(arith.MaxSIOp(rest, constant(least)))), least

    if op.takes_size(axis):
        ends = [multiple(size(along), divisor) for along, divisor in op.entries_along(axis)]
        result, *others = ends
        for other in others:
            result = emit(arith.MinSIOp(result, other))
        result.name_hint = result.name_hint or axis
        return result
    limits = {along: form for along, form in op.forms.items() if op.is_limit(axis, form)}
    if not limits:
        raise Refusal(
            op,
            f"nothing tells the size of axis '{axis}' at launch: no argument has it, and a read with zeros "
            "around gives it none; make it static, or let it have the name of an axis that an argument has",
        )
    places = [room(along, form) for along, form in limits.items()]
    result, *others = [size for size, least in places if not least] or [size for size, _ in places]
    for other in others:
        result = emit(arith.MinSIOp(result, other))
    result.name_hint = result.name_hint or axis
    return result
