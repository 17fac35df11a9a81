"""Where views may leave the arrays that they are of (`diagram.read .. padded`): what lies outside is zero, and no thread
loads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.hierarchy import KernelOp


@dataclass(frozen=True)
class Inside:
    """A position along an axis of an array, over the axes of a view of it: from 0 on, and below the size."""

    form: Linear
    axis: str
    size: int
    """DYNAMIC where the launch knows it."""


def padding_of(value: SSAValue) -> list[Inside]:
    """Where an array may leave those that it is a view of, a view of a view perhaps."""
    found: list[Inside] = []
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    while isinstance(op := value.owner, ReadOp):
        places = {along: _composed(form, places) for along, form in op.forms.items()}
        sizes = sizes_of(op.operand.type)
        found += [Inside(places[along], along, sizes[along]) for along in op.leaving]
        value = op.operand
    return found


def padding_of_kernel(kernel: KernelOp) -> dict[SSAValue, list[Inside]]:
    """That of each array that a kernel is given as a view which may leave its own."""
    given = zip(kernel.body.block.args, kernel.inputs, strict=False)
    return {argument: padding for argument, value in given if (padding := padding_of(value))}


def lengths_beside(padding: Mapping[SSAValue, Iterable[Inside]], axes: Iterable[str]) -> list[str]:
    """Symbolic axes whose sizes the views ask for, and which a kernel has not itself."""
    asked = dict.fromkeys(each.axis for of in padding.values() for each in of if each.size == DYNAMIC)
    return [axis for axis in asked if axis not in set(axes)]


def _composed(form: Linear, places: Mapping[str, Linear]) -> Linear:
    whole = Linear({}, form.constant)
    for axis, factor in form.terms.items():
        whole = whole.plus(places[str(axis)], factor)
    return whole
