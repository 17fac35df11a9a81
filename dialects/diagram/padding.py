"""Where views may leave the arrays that they are of: what lies outside is zero (`diagram.read .. padded`)."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.place import composed
from treadle.dialects.diagram.read import ReadOp


@dataclass(frozen=True)
class Inside:
    """A position along an axis of an array, over the axes of a view of it: there is something from 0 to below the
    size."""

    form: Linear
    axis: str
    size: int
    """DYNAMIC where the launch knows it."""


def padding_of(value: SSAValue) -> list[Inside]:
    """Where an array may leave those that it is a view of, a view of a view perhaps."""
    found: list[Inside] = []
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    while isinstance(op := value.owner, ReadOp):
        places = {along: composed(form, places) for along, form in op.forms.items()}
        sizes = sizes_of(op.operand.type)
        found += [Inside(places[along], along, sizes[along]) for along in op.leaving]
        value = op.operand
    return found
