"""What counts while a reduction is still neutral: a repair need not be defined there if nothing does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of
from treadle.passes.expressions.distances import is_beyond
from treadle.passes.expressions.forms import Atom, linear_form, same_form, unscaled
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.kinds import ANY, kinds_of, truths_of
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.reductions import neutral_of, operands_of
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    expression_of,
    forgets_absences,
    inside_out,
    is_number,
    is_plain,
    number,
)
from treadle.passes.expressions.signs import is_nonnegative
from treadle.passes.streams.changes import ORDERED


def vanishes(operands: Sequence[SSAValue], r: SSAValue) -> bool:
    """Whether summands are all zero as long as the reduction `r` is neutral, which holds if a factor is

    - `exp(k * s + ...)` with `r = max s` and k > 0 (or `r = min s` and k < 0): then s = -inf so far, if every summand
      has its s: no condition may leave out of `r` what counts in the sum;
    - `e` itself, with `r = sum e` and e never negative: then e = 0 so far;
    - a sum of such products along axes that `r` reduces, too: then all of them are zero.
    """
    owner = r.owner
    if not isinstance(owner, ReduceOp) or owner.init is not None:
        return False

    def is_zero(part: Expression) -> bool:
        if owner.kind.data == "add":
            return isinstance(part, Leaf) and part.value is owner.operand
        return _falls_with(part, owner)

    if owner.kind.data == "add" and not is_nonnegative(Leaf(owner.operand)):
        return False
    if owner.kind.data in ORDERED and not absences_of([owner.operand]) <= absences_of(operands):
        return False
    if owner.kind.data not in ("add", *ORDERED):
        return False
    return any(_is_zero(Leaf(operand), owner.over_axes, is_zero) for operand in operands)


def _is_zero(expression: Expression, over: Sequence[str], is_zero: Callable[[Expression], bool]) -> bool:
    """Whether an expression is zero where some of its parts are: a factor of it, or of each of its terms."""
    for part in numerators(expression, over):
        if is_zero(part):
            return True
        terms = _terms(part)
        if terms and all(_is_zero(term, over, is_zero) for term in terms):
            return True
    return False


def _terms(part: Expression) -> Sequence[Expression]:
    """Of a sum or a difference, the two; of all else none."""
    return part.operands if isinstance(part, Node) and part.kind in (arith.AddfOp, arith.SubfOp) else ()


def may_overflow_meanwhile(operands: Sequence[SSAValue]) -> bool:
    """Whether a sum of products may be infinite before its last piece, though it is a number at the end."""
    return any(map(is_beyond, _factors(operands)))


def _factors(operands: Iterable[SSAValue]) -> Iterator[Expression]:
    """The factors of what is multiplied, and of its terms."""
    waiting: list[Expression] = [Leaf(operand) for operand in operands]
    while waiting:
        for part in numerators(waiting.pop()):
            yield part
            waiting += _terms(part)


def numerators(expression: Expression, over: Sequence[str] = ()) -> Iterator[Expression]:
    """The factors of an expression, at every depth of naming, and of what it sums along axes of `over` alone."""
    yield expression
    if isinstance(expression, Leaf):
        inner = inner_expression(expression.value)
        if inner is not None:
            yield from numerators(inner, over)
        for factor in _summed(expression.value.owner, over):
            yield from numerators(Leaf(factor), over)
        return
    if not isinstance(expression, Node):
        return
    if expression.kind is arith.MulfOp:
        for operand in expression.operands:
            yield from numerators(operand, over)
    elif expression.kind is arith.DivfOp or expression.kind in CASTS:
        yield from numerators(expression.operands[0], over)
    elif expression.kind is arith.SelectOp and is_number(expression.operands[2], 0):
        yield from numerators(expression.operands[1], over)
    elif expression.kind is arith.SelectOp and is_number(expression.operands[1], 0):
        yield from numerators(expression.operands[2], over)


def _summed(op: object, over: Sequence[str]) -> Sequence[SSAValue]:
    """The factors of what an operation sums, if it does so along axes of `over` alone."""
    if not isinstance(op, ContractOp | ReduceOp) or op.init is not None or not {*op.over_axes} <= {*over}:
        return []
    return operands_of(op) if isinstance(op, ContractOp) or op.kind.data == "add" else []


def _falls_with(part: Expression, extremum: ReduceOp) -> bool:
    """Whether `part` is `exp(k * s + what does not vary along the axis)` with s the reduced array."""
    if not isinstance(part, Node) or part.kind not in (math.ExpOp, math.Exp2Op):
        return False
    source = linear_form(Leaf(extremum.operand))
    form = linear_form(part.operands[0])
    form.pop(None, None)  # a constant changes no sign
    form = unscaled(form)
    own = {atom: size for atom, size in form.items() if _varies(atom, extremum)}
    wanted = {atom: size for atom, size in source.items() if _varies(atom, extremum)}
    atom = next(iter(wanted), None)
    if atom is None or atom not in own or any(isinstance(other, int) for other in form):
        return False
    slope = own[atom] / wanted[atom]
    right_way = slope > 0 if extremum.kind.data == "max" else slope < 0
    return right_way and same_form(own, {other: slope * size for other, size in wanted.items()})


def _varies(atom: Atom, extremum: ReduceOp) -> bool:
    if not isinstance(atom, SSAValue):
        return False
    return bool(set(axes_of(atom.type)) & set(extremum.over_axes))


def decided(op: Operation, states: Sequence[SSAValue]) -> Expression | None:
    """What a map makes once none of some states is neutral, if it chooses by that."""
    if not states or not isinstance(op, MapOp) or not is_plain(op):
        return None
    expression = expression_of(op)
    chosen = once_counting(expression, states)
    return None if chosen is expression or forgets_absences(op, chosen) else chosen


def once_counting(expression: Expression, states: Iterable[SSAValue]) -> Expression:
    """An expression where none of some reductions is neutral: what is chosen by whether one of them is, is decided."""
    given = {key_of(Leaf(r)): ANY - kinds_of(number(neutral_of(r).value.data)) for r in states}
    done: dict[Expression, Expression] = {}
    for part in inside_out(expression):
        done[part] = part
        if isinstance(part, Node):
            operands = tuple(done[operand] for operand in part.operands)
            if any(new is not old for new, old in zip(operands, part.operands, strict=True)):
                done[part] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
            if part.kind is arith.SelectOp and len(truths := truths_of(part.operands[0], given)) == 1:
                done[part] = operands[1] if True in truths else operands[2]
    return done[expression]
