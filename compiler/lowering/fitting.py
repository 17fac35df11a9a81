"""How far an axis of a read may reach, computed at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
    return _Fitting(op, axis, is_known, size_of, emit).size()


@dataclass(frozen=True)
class _Fitting:
    op: ReadOp
    axis: str
    is_known: Callable[[str], bool]
    size_of: Callable[[str], SSAValue]
    emit: Callable[[Operation], SSAValue]

    def size(self) -> SSAValue:
        if self.op.takes_size(self.axis):
            blocks = self.op.blocks_along(self.axis)
            return self._least([self._multiple(self._size(along), divisor) for along, divisor in blocks])
        limits = {along: form for along, form in self.op.forms.items() if self.op.is_limit(self.axis, form)}
        if not limits:
            raise Refusal(
                self.op,
                f"nothing tells the size of axis '{self.axis}' at launch: no argument has it, and a read with zeros "
                "around gives it none; make it static, or let it have the name of an axis that an argument has",
            )
        rooms = [self._room(along, form) for along, form in limits.items()]
        return self._least([size for size, least in rooms if not least] or [size for size, _ in rooms])

    def _least(self, sizes: Sequence[SSAValue]) -> SSAValue:
        result, *others = sizes
        for other in others:
            result = self.emit(arith.MinSIOp(result, other))
        result.name_hint = result.name_hint or self.axis
        return result

    def _room(self, along: str, form: Linear) -> tuple[SSAValue, int]:
        """How far the axis may reach in one place, and the least that it has."""
        if self.op.covers(self.axis, form):
            return self._covering(along, form), 0
        factor = form.terms[self.axis]
        others = {str(term): times for term, times in form.terms.items() if term != self.axis}
        known = {t: f for t, f in others.items() if f >= factor or t in self._static or self.is_known(t)}
        least = int(known != others)  # where it steps over an axis without a size
        one_more = int(not least and factor == 1)  # which else is added after the division
        reached = sum(f * (self._static.get(t, 0) - 1) for t, f in known.items())
        rest = self._minus(self._size(along), form.constant + 1 - least - one_more + reached)
        for term, times in known.items():
            if term not in self._static:
                rest = self.emit(arith.SubiOp(rest, self._multiple(self.size_of(term), times)))
        if factor != 1:
            rest = self.emit(arith.FloorDivSIOp(rest, self._constant(factor)))
        if not least and not one_more:
            rest = self.emit(arith.AddiOp(rest, self._constant(1)))
        if form == Linear({self.axis: 1}):  # all of the operand's, which is never less than nothing
            return rest, least
        return self.emit(arith.MaxSIOp(rest, self._constant(least))), least

    def _covering(self, along: str, form: Linear) -> SSAValue:
        factor = form.terms[self.axis]
        others = Linear({term: times for term, times in form.terms.items() if term != self.axis}, form.constant)
        rest = self._minus(self._size(along), reach(others, self._static) - factor + 1)
        steps = self.emit(arith.FloorDivSIOp(rest, self._constant(factor)))
        return self.emit(arith.MaxSIOp(self.emit(arith.AddiOp(steps, self._constant(1))), self._constant(0)))

    @cached_property
    def _static(self) -> dict[str, int]:
        types = (self.op.operand.type, *(value.type for value in self.op.inputs), self.op.result.type)
        return {name: size for type in types for name, size in sizes_of(type).items() if size != DYNAMIC}

    def _size(self, name: str) -> SSAValue:
        return self._constant(self._static[name]) if name in self._static else self.size_of(name)

    def _constant(self, number: int) -> SSAValue:
        return self.emit(arith.ConstantOp.from_int_and_width(number, IndexType()))

    def _minus(self, value: SSAValue, number: int) -> SSAValue:
        return self.emit(arith.SubiOp(value, self._constant(number))) if number else value

    def _multiple(self, value: SSAValue, factor: int) -> SSAValue:
        return value if factor == 1 else self.emit(arith.MuliOp(value, self._constant(factor)))
