"""Axes that stand for lines of columns: conditions ask for nothing of them but `x // 64` and `x % 64`. As two axes, the
lines and the columns, they have windows along both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, ContractOp, ExpandOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Both, Condition, Either, Linear, forms_of
from treadle.dialects.diagram.linear import ONE, Divided, Quotient, Term
from treadle.passes._functions import derived_hint, replace
from treadle.passes._parts import Reducing
from treadle.passes.axes.names import unused
from treadle.passes.expressions.conditions import where_holds

ALIKE = (CastOp, ContractOp, MapOp, ReduceOp, WhereOp)
"""Operations that may treat lines and columns as one axis."""


@dataclass(frozen=True)
class Lines:
    """An axis of lines, and the names of both of its own."""

    columns: int
    line: str
    column: str

    @property
    def names(self) -> tuple[str, str]:
        return self.line, self.column


def lines_in(function: func.FuncOp) -> dict[str, Lines]:
    """The axes of a function that are lines of columns."""
    block = function.body.block
    ops = [op for op in block.ops if not isinstance(op, func.ReturnOp)]
    wheres = [op for op in ops if isinstance(op, WhereOp)]
    forms = [form for op in wheres for form in forms_of(op.holds)]
    sizes = {axis: size for value in _values(block) for axis, size in sizes_of(value.type).items()}
    known = {axis for op in ops if not isinstance(op, ALIKE) for value in _around(op) for axis in axes_of(value.type)}
    known |= {axis for op in wheres for value in op.inputs for axis in _axes(value)}
    found = dict[str, Lines]()
    for axis, columns in _divisors(forms).items():
        if axis not in known and sizes[axis] > 0 and len(columns) == 1 and sizes[axis] % min(columns) == 0:
            names = (unused(f"{axis}_{what}", sizes) for what in ("line", "column"))
            found[axis] = Lines(min(columns), *names)
    while unsaid := [axis for form in forms if _in_lines(form, found) is None for axis in _axes_in(form)]:
        found = {axis: lines for axis, lines in found.items() if axis not in unsaid}
    return found


def _divisors(forms: Iterable[Linear]) -> dict[str, set[int]]:
    """What each axis is divided by."""
    found = dict[str, set[int]]()
    for term in (term for form in forms for term in form.divided):
        for axis in _axes_in(term.form):
            found.setdefault(axis, set()).add(term.divisor)
    return found


def _axes_in(form: Linear) -> list[str]:
    return [atom for atom in form.atoms if isinstance(atom, str)]


def _in_lines(form: Linear, lines: Mapping[str, Lines]) -> Linear | None:
    """What is to be at least zero, by lines and columns; None if these do not say it. What one quotient is compared
    with, the axis itself is: `x // 64 <= q` says `x <= 64 * q + 63`."""
    if alone := [axis for axis in form.terms if isinstance(axis, str) and axis in lines]:
        (axis, *others), factor = alone, form.terms[alone[0]]
        columns, rest = lines[axis].columns, form.plus(Linear({axis: 1}), -factor)
        rest = rest if factor > 0 else rest.plus(ONE, 1 - columns)
        if others or abs(factor) != 1 or any(each % columns for each in (*rest.terms.values(), rest.constant)):
            return None
        form = rest.over(columns).plus(Linear({lines[axis].line: 1}), factor)
    found = Linear({}, form.constant)
    for term, factor in form.terms.items():
        said = _term_in_lines(term, lines)
        if said is None:
            return None
        found = found.plus(Linear({said: 1}), factor)
    return found


def _term_in_lines(term: Term, lines: Mapping[str, Lines]) -> Term | None:
    if not isinstance(term, Divided) or not any(axis in lines for axis in _axes_in(term.form)):
        return term
    (axis, *_) = _axes_in(term.form)
    own = lines.get(axis)
    if own is None or term.form != Linear({axis: 1}) or term.divisor != own.columns:
        return None
    return own.line if isinstance(term, Quotient) else own.column


def unfold(function: func.FuncOp, lines: Mapping[str, Lines]) -> None:
    """Let a function have lines and columns in the place of these axes; its arguments and results keep theirs."""
    for op in list(function.body.block.ops):
        if isinstance(op, WhereOp):
            new = where_holds(op.operand, _holds(op.holds, lines))
            new.location = op.location
            replace(op, [new], new.result)
    for axis, own in lines.items():
        _Unfolding(function.body.block, axis, own).write()


def in_lines(function: func.FuncOp) -> func.FuncOp:
    """A copy of a function with lines and columns; itself, if no axis has any."""
    if lines := lines_in(function):
        function = function.clone()
        unfold(function, lines)
    return function


def _holds(condition: Condition, lines: Mapping[str, Lines]) -> Condition:
    if isinstance(condition, AtLeastZero):
        form = _in_lines(condition.form, lines)
        assert form is not None
        return AtLeastZero(form)
    parts = tuple(_holds(part, lines) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


@dataclass(frozen=True)
class _Unfolding:
    block: Block
    axis: str
    lines: Lines

    def write(self) -> None:
        returned = self.block.last_op
        assert isinstance(returned, func.ReturnOp)
        wanted = [value.type for value in returned.operands]
        ops = [op for op in self.block.ops if op is not returned]
        for op in ops:
            self._unfold(op)
        for argument in self.block.args:
            if self.axis in _axes(argument):
                self._expand(argument, returned)
        for index, (value, type) in enumerate(zip(returned.operands, wanted, strict=True)):
            if value.type != type:
                view = CollapseOp(value, self.lines.names, self.axis, type)
                view.location = returned.location
                Rewriter.insert_op(view, InsertPoint.before(returned))
                view.result.name_hint, value.name_hint = value.name_hint, derived_hint(value, "lines")
                returned.operands[index] = view.result

    def _unfold(self, op: Operation) -> None:
        for result in op.results:
            if self.axis in _axes(result):
                Rewriter.replace_value_with_new_type(result, self._type(result.type))
        if isinstance(op, Reducing) and self.axis in op.over_axes:
            op.properties["over"] = ArrayAttr(StringAttr(axis) for axis in self._replaced(op.over_axes))

    def _expand(self, argument: SSAValue, returned: Operation) -> None:
        uses = [use for use in argument.uses if use.operation is not returned]
        first = self.block.first_op
        assert first is not None
        if uses:
            view = ExpandOp(argument, self.axis, self.lines.names, self._type(argument.type))
            view.location = uses[0].operation.location
            view.result.name_hint = derived_hint(argument, "lines")
            Rewriter.insert_op(view, InsertPoint.before(first))
            for use in uses:
                use.operation.operands[use.index] = view.result

    def _type(self, type: Attribute) -> Attribute:
        found = dict[str, int]()
        for axis, size in sizes_of(type).items():
            own = dict(zip(self.lines.names, (size // self.lines.columns, self.lines.columns), strict=True))
            found |= own if axis == self.axis else {axis: size}
        return array_type(format_of(type), found)

    def _replaced(self, axes: tuple[str, ...]) -> Iterator[str]:
        for axis in axes:
            yield from self.lines.names if axis == self.axis else (axis,)


def _values(block: Block) -> list[SSAValue]:
    values = [*block.args, *(result for op in block.ops for result in op.results)]
    return [value for value in values if is_array(value.type)]


def _around(op: Operation) -> list[SSAValue]:
    """The arrays that an operation, or one inside it, is given, gives, or names."""
    values = [value for each in op.walk() for value in (*each.operands, *each.results)]
    values += [argument for each in op.walk() for region in each.regions for b in region.blocks for argument in b.args]
    return [value for value in values if is_array(value.type)]


def _axes(value: SSAValue) -> tuple[str, ...]:
    return axes_of(value.type) if is_array(value.type) else ()


__all__ = ["Lines", "in_lines", "lines_in", "unfold"]
