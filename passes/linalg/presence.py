"""Conditions in the body of a `linalg.generic`: what stands there for an absent element where it is combined or saved.

`linalg` has no absent elements. What a map makes of one is absent as well, so nothing needs to be done about it until
it is reduced, multiplied or leaves the function: there the condition is tested, and a neutral element is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from treadle.compiler.lowering.comparisons import test_of
from treadle.compiler.lowering.numbers import number_in
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, Format, sizes_of
from treadle.dialects.diagram.condition import LAST_POSITION, Atom, terms_of
from treadle.passes.linalg.scalars import position


@dataclass(frozen=True)
class Presence:
    """The conditions by which elements that some arrays make together may be absent."""

    wheres: tuple[WhereOp, ...]

    @staticmethod
    def of(values: Iterable[SSAValue]) -> Presence:
        found = absences_of(values)
        block = next((op.parent for op in found), None)
        in_order = () if block is None else block.ops
        return Presence(tuple(op for op in in_order if isinstance(op, WhereOp) and op in found))

    @property
    def inputs(self) -> tuple[SSAValue, ...]:
        """The data that the conditions ask for: further operands of the generic."""
        terms = [term for op in self.wheres for term in terms_of(op.holds)]
        return tuple(dict.fromkeys(term for term in terms if isinstance(term, SSAValue)))

    def kept(self, element: SSAValue, data: Sequence[SSAValue], loops: Sequence[str], other: float) -> SSAValue:
        """In the body under construction: an element where all conditions hold, and another number elsewhere. `data`
        has the scalars of `inputs`."""
        if not self.wheres:
            return element
        terms: dict[Atom, SSAValue] = dict(zip(self.inputs, data, strict=True))
        for term in dict.fromkeys(term for op in self.wheres for term in terms_of(op.holds)):
            if isinstance(term, str):
                terms[term] = position(loops.index(term))
        tests = [test_of(op.holds, terms, lambda op: op.results[0], self._last(op)) for op in self.wheres]
        holds = tests[0]
        for test in tests[1:]:
            holds = arith.AndIOp(holds, test).result
        number = arith.ConstantOp(number_in(cast(Format, element.type), other))
        return arith.SelectOp(holds, element, number.result).result

    def _last(self, op: WhereOp) -> Mapping[str, int]:
        """The last position along each axis."""
        return {a: LAST_POSITION if size == DYNAMIC else size for a, size in sizes_of(op.result.type).items()}
