"""Which pieces a condition on data leaves of a stream (`hierarchy.select`): a value for each cell is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from treadle.dialects.diagram.condition import Term, evaluate, terms_of
from treadle.dialects.hierarchy import SelectOp
from treadle.runtime.interpreter.arrays import Array, Numbers, bytes_of
from treadle.runtime.interpreter.session import Session


@dataclass(frozen=True)
class Selected:
    """Pieces of a stream: where those begin that it is fed, and before where something is known of them."""

    starts: frozenset[int]
    known: int


@dataclass(frozen=True)
class Asking:
    """What is asked of pieces in one group."""

    op: SelectOp
    session: Session
    given: Mapping[SSAValue, Any]

    def may_hold(self, piece: slice) -> bool:
        """Whether the condition may hold in a cell of a piece."""
        firsts: dict[str, NDArray[np.int64]] = {}
        with self.session.scope.within({self.op.axis: piece}):
            for axis, cell in self.op.cells.as_dict().items():
                place = self.session.scope.piece(axis)
                firsts[axis] = np.arange(place.start, place.stop, cell, dtype=np.int64)
        asked = self.op.asked
        known = {term: self._value(term, firsts) for term in dict.fromkeys(terms_of(asked))}
        return bool(np.any(evaluate(asked, known.__getitem__)))

    def _value(self, term: Term, firsts: Mapping[str, NDArray[np.int64]]) -> Any:
        if isinstance(term, str):
            return _along(firsts[term], [term], list(firsts))
        assert isinstance(term, SSAValue)
        array = self.given[term]
        if not isinstance(array, Array):
            return int(cast(Numbers, array).value)
        found = array.numbers.value[np.ix_(*(firsts[axis] for axis in array.axes))].astype(np.int64)
        self.session.tally.loaded["register"] += found.size
        self.session.tally.loaded_bytes["register"] += found.size * bytes_of(i32)
        return _along(found, array.axes, list(firsts))


def _along(values: NDArray[np.int64], own: Sequence[str], axes: Sequence[str]) -> NDArray[np.int64]:
    """Values along some of the axes, so that they meet others along all."""
    kept = [axis for axis in axes if axis in own]
    turned = values.transpose([list(own).index(axis) for axis in kept])
    return turned.reshape([turned.shape[kept.index(axis)] if axis in kept else 1 for axis in axes])
