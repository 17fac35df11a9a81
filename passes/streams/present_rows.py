"""Whether conditions leave an element of a row, as a formula beside what is reduced."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import i32
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ExtentOp, IndexOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, level_of, sizes_of
from treadle.dialects.diagram.condition import Term
from treadle.dialects.diagram.presence import stretches
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import Expression, Leaf, number
from treadle.passes.streams.undefined import is_there


@dataclass
class PresentRows:
    """Writes whether a row of a reduction has an element; `made` are the operations that it needs."""

    reduction: ContractOp | ReduceOp
    made: list[Operation] = field(default_factory=list[Operation])

    def write(self) -> Expression | None:
        """None where no formula tells: of rows over several axes, and of conditions on data along the row."""
        over, operands = self.reduction.over_axes, operands_of(self.reduction)
        if len(over) != 1:
            return None
        wheres = sorted(absences_of(operands), key=lambda where: where.condition.text.data)
        found = stretches([where.holds for where in wheres], over[0], over)
        if found is None:
            return None
        terms = {term for each in found for term in each.terms}
        if not {term for term in terms if isinstance(term, str)} <= set(axes_of(self.reduction.result.type)):
            return None
        if any(axes_of(term.type) for term in terms if isinstance(term, SSAValue) and not self._is_of_rows(term)):
            return None
        return is_there(found, self._size(over[0]), self._resolve)

    def _is_of_rows(self, value: SSAValue) -> bool:
        return set(axes_of(value.type)) <= set(axes_of(self.reduction.result.type))

    def _size(self, axis: str) -> Expression:
        operands = operands_of(self.reduction)
        size = next(size for each in operands if (size := sizes_of(each.type).get(axis)) is not None)
        return number(size, i32) if size != DYNAMIC else Leaf(self._add(ExtentOp(axis), f"extent_{axis}"))

    def _resolve(self, term: Term) -> Expression:
        if isinstance(term, SSAValue):
            return Leaf(term)
        assert isinstance(term, str)
        type = self.reduction.result.type
        return Leaf(self._add(IndexOp(array_type(i32, {term: sizes_of(type)[term]}, level_of(type))), term))

    def _add(self, op: Operation, hint: str) -> SSAValue:
        op.location = self.reduction.location
        op.results[0].name_hint = hint
        self.made.append(op)
        return op.results[0]
