"""Results that a gradient is given: what was saved of a program need not be computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, LawOp, ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.passes.gradients.presence import conditions


def given_values(results: Sequence[SSAValue], arguments: Sequence[SSAValue]) -> dict[SSAValue, SSAValue]:
    """The values that a program computes and that arguments hold: its results, and what was cast to one, in the order
    in which they are computed."""
    found: dict[SSAValue, SSAValue] = {}
    for result, argument in zip(results, arguments, strict=True):
        for value in _held(result):
            known = found.get(value)
            if known is None or format_of(known.type) != format_of(value.type) == format_of(argument.type):
                found[value] = argument
    return found


def _held(result: SSAValue) -> Iterator[SSAValue]:
    """A result and what was rounded to it. Not what lost most of its digits, for that is another number, and no
    extremum, which is compared with what it is of."""
    op = result.owner
    if not isinstance(op, Operation) or _is_extremum(op):
        return
    yield result
    if isinstance(op, CastOp) and op.fixed is None and str(format_of(result.type)) not in EIGHT_BIT:
        yield from _held(op.operand)


def _is_extremum(op: Operation) -> bool:
    return isinstance(op, ReduceOp) and op.kind.data in ("max", "min")


def take_given(given: Mapping[SSAValue, SSAValue], laws: Mapping[str, LawOp]) -> list[SSAValue]:
    """Put arguments in the places of what they hold; the values that something used. What is absent was saved as zero
    and is absent again."""
    taken: list[SSAValue] = []
    for value, argument in given.items():
        op = value.owner
        assert isinstance(op, Operation)
        if not value.uses:
            continue
        new = argument
        if argument.type != value.type:
            new = _insert(CastOp(argument, value.type), op, value)
        for condition in sorted(conditions(value, laws), key=lambda each: each.condition.text.data):
            new = _insert(condition.of(new), op, value)
        value.replace_all_uses_with(new)
        taken.append(value)
    return taken


def _insert(new: Operation, before: Operation, like: SSAValue) -> SSAValue:
    new.location = before.location
    new.results[0].name_hint = like.name_hint
    Rewriter.insert_op(new, InsertPoint.before(before))
    return new.results[0]
