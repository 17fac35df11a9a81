"""Finished states of a stream that are no number, because the formula has none.

While a guarded state `r` is neutral a finite number stands for it in a stream (`streams.stream`), so that a row which
begins with nothing but the neutral element of `r` can go on: what it adds is zero. A row that *ends* so has no number
in the formula, where each of its elements is as far from `r` as `-inf` from itself: a law is used only where that is so
(`expressions.infinities.troubled_by`). So the stream says it at its end, once a row: a state that followed `r` is NaN
if `r` is neutral still though the axis has an element. Of an axis without one the sum stays what a sum of nothing
is, as does one whose elements are zero then, for so the formula chooses (`is_nothing_at_start`)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType, i32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ExtentOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.condition import Atom, Divided, Linear, Quotient, Term, leaves_32_bits
from treadle.dialects.diagram.presence import Stretch, stretches
from treadle.passes.expressions.infinities import has_stand_in, is_nothing_at_start, may_be_infinite
from treadle.passes.expressions.kinds import NAN, ZERO, kinds_of
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.reductions import neutral_of, operands_of
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    compare,
    expression_of,
    is_number,
    is_plain,
    number,
    product,
    same_predicate,
    select,
)
from treadle.passes.streams.changes import is_ordered
from treadle.passes.streams.stages import StreamPlan

_PASS_ON: tuple[type[Operation], ...] = (
    *CASTS,
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.NegfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    math.ExpOp,
    math.Exp2Op,
    math.LogOp,
    math.Log2Op,
    math.SqrtOp,
    math.RsqrtOp,
    math.TanhOp,
)
"""Operations that give no number if an operand is none."""


def undefined_with(plan: StreamPlan, stream: int) -> dict[SSAValue, tuple[SSAValue, ...]]:
    """For each state of a stream that has to be told: the states of the same stream which, neutral at the end, leave it
    without a number.

    Not told is a state whose every use is no number anyway: `sum(p v) / sum(p)` is 0/0, if nothing keeps it from
    dividing. Nor is one where another that is told spoils every use: of such a quotient that is guarded only the
    divisor is told, one choice a row."""
    following: dict[SSAValue, tuple[SSAValue, ...]] = {}
    for state in plan.states_in(stream):
        if guards := tuple(dict.fromkeys(_guards_of(plan, state, following))):
            following[state] = guards
    found = {state: guards for state, guards in following.items() if not _is_undefined_anyway(plan, state, following)}
    for state in sorted(found, key=lambda state: -len(sizes_of(state.type))):
        others = [other for other in found if other is not state and _is_told_wherever(other, state, found)]
        if _is_told_by(plan, state, others):
            del found[state]
    return found


def _is_told_wherever(other: SSAValue, state: SSAValue, guards: Mapping[SSAValue, tuple[SSAValue, ...]]) -> bool:
    over, of_other = (set(_reduction(value).over_axes) for value in (state, other))
    return of_other <= over and set(guards[other]) >= set(guards[state])


def is_limited(state: SSAValue) -> bool:
    """Whether conditions leave elements out of what a state reduces."""
    return bool(absences_of(operands_of(_reduction(state))))


def stretches_of(plan: StreamPlan, state: SSAValue) -> tuple[Stretch, ...] | None:
    """The stretches of the streamed axis at which a state has elements, by the conditions on what it reduces; None
    where no formula tells them."""
    op = _reduction(state)
    wheres = sorted(absences_of(operands_of(op)), key=lambda where: where.condition.text.data)
    found = stretches([where.holds for where in wheres], plan.axis, op.over_axes)
    if found is None:
        return None
    positions = {term for each in found for term in each.terms if isinstance(term, str)}
    return found if positions <= set(axes_of(state.type)) else None


def is_there(found: Iterable[Stretch], size: Expression, resolve: Callable[[Atom], Expression]) -> Expression:
    """Whether one of some stretches of an axis of a size has a position."""
    answers = [_is_stretch_there(each, size, resolve) for each in found]
    return _folded(arith.OrIOp, answers)


def _is_stretch_there(stretch: Stretch, size: Expression, resolve: Callable[[Atom], Expression]) -> Expression:
    def bounds(forms: Iterable[Linear]) -> list[Expression]:
        return [_linear(form, resolve, type) for form in forms]

    type = _integers_for(*stretch.lows, *stretch.highs)
    end = _without_overflow(arith.SubiOp, _as(size, type), number(1, type))
    first = _folded(arith.MaxSIOp, [number(0, type), *bounds(stretch.lows)])
    last = _folded(arith.MinSIOp, [end, *bounds(stretch.highs)])
    tests = [compare(first, "<=", last)]
    for form in stretch.gates:
        type = _integers_for(form)
        tests += [compare(number(0, type), "<=", gate) for gate in bounds([form])]
    return _folded(arith.AndIOp, tests)


def _integers_for(*forms: Linear) -> Attribute:
    """Integers in which forms are what they are, for any data: of 64 bits where a sum may leave 32."""
    return IndexType() if any(map(leaves_32_bits, forms)) else i32


def _as(value: Expression, type: Attribute) -> Expression:
    return value if value.type == type else Node(arith.IndexCastOp, (value,), type)


def _linear(form: Linear, resolve: Callable[[Atom], Expression], type: Attribute) -> Expression:
    total: Expression = number(form.constant, type)
    for term, factor in form.terms.items():
        value = _term(term, resolve, type)
        if abs(factor) != 1:
            value = _without_overflow(arith.MuliOp, value, number(abs(factor), type))
        total = _without_overflow(arith.AddiOp if factor > 0 else arith.SubiOp, total, value)
    return total


def _term(term: Term, resolve: Callable[[Atom], Expression], type: Attribute) -> Expression:
    if not isinstance(term, Divided):
        return _as(resolve(term), type)
    inner, divisor = _linear(term.form, resolve, type), number(term.divisor, type)
    quotient = Node(arith.FloorDivSIOp, (inner, divisor), type)
    if isinstance(term, Quotient):
        return quotient
    return _without_overflow(arith.SubiOp, inner, _without_overflow(arith.MuliOp, quotient, divisor))


def _without_overflow(kind: type[Operation], left: Expression, right: Expression) -> Node:
    """Arithmetic in integers that were chosen so that it stays in them."""
    flags = arith.IntegerOverflowAttr([arith.IntegerOverflowFlag.NSW])
    return Node(kind, (left, right), left.type, {"overflowFlags": flags})


def _folded(kind: type[Operation], parts: Sequence[Expression]) -> Expression:
    first, *rest = parts
    for part in rest:
        first = Node(kind, (first, part), part.type)
    return first


def presence(
    plan: StreamPlan,
    state: SSAValue,
    sizes: Mapping[str, int],
    size_of: Callable[[str], Expression],
    resolve: Callable[[Atom], Expression],
) -> Iterator[Expression]:
    """What must hold for a state to have had an element, of axes of these sizes; `size_of` and `resolve` give an axis'
    size and what a condition speaks of."""
    limited = is_limited(state)
    for axis, size in sizes.items():
        if size < 1 and (not limited or axis != plan.axis):
            yield compare(size_of(axis), ">", number(0, i32))
    if limited:
        yield is_there(stretches_of(plan, state) or (), size_of(plan.axis), resolve)


def told(end: Expression, guards: Iterable[Expression], there: Iterable[Expression]) -> Expression:
    """A finished state which is no number where one of some conditions holds, if it had an element."""
    undefined: Expression = number(float("nan"), end.type)
    for each in there:
        undefined = select(each, undefined, end)
    whole = end
    for guard in guards:
        whole = select(guard, undefined, whole)
    return whole


def axes_reduced(state: SSAValue, guards: Iterable[SSAValue]) -> dict[str, int]:
    """The axes that a state and its guards are reduced over, and their sizes; `DYNAMIC` for one that is not static."""
    axes: dict[str, int] = {}
    for value in (state, *guards):
        owner = _reduction(value)
        sizes = {axis: size for operand in operands_of(owner) for axis, size in sizes_of(operand.type).items()}
        axes |= {axis: sizes.get(axis, DYNAMIC) for axis in owner.over_axes}
    return axes


def _reduction(state: SSAValue) -> ContractOp | ReduceOp:
    owner = state.owner
    assert isinstance(owner, ContractOp | ReduceOp)
    return owner


def _guards_of(plan: StreamPlan, state: SSAValue, known: Mapping[SSAValue, tuple[SSAValue, ...]]) -> list[SSAValue]:
    operands = operands_of(_reduction(state))
    repair = plan.verdicts[state].repair
    if repair is None or repair.stays is not None or (absences_of(operands) and stretches_of(plan, state) is None):
        return []
    moved = [r for operand in operands for r in plan.states_of(operand) if r in plan.states_in(plan.stage[state])]
    guards: list[SSAValue] = []
    for r in moved:
        guards += known.get(r, ())
        if r in plan.guarded and not is_nothing_at_start(r, operands) and _leaves_no_number(r, operands):
            guards.append(r)
    return guards


def _leaves_no_number(r: SSAValue, operands: Iterable[SSAValue]) -> bool:
    """Whether what is reduced is no number where all that `r` is made of, and so `r` itself, is neutral."""
    if is_ordered(r):
        may_end_so = any(may_be_infinite(Leaf(operand)) for operand in operands_of(_reduction(r)))
        return may_end_so and not has_stand_in(r, operands)
    first, *rest = (Leaf(operand) for operand in operands)
    summand: Expression = first
    for factor in rest:
        summand = product(summand, factor)
    elements = {key_of(Leaf(operand)): ZERO for operand in operands_of(_reduction(r))}
    return kinds_of(summand, {**elements, key_of(Leaf(r)): ZERO}) == NAN


def _is_undefined_anyway(plan: StreamPlan, state: SSAValue, following: Mapping[SSAValue, tuple[SSAValue, ...]]) -> bool:
    """Whether all that is made of a state is no number while one of its guards is neutral, so that the sums which
    follow that are 0."""
    if state in plan.part.leaving:
        return False
    maps = [use.operation for use in state.uses]
    axes = _reduction(state).over_axes
    for guard in following[state]:
        zeros = {other for other, guards in following.items() if guard in guards and neutral_of(other).value.data == 0}
        for map in maps:
            if not isinstance(map, MapOp) or not is_plain(map):
                return False
            if not _is_of_zeros(expression_of(map), zeros, axes):
                return False
    return True


def _is_of_zeros(expression: Expression, zeros: Container[SSAValue], there: Sequence[str]) -> bool:
    """Whether an expression is no number where some values are 0, or none, and some axes have elements."""
    if not isinstance(expression, Node):
        return False
    if expression.kind is arith.SelectOp:
        return all(_is_of_zeros(part, zeros, there) for part in _chosen(expression, there))
    if expression.kind is arith.DivfOp and all(_is_zero(operand, zeros, there) for operand in expression.operands):
        return True
    return expression.kind in _PASS_ON and any(_is_of_zeros(part, zeros, there) for part in expression.operands)


def _is_zero(expression: Expression, zeros: Container[SSAValue], there: Sequence[str]) -> bool:
    if isinstance(expression, Node) and expression.kind is arith.SelectOp:
        return all(_is_zero(part, zeros, there) for part in _chosen(expression, there))
    if isinstance(expression, Node) and expression.kind in CASTS:
        return _is_zero(expression.operands[0], zeros, there)
    return isinstance(expression, Leaf) and expression.value in zeros


def _chosen(select: Node, there: Sequence[str]) -> Sequence[Expression]:
    """What a choice may give, where some axes have elements."""
    condition, *choices = select.operands
    return choices[:1] if _has_elements(condition, there) else choices


def _is_told_by(plan: StreamPlan, state: SSAValue, others: Iterable[SSAValue]) -> bool:
    """Whether all that is made of a state is no number where others are none."""
    if state in plan.part.leaving:
        return False
    maps = [use.operation for use in state.uses]
    axes = _reduction(state).over_axes
    return all(
        isinstance(map, MapOp)
        and is_plain(map)
        and any(_is_spoilt_by(expression_of(map), other, axes) for other in others)
        for map in maps
    )


def _is_spoilt_by(expression: Expression, state: SSAValue, there: Sequence[str]) -> bool:
    """Whether an expression is no number where a state is none, and some axes have elements."""
    if isinstance(expression, Leaf):
        return expression.value is state
    if not isinstance(expression, Node):
        return False
    if expression.kind is arith.SelectOp:
        condition, *choices = expression.operands
        sure = _has_elements(condition, there) or _holds_of_none(condition, state)
        chosen = choices[:1] if sure else choices
        return all(_is_spoilt_by(part, state, there) for part in chosen)
    return expression.kind in _PASS_ON and any(_is_spoilt_by(part, state, there) for part in expression.operands)


def _holds_of_none(condition: Expression, state: SSAValue) -> bool:
    """Whether a condition, as `l != 0`, holds where the state is no number."""
    if not isinstance(condition, Node) or condition.kind is not arith.CmpfOp:
        return False
    left, right = condition.operands
    same = same_predicate(condition, compare(left, "!=", right))
    return same and isinstance(left, Leaf) and left.value is state


def _has_elements(condition: Expression, there: Sequence[str]) -> bool:
    """Whether a condition is that one of some axes, which have elements, has more than none."""
    if not isinstance(condition, Node) or condition.kind is not arith.CmpiOp:
        return False
    left, right = condition.operands
    if not isinstance(left, Leaf) or not isinstance(left.value.owner, ExtentOp) or not is_number(right, 0):
        return False
    return same_predicate(condition, compare(left, ">", right)) and left.value.owner.axis.data in there
