"""Where the elements of a read lie, or of what is scattered, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.interpreter import PythonValues

from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import Entry, Term, axis_in, of_position
from treadle.dialects.diagram.placed import PlacedOperation
from treadle.runtime.interpreter.arrays import AnyArray, array_of, padded

Positions = NDArray[np.int64]


@dataclass
class Places:
    """The positions at which the elements of a part lie, given those along its axes, each as an array that goes along
    one of them, and the arrays of entries."""

    op: PlacedOperation
    at: Mapping[str, Positions]
    inputs: PythonValues
    outside: list[NDArray[np.bool_]] = field(default_factory=list[NDArray[np.bool_]])
    """Where positions of entries lie outside of their arrays, as far as entries were asked for."""

    def of(self, term: Term) -> Positions:
        """What a term of a place is; an entry outside of its array is 0."""
        if isinstance(term, Entry):
            return self._entry(term)
        return of_position(term, self.at[axis_in(term)])

    def there(self, shape: Sequence[int]) -> NDArray[np.bool_]:
        """Where all entries are inside of their arrays."""
        there = np.ones(tuple(shape), bool)
        for outside in self.outside:
            there &= ~outside
        return there

    def _entry(self, entry: Entry) -> Positions:
        values = dict(zip(self.op.named, self.inputs, strict=True))
        array = array_of(values[entry.name])
        data = array.aligned(axes_of(self.op.named[entry.name].type)).value
        position = [np.asarray(form.evaluate(self.of)) for form in entry.places]
        shape = np.broadcast_shapes(*(each.shape for each in position))
        inside = np.ones(shape, bool)
        for each, size in zip(position, data.shape, strict=True):
            inside &= (each >= 0) & (each < size)
        self.outside.append(~inside)
        return padded(data, position, np.ones(shape, bool)).astype(np.int64)


@dataclass(frozen=True)
class Sums:
    """What is added up where: for each element of a part its place in an array, numbered in the order of memory, and
    whether it has one."""

    places: Positions
    there: NDArray[np.bool_]
    shape: tuple[int, ...]

    def of(self, data: AnyArray) -> AnyArray:
        """The sums of some elements, in their format; zero where there are none."""
        sums = np.zeros(self.shape, data.dtype)
        np.add.at(sums.reshape(-1), self.places[self.there], np.broadcast_to(data, self.there.shape)[self.there])
        return sums


def sums_at(op: PlacedOperation, sizes: Sequence[int], inputs: PythonValues, shape: Sequence[int]) -> Sums:
    """Where the elements of a part of these sizes are added up in an array of this shape."""
    along = dict(zip(axes_of(op.part.type), np.indices(tuple(sizes), dtype=np.int64, sparse=True), strict=True))
    found = Places(op, along, inputs)
    positions = [np.asarray(form.evaluate(found.of)) for form in op.forms.values()]
    there, place = found.there(sizes), np.zeros(tuple(sizes), np.int64)
    for position, size in zip(positions, shape, strict=True):
        there &= (position >= 0) & (position < size)
        place = place * size + np.clip(position, 0, max(size - 1, 0))
    return Sums(place, there, tuple(shape))
