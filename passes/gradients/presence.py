"""Absent elements in gradients. What is absent has no gradient: a cotangent counts as zero wherever the value is
absent, and wherever the cotangent itself is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ApplyOp, ConditionAttr, LawOp, WhereOp, YieldOp
from treadle.dialects.diagram.absence import absences_of, absent_with
from treadle.passes.gradients.laws import law_of


@dataclass(frozen=True)
class Asked:
    """A condition, and the values that it is about: equal for two operations that keep the same elements."""

    condition: ConditionAttr
    names: ArrayAttr[StringAttr]
    inputs: tuple[SSAValue, ...]

    @classmethod
    def by(cls, op: WhereOp) -> Asked:
        return cls(op.condition, op.names, tuple(op.inputs))

    def of(self, value: SSAValue) -> WhereOp:
        """The elements of a value at which it holds."""
        named = {name.data: each for name, each in zip(self.names, self.inputs, strict=True)}
        return WhereOp(value, self.condition, named)


def conditions(value: SSAValue, laws: Mapping[str, LawOp]) -> frozenset[Asked]:
    """The conditions by which elements of an array may be absent, through laws that are applied, too."""
    return conditions_of([value], laws)


def conditions_of(values: Iterable[SSAValue], laws: Mapping[str, LawOp]) -> frozenset[Asked]:
    """Of any of some arrays."""
    return frozenset(map(Asked.by, absences_of(values, lambda value, op: _absent_with(value, op, laws))))


def _absent_with(value: SSAValue, op: Operation, laws: Mapping[str, LawOp]) -> Sequence[SSAValue]:
    """The operands whose absent elements are absent from a result, too."""
    if not isinstance(op, ApplyOp):
        return absent_with(op)
    law = law_of(op, laws)
    if law is None:
        return []
    return [op.inputs[i] for i in _elementwise(law, op.outputs.index(value))]


def _elementwise(law: LawOp, result: int) -> list[int]:
    """The arguments of a law of which a result is made element by element."""
    terminator = law.body.block.last_op
    assert isinstance(terminator, YieldOp)
    left, seen = [terminator.operands[result]], set[SSAValue]()
    while left:
        value = left.pop()
        if value not in seen and isinstance(value.owner, Operation):
            left.extend(absent_with(value.owner))
        seen.add(value)
    return [i for i, argument in enumerate(law.body.block.args) if argument in seen]
