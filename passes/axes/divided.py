"""What knows of two axes that they are one: a read that leaves both as they are, one at entries that the outer one
chooses, and a condition on positions in both together. Of `w`, which is `x * S + y`, the outer axis is the quotient
`w // S`, and the inner one the remainder `w % S`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import ReadOp, WhereOp
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import (
    Entry,
    Linear,
    Read,
    axis_in,
    forms_of,
    parsed,
    quotient,
    remainder,
    spelled,
    terms_of,
)
from treadle.dialects.diagram.place import axes_of_forms, composed, entries_in


def divides(op: ReadOp, pair: tuple[str, str]) -> bool:
    """Whether a read is one at quotients and remainders of an axis: the outer axis of a pair only says which entries of
    arguments it reads, the inner one, of a known size, is a position in what those say."""
    outer, inner = pair
    if not op.is_padded or sizes_of(op.result.type).get(inner, 0) <= 0 or outer not in axes_of(op.result.type):
        return False
    given = [value for value in (op.operand, *op.inputs) if not {*pair}.isdisjoint(axes_of(value.type))]
    if any(not isinstance(value.owner, Block) for value in given):
        return False
    forms = op.place.forms
    of_entries = [form for entry in entries_in(forms) for form in entry.places]
    beside = [Linear({term: f for term, f in form.terms.items() if not isinstance(term, Entry)}) for form in forms]
    own = [form for form in forms if not entries_in([form])]
    mixed = [rest for form, rest in zip(forms, beside, strict=True) if entries_in([form])]
    return _stands_alone(outer, of_entries, beside) and _stands_alone(inner, own, (*of_entries, *mixed))


def is_beside(op: ReadOp, axes: Sequence[str]) -> bool:
    """Whether a read leaves axes as they are: each is the position along the axis of that name, and no other."""
    if any(not {*axes} <= {*axes_of(value.type)} for value in (op.operand, op.result)):
        return False
    if any(not {*axes}.isdisjoint(axes_of(value.type)) for value in op.inputs):
        return False
    left = [form for along, form in op.forms.items() if along not in axes]
    return all(op.forms[axis] == Linear({axis: 1}) for axis in axes) and {*axes}.isdisjoint(axes_of_forms(left))


def read_beside(op: ReadOp, axes: Sequence[str], whole: str) -> None:
    """Let a read that leaves axes as they are leave the one that they are as it is."""
    forms = {along: form for along, form in op.forms.items() if along not in axes[1:]} | {axes[0]: Linear({whole: 1})}
    op.properties["place"] = type(op.place)(", ".join(map(spelled, forms.values())))


def _stands_alone(axis: str, among: Sequence[Linear], others: Sequence[Linear]) -> bool:
    """Whether an axis is a position of its own among some, and stands in no other."""
    with_it = [form for form in among if axis in axes_of_forms([form])]
    return bool(with_it) and all(form == Linear({axis: 1}) for form in with_it) and axis not in axes_of_forms(others)


def is_place_alone(value: SSAValue, pair: tuple[str, str]) -> bool:
    """Whether an argument is read at entries that two axes choose, or has these entries, and is used by nothing else:
    its own axes stay what they are."""
    users = [use.operation for use in value.uses]
    return bool(users) and all(isinstance(op, ReadOp) and divides(op, pair) for op in users)


def read_divided(op: ReadOp, axes: Sequence[str], whole: str, size: int) -> None:
    """Let a read whose result has one axis in place of two, the inner one of that size, say where it reads by it."""
    outer, inner = axes
    places = {outer: Linear({quotient(whole, size): 1}), inner: remainder(whole, size)}
    forms = [composed(form, places) for form in op.place.forms]
    op.properties["place"] = type(op.place)(", ".join(map(spelled, forms)))


def why_asked(op: WhereOp, pair: tuple[str, str]) -> str | None:
    """Why a condition does not know two axes as one, by row-major positions and by data along both; None if it does, or
    knows neither."""
    told = [each.condition for each in op.told.values()]
    terms = [term for each in told for term in terms_of(each)]
    data = [term.axes for term in terms if isinstance(term, Read)]
    along = {axis_in(term) for term in terms if not isinstance(term, Read)}.union(*data)
    if not (asked := [axis for axis in pair if axis in along]):
        return None
    size = sizes_of(op.result.type)[pair[1]]
    in_rows = all(
        _goes_by_row(form, pair, size) for form in _forms_within(form for each in told for form in forms_of(each))
    )
    if in_rows and all({*pair}.isdisjoint(axes) or pair in pairwise(axes) for axes in data):
        return None
    return f"the condition '{op.condition.text.data}' asks for positions along '{asked[0]}'"


def _forms_within(forms: Iterable[Linear]) -> Iterator[Linear]:
    """Forms, and those that they divide."""
    for form in forms:
        yield form
        yield from _forms_within(term.form for term in form.divided)


def _goes_by_row(form: Linear, pair: tuple[str, str], size: int) -> bool:
    """Whether positions along two axes are asked for as one, row-major position, whose rows have that size."""
    outer, inner = (form.terms.get(axis, 0) for axis in pair)
    return outer == size * inner if size > 0 else outer == inner == 0


def asked_together(op: WhereOp, axes: Sequence[str], whole: str) -> None:
    """Let a condition that knows several axes as one name that: what is added for the outer ones is part of the
    position in it."""
    *outer, inner = axes
    for name, told in op.told.items():
        tree = parsed(told.text.data)
        if not {*axes}.isdisjoint(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
            text = ast.unparse(_Together({**dict.fromkeys(outer), inner: whole}).visit(tree))
            op.properties[name] = type(told)(text)


class _Together(ast.NodeTransformer):
    """Puts names in the place of names, or nothing: what is multiplied by nothing, or added to it, is gone."""

    def __init__(self, changes: Mapping[str, str | None]):
        self.changes = changes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self.changes.get(node.id, node.id)
        return ast.Constant(0) if name is None else ast.Name(name)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        left = [name for axis in axes if not _is_nothing(name := self.visit(axis))]
        return ast.Subscript(node.value, left[0] if len(left) == 1 else ast.Tuple(left, ast.Load()), ast.Load())

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Mult) and (_is_nothing(left) or _is_nothing(right)):
            return ast.Constant(0)
        if isinstance(node.op, ast.Add) and _is_nothing(left):
            return right
        if isinstance(node.op, ast.Add | ast.Sub) and _is_nothing(right):
            return left
        return ast.BinOp(left, node.op, right)


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


__all__ = ["asked_together", "divides", "is_beside", "is_place_alone", "read_beside", "read_divided", "why_asked"]
