"""Arrays that are read along other axes, at places that say where each of their own stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import Linear, spelled
from treadle.dialects.diagram.place import composed
from treadle.passes._functions import derived_hint
from treadle.passes.expressions.scalars import Leaf, build_map


def read_at(value: SSAValue, places: Mapping[str, Linear], type: Attribute, before: Operation) -> ReadOp:
    """What an operation reads of an array in the place of it, with zeros around. Of a view it is what that is one of,
    if one place says where (a quotient of a quotient no place says); else the view is saved first."""
    if isinstance(view := value.owner, ReadOp):
        try:
            return _read(view.operand, view.place.forms, places, type, view.named)
        except VerifyException:
            copy = build_map(Leaf(value), value.type, derived_hint(value, "copy"), before.location)
            Rewriter.insert_op(copy, InsertPoint.before(before))
            value = copy.result
    return _read(value, [Linear({axis: 1}) for axis in axes_of(value.type)], places, type, {})


def _read(
    value: SSAValue,
    forms: Sequence[Linear],
    places: Mapping[str, Linear],
    type: Attribute,
    inputs: Mapping[str, SSAValue],
) -> ReadOp:
    place = ", ".join(spelled(composed(form, places)) for form in forms)
    read = ReadOp(value, place, type, padded=True, inputs=inputs)
    read.verify()
    return read


__all__ = ["read_at"]
