"""Where views may leave the arrays that they are of: what lies outside is zero (`diagram.read .. padded`)."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.place import composed, entries_in
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
    """Where an array may leave those that it is a view of, a view of a view perhaps. Of one that is scattered, first
    where entries lie in their arrays, then where they may leave the operand."""
    if (scattered := scattered_read(value)) is not None:
        return _of_scattered(scattered)
    found: list[Inside] = []
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    while isinstance(op := value.owner, ReadOp):
        places = {along: composed(form, places) for along, form in op.forms.items()}
        sizes = sizes_of(op.operand.type)
        found += [Inside(places[along], along, sizes[along]) for along in op.leaving]
        value = op.operand
    return found


def scattered_read(value: SSAValue) -> ReadOp | None:
    """The read that gives an array, if its elements have no strides: kernels are given its operand, and find them."""
    return value.owner if isinstance(value.owner, ReadOp) and value.owner.is_scattered else None


def _of_scattered(op: ReadOp) -> list[Inside]:
    found: list[Inside] = []
    for entry in entries_in(op.place.forms):
        sizes = sizes_of(op.named[entry.name].type)
        forms = op.entry_forms(entry)
        found += [Inside(form, along, sizes[along]) for along, form in forms.items() if form != Linear({along: 1})]
    sizes = sizes_of(op.operand.type)
    found += [Inside(form, along, sizes[along]) for along, form in op.leaving.items()]
    return list(dict.fromkeys(found))
