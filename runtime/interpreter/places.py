"""Where the elements of a read lie, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.interpreter import PythonValues

from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import Entry, Term, axis_in, of_position
from treadle.runtime.interpreter.arrays import array_of, padded

Positions = NDArray[np.int64]


@dataclass
class Places:
    """The positions at which a read finds its elements, given those along the axes of its result, each as an array that
    goes along one of them, and the arrays of its entries."""

    op: ReadOp
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
