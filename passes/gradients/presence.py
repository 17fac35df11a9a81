"""Absent elements in gradients. What is absent has no gradient: a cotangent counts as zero wherever the value is
absent, and wherever the cotangent itself is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ApplyOp, ConditionAttr, LawOp, ReduceOp, WhereOp, YieldOp
from treadle.dialects.diagram.absence import absences_of, absent_with
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import terms_of
from treadle.dialects.diagram.linear import Read
from treadle.passes.gradients.laws import law_of


@dataclass(frozen=True)
class Asked:
    """A condition, and the values that it is about: equal for two operations that keep the same elements."""

    condition: ConditionAttr
    names: ArrayAttr[StringAttr]
    inputs: tuple[SSAValue, ...]

    @classmethod
    def by(cls, op: WhereOp) -> Asked:
        return cls(op.condition, ArrayAttr(StringAttr(name) for name in op.asked), tuple(op.asked.values()))

    @property
    def axes(self) -> frozenset[str]:
        """The axes whose positions decide, directly or in what an input is read by."""
        named = {name.data for name in self.names}
        terms = list(terms_of(self.condition.condition))
        own = {term for term in terms if isinstance(term, str) and term not in named}
        return frozenset(own.union(*(term.axes for term in terms if isinstance(term, Read))))

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


def vanishing(cotangent: SSAValue, laws: Mapping[str, LawOp]) -> frozenset[Asked]:
    """The conditions outside of which a cotangent is zero because it is a sum of what is absent there, along axes of
    which they say nothing."""
    op = cotangent.owner
    if not isinstance(op, ReduceOp) or op.kind.data != "add":
        return frozenset()
    inside = conditions(op.operand, laws) | vanishing(op.operand, laws)
    return frozenset(asked for asked in inside if asked.axes.issubset(axes_of(cotangent.type)))


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
