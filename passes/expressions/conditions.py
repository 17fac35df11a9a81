"""Conditions as text: the parts of one, and what an operation says of values that get names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import SSAValue

from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Atom,
    Both,
    Condition,
    Either,
    Linear,
    forms_of,
    terms_of,
)
from treadle.dialects.diagram.linear import Divided, Quotient, quotient_of, remainder_of, times


def parts_of(condition: Condition) -> Iterator[Condition]:
    """The parts of a conjunction, those of inner ones too; equalities, which are two comparisons, stay whole."""
    if not isinstance(condition, Both) or _is_equality(condition):
        yield condition
        return
    for part in condition.parts:
        yield from parts_of(part)


def _is_equality(condition: Both) -> bool:
    forms = [part.form for part in condition.parts if isinstance(part, AtLeastZero)]
    return len(condition.parts) == len(forms) == 2 and forms[0] == forms[1].times(-1)


def spelled(condition: Condition, names: Mapping[SSAValue, str]) -> str:
    """A condition as a text that `read_condition` reads, with these names for its inputs."""
    match condition:
        case AtLeastZero(form):
            return f"{_side(form, -1, names)} <= {_side(form, 1, names)}"
        case Both() if _is_equality(condition):
            form = next(forms_of(condition))
            return f"{_side(form, 1, names)} == {_side(form, -1, names)}"
        case Both(parts=(part,)):
            return spelled(part, names)
        case Both(parts):
            return " and ".join(_within(part, names) for part in parts) or "0 <= 0"
        case Either(parts):
            return " or ".join(_within(part, names) for part in parts) or "1 <= 0"


def _within(condition: Condition, names: Mapping[SSAValue, str]) -> str:
    text = spelled(condition, names)
    is_joined = isinstance(condition, Both | Either) and not (isinstance(condition, Both) and _is_equality(condition))
    return f"({text})" if is_joined else text


def _side(form: Linear, sign: int, names: Mapping[SSAValue, str]) -> str:
    side = form.side(sign)
    terms = [times(factor, term, lambda atom: _named(atom, names)) for term, factor in side.terms.items()]
    if side.constant or not terms:
        terms.append(str(side.constant))
    return " + ".join(terms)


def _named(atom: Atom, names: Mapping[SSAValue, str]) -> str:
    if not isinstance(atom, SSAValue):
        return str(atom)
    axes = axes_of(atom.type) if is_array(atom.type) else ()
    return f"{names[atom]}[{', '.join(axes)}]" if axes else names[atom]


def inputs_of(condition: Condition) -> dict[SSAValue, str]:
    """The inputs of a condition, each with a name that no axis has."""
    values = dict.fromkeys(term for term in terms_of(condition) if isinstance(term, SSAValue))
    taken = {axis for value in values if is_array(value.type) for axis in axes_of(value.type)}
    taken |= {term for term in terms_of(condition) if isinstance(term, str)}
    names: dict[SSAValue, str] = {}
    for value in values:
        wanted = (value.name_hint or "input", *(f"input_{number}" for number in range(len(taken) + 1)))
        names[value] = next(name for name in wanted if name not in taken)
        taken.add(names[value])
    return names


def where_holds(operand: SSAValue, condition: Condition) -> WhereOp:
    """What a condition over positions and the values of its inputs keeps of an array."""
    names = inputs_of(condition)
    return WhereOp(operand, spelled(condition, names), {name: value for value, name in names.items()})


def at_places(condition: Condition, places: Mapping[str, Linear]) -> Condition:
    """What a condition says where positions along some axes are these. Its inputs stay what they are."""
    if isinstance(condition, AtLeastZero):
        return AtLeastZero(_form_at(condition.form, places))
    parts = tuple(at_places(part, places) for part in condition.parts)
    return Both(parts) if isinstance(condition, Both) else Either(parts)


def _form_at(form: Linear, places: Mapping[str, Linear]) -> Linear:
    found = Linear({}, form.constant)
    for term, factor in form.terms.items():
        if isinstance(term, Divided):
            divide = quotient_of if isinstance(term, Quotient) else remainder_of
            found = found.plus(divide(_form_at(term.form, places), term.divisor), factor)
        else:
            place = places.get(term) if isinstance(term, str) else None
            found = found.plus(place or Linear({term: 1}), factor)
    return found


__all__ = ["at_places", "inputs_of", "parts_of", "spelled", "where_holds"]
